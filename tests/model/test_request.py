"""What a pod asks for: values that are equal when they ask for the same, and amounts of each card."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model.device import MIB
from subak.model.manifest import Toleration
from subak.model.request import SPREAD, CardPolicy, Claim, Mixture, Needs, Request, Selection, Weights
from tests.support.cards import claim, device


def same() -> Request:
    """The same request, made anew."""
    selection = Selection(use_ids=frozenset({"GPU-1", "GPU-0"}), use_types=("a100",))
    return Request(
        (claim(1_000, cores=10, selection=selection), claim(container=1, policy=CardPolicy(weights=Weights(1, 2, 3)))),
        Needs(resources=(("cpu", 1),), tolerations=(Toleration(key="gpu"),)),
    )


def test_pods_that_ask_for_the_same_have_equal_requests() -> None:
    assert same() == same()
    assert hash(same()) == hash(same())
    assert len({same(), same()}) == 1


def test_every_field_of_a_request_tells_shapes_apart() -> None:
    others = [
        replace(same(), claims=same().claims[:1]),
        replace(same(), needs=Needs()),
        replace(same(), node_policy=SPREAD),
        replace(same(), reads=(("labels", "a"),)),
        replace(same(), mixture=Mixture(least=1)),
    ]
    assert len(others) == len([each for each in fields(Request) if each.init])
    shapes = {same(), *others}
    assert len(shapes) == 6
    assert len({hash(shape) for shape in shapes}) == 6


def test_requests_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        same().node_policy = SPREAD  # type: ignore[misc]


@pytest.mark.parametrize(
    ("selection", "id", "admitted"),
    [
        (Selection(), "GPU-0", True),
        (Selection(use_ids=frozenset({"GPU-0"})), "GPU-0", True),
        (Selection(use_ids=frozenset({"GPU-0"})), "GPU-01", False),
        (Selection(nouse_ids=frozenset({"GPU-0"})), "GPU-0", False),
        (Selection(nouse_ids=frozenset({"GPU-0"})), "GPU-1", True),
        (Selection(use_ids=frozenset({"GPU-0"}), nouse_ids=frozenset({"GPU-0"})), "GPU-0", False),
    ],
)
def test_ids_match_exactly_and_a_deny_wins(selection: Selection, id: str, admitted: bool) -> None:
    assert selection.admits_id(id) is admitted


@pytest.mark.parametrize(
    ("selection", "model", "admitted"),
    [
        (Selection(), "NVIDIA-A100", True),
        (Selection(use_types=("a100",)), "NVIDIA-A100-SXM4", True),
        (Selection(use_types=("h100", "t4")), "Tesla T4", True),
        (Selection(use_types=("a100",)), "NVIDIA-A10", False),
        (Selection(nouse_types=("a10",)), "NVIDIA-A100", False),
        (Selection(nouse_types=("a100",)), "NVIDIA-A10", True),
        (Selection(use_types=("nvidia",), nouse_types=("a100",)), "NVIDIA-A100", False),
        (Selection(models=frozenset({"MR-V100"})), "MR-V100", True),
        (Selection(models=frozenset({"MR-V100"})), "MR-V100-32G", False),
        (Selection(models=frozenset({"MR-V100"}), nouse_types=("mr",)), "MR-V100", False),
    ],
)
def test_types_are_parts_of_the_models_name_and_models_the_whole(
    selection: Selection, model: str, admitted: bool
) -> None:
    assert selection.admits_type(model) is admitted


@pytest.mark.parametrize(
    ("modes", "mode", "admitted"),
    [
        ("", "mig", True),
        ("mig", "mig", True),
        ("mig", "hami-core", False),
        ("hami-core,mps", "mps", True),
        ("mig", "", True),
    ],
)
def test_modes_must_contain_the_cards_mode(modes: str, mode: str, admitted: bool) -> None:
    assert Selection(modes=modes).admits_mode(mode) is admitted


@pytest.mark.parametrize(
    ("asked", "bytes"),
    [
        (claim(1_000), 1_000 * MIB),
        (claim(), 0),
        (claim(1_000, memory_percent=50), 1_000 * MIB),
        (claim(memory_percent=100), 11_178 * MIB),
        (claim(memory_percent=50), 5_589 * MIB),
        (claim(memory_percent=33), 3_688 * MIB),
        (claim(memory_percent=33, granule=1), 11_178 * MIB * 33 // 100),
        (claim(memory_percent=33, granule=512 * MIB), 6 * 512 * MIB),
    ],
)
def test_memory_is_an_amount_or_a_percentage_of_the_card(asked: Claim, bytes: int) -> None:
    assert asked.memory_on(device(mib=11_178)) == bytes


@given(st.integers(0, 1 << 44), st.integers(1, 100), st.sampled_from([1, MIB, 256 * MIB]))
def test_a_percentage_is_whole_granules_and_never_more_than_its_part(total: int, percent: int, granule: int) -> None:
    card = device(memory_bytes=total)
    amount = claim(memory_percent=percent, granule=granule).memory_on(card)
    assert amount % granule == 0
    assert amount * 100 <= total * percent
    whole = total // granule * granule
    assert (amount + granule) * 100 > whole * percent, "nor less than it need be"
