"""Instances on cards in MIG mode: HAMi's sequence, and that places never overlap nor go to waste."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model.device import MIB, MigProfile
from subak.model.placement import Charge, MigInstance
from subak.policy.mig import choose, instance_for, most, place, stack
from tests.support.cards import card, claim


def profile(name: str, mib: int, cores: int, starts: tuple[int, ...], size: int) -> MigProfile:
    return MigProfile(name, mib * MIB, cores, tuple((start, size) for start in starts))


ONE = profile("1g.10gb", 9_856, 14, tuple(range(7)), 1)
TWO = profile("2g.20gb", 20_096, 28, (0, 2, 4), 2)
THREE = profile("3g.40gb", 40_192, 42, (0, 4), 4)
SEVEN = profile("7g.80gb", 80_384, 100, (0,), 8)
A100 = (SEVEN, ONE, THREE, TWO)


def test_the_places_of_an_a100_are_taken_as_hami_takes_them() -> None:
    taken: list[MigInstance] = []
    for wanted in (THREE, TWO, ONE, ONE):
        instance = place(wanted.name, wanted.placements, taken)
        assert instance is not None
        taken.append(instance)
    assert [(each.profile, each.start, each.size) for each in taken] == [
        ("3g.40gb", 4, 4),
        ("2g.20gb", 0, 2),
        ("1g.10gb", 3, 1),
        ("1g.10gb", 2, 1),
    ]


@pytest.mark.parametrize(
    ("mib", "name"), [(1, "1g.10gb"), (9_856, "1g.10gb"), (9_857, "2g.20gb"), (30_000, "3g.40gb"), (50_000, "7g.80gb")]
)
def test_the_smallest_profile_that_is_large_enough_is_chosen(mib: int, name: str) -> None:
    instance = choose(A100, mib * MIB, ())
    assert instance is not None
    assert instance.profile == name


def test_nothing_is_large_enough() -> None:
    assert choose(A100, 80_385 * MIB, ()) is None
    assert choose((), 1, ()) is None


def test_where_the_smallest_has_no_place_left_a_larger_one_serves() -> None:
    only_low = profile("1g.10gb", 9_856, 14, (0,), 1)
    instance = choose((TWO, only_low), 9_000 * MIB, (MigInstance("1g.10gb", 0, 1),))
    assert instance == MigInstance("2g.20gb", 2, 2)


def test_of_profiles_of_one_size_the_one_with_fewer_cores_is_chosen() -> None:
    media = profile("1g.10gb+me", 9_856, 14, (0,), 1)
    thrifty = profile("2g.10gb", 9_856, 10, (4,), 2)
    assert choose((media, ONE, thrifty), 1, ()) == MigInstance("2g.10gb", 4, 2)
    assert choose((media, ONE), 1, ()) == MigInstance("1g.10gb", 6, 1)  # then the first by name


@pytest.mark.parametrize(
    ("existing", "free"),
    [
        ((0, 1), True),
        ((1, 1), True),
        ((1, 2), False),
        ((2, 1), False),
        ((3, 1), False),
        ((2, 4), False),
        ((4, 1), True),
    ],
)
def test_neighbours_may_touch_but_not_overlap(existing: tuple[int, int], free: bool) -> None:
    instance = place("2g.20gb", [(2, 2)], [MigInstance("x", *existing)])
    assert (instance is not None) is free


def test_an_instance_is_sought_beside_those_of_all_tenants() -> None:
    held = {
        "default/a": Charge(2, mig=(MigInstance("3g.40gb", 4, 4), MigInstance("1g.10gb", 3, 1))),
        "default/b": Charge(1, mig=(MigInstance("1g.10gb", 2, 1),)),
    }
    busy = card(mib=81_920, mode="mig", mig=A100, used=3, tenants=held)
    assert instance_for(busy, claim(9_000)) == MigInstance("1g.10gb", 1, 1)
    assert instance_for(busy, claim(memory_percent=20)) == MigInstance("2g.20gb", 0, 2)
    assert instance_for(busy, claim(40_000)) is None


def test_an_instance_must_not_exceed_what_is_left_of_the_card() -> None:
    """What is asked for would fit, but a profile is taken whole."""
    assert instance_for(card(mib=81_920, used_mib=72_064, mig=A100), claim(9_000)) is not None
    assert instance_for(card(mib=81_920, used_mib=72_065, mig=A100), claim(9_000)) is None
    assert instance_for(card(mib=81_920, used_cores=86, mig=A100), claim(9_000)) is not None
    assert instance_for(card(mib=81_920, used_cores=87, mig=A100), claim(9_000)) is None


def stacked(used: int = 0, tenants: dict[str, Charge] | None = None, **wishes: Any) -> list[MigInstance | None]:
    """The instances that a card gives one container, at most eight."""
    home = card(mib=81_920, slots=10, mode="mig", mig=A100, used=used, tenants=tenants)
    asked = claim(**{"mib": 9_000, "instances": True, "count": 8, **wishes})
    return [instance_for(state, asked) for state in stack(home, asked, asked.count)]


def test_a_card_gives_one_container_all_its_instances() -> None:
    assert stacked() == [MigInstance("1g.10gb", start, 1) for start in (6, 5, 4, 3, 2, 1, 0)]
    assert stacked(mib=20_000) == [MigInstance("2g.20gb", start, 2) for start in (0, 2, 4)]
    held = {"default/a": Charge(1, mig=(MigInstance("3g.40gb", 4, 4),))}
    assert stacked(used=1, tenants=held, mib=20_000) == [MigInstance("2g.20gb", start, 2) for start in (0, 2)]


def test_no_more_than_are_asked_for_and_no_more_than_the_card_has_slots() -> None:
    assert len(stacked(count=2)) == 2
    assert len(stacked(used=8)) == 2


def test_a_card_is_counted_once_unless_it_is_cut_for_who_may_have_several() -> None:
    cut, plain = card(0, mode="mig", mig=A100, mib=81_920), card(1)
    several, one = claim(1_000, instances=True, count=3), claim(1_000, count=3)
    assert [most([cut, plain], each) for each in (several, one)] == [cut.device.slots + 1, 2]
    assert [len(stack(each, several, 3)) for each in (cut, plain)] == [3, 1]
    assert len(stack(cut, one, 3)) == 1


@given(st.lists(st.sampled_from([1, 9_857, 20_097, 40_193]), max_size=10))
def test_places_never_overlap_and_none_is_missed(wishes: list[int]) -> None:
    taken: list[MigInstance] = []
    for mib in wishes:
        covered = {place for each in taken for place in range(each.start, each.start + each.size)}
        free = [
            (each, start, size)
            for each in A100
            for start, size in each.placements
            if each.memory_bytes >= mib * MIB and not covered & set(range(start, start + size))
        ]
        instance = choose(A100, mib * MIB, taken)
        if instance is None:
            assert not free
            continue
        least = min(each.memory_bytes for each, _, _ in free)
        legal = [(each.name, start, size) for each, start, size in free if each.memory_bytes == least]
        assert (instance.profile, instance.start, instance.size) in legal
        starts = [start for _, start, _ in legal]
        assert instance.start == (max(starts) if instance.profile[0] in "13" else min(starts))
        taken.append(instance)
