"""Pods of thousands of containers: each rule is asked once for all that ask for the same, with the same answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from subak.model.card import CardState
from subak.model.manifest import Role
from subak.model.placement import Grant, Share, charges
from subak.model.request import CardPolicy, Claim, Request
from subak.policy import joint
from subak.policy import on_node as whole
from subak.policy.columns import distinct, representative
from subak.policy.fit import candidates
from tests.support.cards import card, claim, node

MANY = 30_000
"""Containers: comparing each with each would take minutes."""


def representative_slowly(request: Request) -> list[Claim]:
    """The claims to test, found by looking for each claim among all others."""
    claims = [each for each in request.claims if not each.together or each.memory_percent]
    for dialect in sorted({each.dialect for each in request.claims}):
        together = [each for each in request.claims if each.dialect == dialect and each not in claims]
        if together:
            grants = [
                Grant(dialect, each.containers, each.role, (Share("", 0, each.memory_bytes, each.cores),))
                for each in together
            ]
            peak = charges(grants)[""]
            claims.append(replace(together[0], memory_bytes=peak.memory_bytes, cores=peak.cores, role=Role.APP))
    return claims


@st.composite
def several(draw: st.DrawFn) -> tuple[Claim, ...]:
    """Claims of containers, many of which ask for the same."""
    asked = st.fixed_dictionaries({
        "mib": st.sampled_from([0, 100]), "dialect": st.sampled_from(["a", "b"]), "together": st.booleans(),
        "memory_percent": st.sampled_from([0, 50]), "cores": st.sampled_from([0, 30]), "role": st.sampled_from(Role),
        "policy": st.sampled_from([CardPolicy(), CardPolicy(beside="gpu", same_roots=True)]),
    })  # fmt: skip
    return tuple(claim(container=at, **each) for at, each in enumerate(draw(st.lists(asked, max_size=8))))


@given(several())
def test_the_claims_to_test_are_those_of_a_comparison_of_all(claims: tuple[Claim, ...]) -> None:
    request = Request(claims)
    found = representative(request)
    assert Counter(found) == Counter(representative_slowly(request))
    alone = [each for each in claims if not each.together or each.memory_percent]
    assert found[: len(alone)] == alone


def test_thousands_of_containers_are_not_compared_with_each_other() -> None:
    request = Request(tuple(claim(100, container=at, together=bool(at % 2)) for at in range(MANY)))
    assert len(representative(request)) == MANY // 2 + 1
    assert len(distinct(representative(request))) == 2


@given(several())
def test_containers_that_ask_for_the_same_are_tested_once(claims: tuple[Claim, ...]) -> None:
    def asked(each: Claim) -> Claim:
        return replace(each, containers=(), role=Role.APP)

    found = distinct(claims)
    assert [asked(each) for each in found] == list(dict.fromkeys(asked(each) for each in claims))


@given(several())
def test_only_devices_beside_others_tie_cards_to_a_place(claims: tuple[Claim, ...]) -> None:
    cards = [card(0, pcie="one", kind="gpu"), card(1, pcie="two", kind="gpu"), card(2, kind="gpu")]
    for each in claims:
        few = joint.wanted(each, joint.tying(claims), cards)
        assert few == wanted_slowly(each, claims, cards)


def wanted_slowly(asking: Claim, claims: tuple[Claim, ...], cards: list[CardState]) -> frozenset[str] | None:
    """`joint.wanted`, that looks at every claim of the pod."""
    bound: frozenset[str] | None = None
    for other in claims:
        if not other.policy.same_roots or other.dialect != asking.dialect:
            continue
        passed, _ = candidates([each for each in cards if each.device.family in other.families], other, len(cards) + 1)
        usable = {each.device.pcie for each in passed} - {""}
        mine = [each.device for each in cards if each.device.family in asking.families]
        if any(device.kind == other.policy.beside for device in mine):
            found = frozenset(device.id for device in mine if device.pcie in usable)
            bound = found if bound is None else bound & found
    return bound


@given(
    st.lists(st.builds(claim, st.sampled_from([0, 6_000, 9_000]), role=st.sampled_from(Role)), min_size=2, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=2),
)
def test_a_search_that_is_cut_short_finds_what_the_whole_one_finds(asked: list[Claim], used: list[int]) -> None:
    claims = tuple(replace(each, containers=(at,)) for at, each in enumerate(asked))
    cards = [card(index, used=each) for index, each in enumerate(used)]
    answer = whole.on_node(node("n"), cards, Request(claims))
    with patch.object(whole, "_too_many", return_value=False):
        assert whole.on_node(node("n"), cards, Request(claims)) == answer


def test_no_other_way_is_tried_for_more_containers_than_there_are_slots() -> None:
    claims = tuple(claim(1, container=at) for at in range(4_000))
    cards = [card(index, slots=10) for index in range(4)]
    with patch.object(whole, "grant", wraps=whole.grant) as granted:
        assert isinstance(whole.on_node(node("n"), cards, Request(claims)), Counter)
    assert granted.call_count == 40
