"""What holds for a group: what its object says, or else what its members say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subak.batch.gangs import Membership, agreed
from subak.batch.gangs.terms import Terms
from subak.model.group import Group, Words

KOORDINATOR = Words.KOORDINATOR


def test_without_an_object_members_say_how_many_start() -> None:
    assert agreed([Membership(KOORDINATOR, "default/a", 4, timeout=90.0)]) == Terms(4, timeout=90.0)


def test_a_group_whose_object_is_missing_has_no_terms() -> None:
    assert agreed([Membership(Words.VOLCANO, "default/a")]) is None
    assert agreed([]) is None


def test_the_larger_of_two_minimums_counts_and_both_are_named() -> None:
    terms = agreed([Membership(KOORDINATOR, "default/a", 4), Membership(KOORDINATOR, "default/a", 8)])
    assert terms is not None
    assert terms.min_member == 8
    (warning,) = terms.warnings
    assert warning == "default/a: its members do not agree on how many start together, 4 or 8; 8 counts"


def test_an_object_counts_more_than_members() -> None:
    members = [Membership(KOORDINATOR, "default/a", 4, timeout=9.0)]
    terms = agreed(members, Group(words=KOORDINATOR, key="default/a", min_member=2, timeout=60.0, warnings=("mind",)))
    assert terms is not None
    assert (terms.min_member, terms.timeout) == (2, 60.0)
    assert terms.warnings[-1] == "mind"
    assert "4 start together, its PodGroup 2, which counts" in terms.warnings[0]


def test_what_an_object_means_otherwise_than_in_koordinator_is_a_warning() -> None:
    annotations = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    terms = agreed([], Group(words=KOORDINATOR, key="default/a", annotations=annotations))
    assert terms is not None
    (warning,) = terms.warnings
    assert warning.startswith("default/a: gang.scheduling.koordinator.sh/mode is NonStrict")


def bundled(gang: str, minimum: int) -> Membership:
    roles = tuple((each, minimum if each == gang else 1) for each in ("x/a", "x/b"))
    return Membership(KOORDINATOR, "x/a,x/b", minimum + 1, roles, gang)


def test_a_bundle_needs_every_gang_with_its_own_minimum() -> None:
    terms = agreed([bundled("x/a", 3), bundled("x/b", 2)])
    assert terms is not None
    assert (terms.min_member, terms.min_roles, terms.warnings) == (5, {"x/a": 3, "x/b": 2}, ())


def test_a_gang_of_a_bundle_that_is_not_there_yet_is_waited_for() -> None:
    terms = agreed([bundled("x/a", 3)])
    assert terms is not None
    assert (terms.min_member, terms.min_roles) == (4, {"x/a": 3, "x/b": 1})


def test_members_of_one_gang_of_a_bundle_may_disagree_too() -> None:
    terms = agreed([bundled("x/a", 3), bundled("x/a", 4), bundled("x/b", 2)])
    assert terms is not None
    assert terms.min_member == 6
    assert terms.warnings == ("x/a: its members do not agree on how many start together, 3 or 4; 4 counts",)


ALONE = st.builds(
    Membership,
    st.just(KOORDINATOR),
    st.just("x/a"),
    st.none() | st.integers(0, 5),
    timeout=st.none() | st.floats(1, 5),
    warnings=st.sampled_from([(), ("mind",)]),
)
BUNDLED = st.builds(bundled, st.sampled_from(["x/a", "x/b"]), st.integers(0, 5))


@given(
    (st.lists(ALONE, min_size=1) | st.lists(BUNDLED, min_size=1)).flatmap(
        lambda each: st.tuples(st.just(each), st.permutations(each))
    )
)
def test_the_order_of_members_does_not_matter(members: tuple[list[Membership], list[Membership]]) -> None:
    assert agreed(members[0]) == agreed(members[1])
    assert agreed(members[0]) == agreed(members[0] * 2)


@given(st.lists(ALONE, min_size=1) | st.lists(BUNDLED, min_size=1))
def test_nobody_is_promised_less_than_he_says(members: list[Membership]) -> None:
    terms = agreed(members)
    if terms is None:
        assert all(each.min_member is None for each in members)
        return
    for each in members:
        assert terms.min_member >= (each.min_member or 0)
        assert all(terms.min_roles[role] >= number for role, number in each.min_roles)
