"""Cards close together, beside those in use: Koordinator's cases on a node of two NUMA nodes and four PCIe roots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model.card import CardState
from subak.model.device import Device
from subak.model.manifest import Role
from subak.model.placement import Charge
from subak.model.reason import Reason
from subak.model.request import LEAST_ALLOCATED, MOST_ALLOCATED, CardPolicy, Claim, Pick
from subak.policy.allocated import card_score
from subak.policy.fit import fit
from subak.policy.order import in_order
from subak.policy.tree import by_tree

MEMORY = 83201216 << 10


def card(index: int, percent: int = 0, numa: int = 0, pcie: str = "0", family: str = "nvidia") -> CardState:
    state = CardState.of(Device(f"GPU-{index}", index, family, memory_bytes=MEMORY, numa=numa, pcie=pcie))
    if percent:
        state.take(Charge(1, 0, MEMORY * percent // 100, percent))
    return state


def n8(used: Mapping[int, int]) -> list[CardState]:
    """Two cards under each of four PCIe roots, two roots under each of two NUMA nodes; `used` in percent."""
    return [card(i, used.get(i, 0), i // 4, str(i // 2)) for i in range(8)]


def pick(cards: list[CardState], percent: int = 100, count: int = 1, scope: str = "") -> list[int]:
    """The indices that a request gets under MostAllocated."""
    claim = Claim("koordinator", frozenset({"nvidia", "amd"}), (0,), memory_percent=percent, cores=percent, granule=1)
    fitting = [each for each in cards if each.memory_free >= claim.memory_on(each.device)]
    fitting.sort(key=lambda each: (-card_score(each, claim, MOST_ALLOCATED), each.device.index))
    return [each.device.index for each in by_tree(fitting, cards, count, percent < 100, scope)]


def test_half_a_card_goes_to_the_card_that_is_half_used() -> None:
    assert pick(n8({5: 100, 7: 50}), 50) == [7]


def test_two_cards_share_a_pcie_root_in_the_numa_node_already_in_use() -> None:
    assert pick(n8({5: 100}), count=2) == [6, 7]
    assert pick(n8({5: 100}), count=2, scope="PCIe") == [6, 7]


def test_one_card_goes_beside_the_one_in_use() -> None:
    assert pick(n8({5: 100})) == [4]


def test_an_idle_node_is_filled_from_the_lowest_index() -> None:
    assert pick(n8({})) == [0]
    assert pick(n8({}), count=3) == [0, 1, 2]
    assert pick(n8({}), count=8) == list(range(8))


def test_four_cards_share_a_numa_node() -> None:
    assert pick(n8({5: 100}), count=4, scope="NUMANode") == [0, 1, 2, 3]
    assert pick(n8({5: 100}), count=4) == [0, 1, 2, 3]


def test_a_required_scope_that_no_scope_can_fill_gets_nothing() -> None:
    assert pick(n8({0: 100, 5: 100}), count=4, scope="NUMANode") == []
    assert pick(n8({0: 100, 5: 100}), count=4, scope="Node") == [1, 2, 3, 4]
    assert pick(n8({0: 100, 5: 100}), count=4) == [1, 2, 3, 4]
    assert pick(n8({}), count=3, scope="PCIe") == []


def test_the_best_fit_under_one_root_wins() -> None:
    """Koordinator itself takes card 0, because it swaps two arguments (its issue 3073)."""
    assert pick([card(0, 20), card(1, 50), card(2)], 30) == [1]


def test_where_a_pcie_root_is_unknown_the_order_decides() -> None:
    cards = [card(0), card(1, 50, pcie=""), card(2)]
    assert pick(cards, 50) == [1]
    assert pick(cards, count=2) == [0, 2]
    assert pick(cards, count=2, scope="Node") == [], "a scope cannot be kept if it is unknown"


def test_a_share_of_several_cards_is_placed_in_order() -> None:
    assert pick(n8({5: 50, 7: 50}), 50, count=2) == [5, 7]
    assert pick(n8({5: 50, 7: 50}), 50, count=2, scope="Node") == []


def test_vendors_are_never_mixed() -> None:
    mixed = [card(0, family="amd"), card(1), card(2)]
    assert pick(mixed, count=2) == [1, 2]
    assert pick([card(0, family="amd"), card(1)], count=2) == []


@pytest.mark.parametrize("scope", ["", "Node", "NUMANode", "PCIe"])
@given(
    used=st.dictionaries(st.integers(0, 7), st.integers(1, 100)), count=st.integers(1, 9), percent=st.integers(1, 100)
)
def test_what_is_picked_fits_and_lies_within_the_scope(
    scope: str, used: dict[int, int], count: int, percent: int
) -> None:
    cards = n8(used)
    picked = pick(cards, percent, count, scope)
    assert len(picked) in (0, count)
    assert len(set(picked)) == len(picked)
    assert all(used.get(i, 0) + percent <= 100 for i in picked)
    depth = {"NUMANode": 4, "PCIe": 2}.get(scope, 8)
    assert len({i // depth for i in picked}) <= 1
    if not scope:
        assert bool(picked) == (sum(used.get(i, 0) + percent <= 100 for i in range(8)) >= count)


def koordinator(count: int = 1, percent: int = 50, order: str = LEAST_ALLOCATED, scope: str = "") -> Claim:
    policy = CardPolicy(order=(order,), pick=Pick.TREE, scope=scope)
    families, whole = frozenset({"nvidia"}), percent == 100
    return Claim(
        "koordinator",
        families,
        (0,),
        Role.APP,
        count,
        memory_percent=percent,
        cores=percent,
        granule=1,
        idle=whole,
        policy=policy,
    )


def fitted(cards: list[CardState], claim: Claim) -> list[int]:
    taken = fit(in_order(cards, claim), claim)
    assert isinstance(taken, list)
    return [each.device.index for each in taken]


def test_the_strategy_decides_where_nothing_is_known_of_topology() -> None:
    def four(*half: int) -> list[CardState]:
        return [card(i, 50 if i in half else 0, pcie="") for i in (1, 2, 3, 4)]

    assert fitted(four(1, 2), koordinator(order=LEAST_ALLOCATED)) == [3]
    assert fitted(four(3, 4), koordinator(order=MOST_ALLOCATED)) == [3]


def test_the_scope_is_kept_even_if_just_enough_cards_fit() -> None:
    cards = n8({0: 100, 1: 100, 5: 100, 7: 100})
    assert fitted(cards, koordinator(4, 100)) == [2, 3, 4, 6]
    refused = fit(cards, koordinator(4, 100, scope="NUMANode"))
    assert isinstance(refused, Counter)
    assert refused[Reason.NUMA_NOT_FIT] == 4
    assert fitted(cards, koordinator(2, 100, scope="PCIe")) == [2, 3]
