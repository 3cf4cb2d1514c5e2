"""Which node: HAMi's use of a node, its sign under each policy, and what MetaX's links add."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import metax_links as metax
from subak.dialects.metax_links import LOSSES, SCORES
from subak.dialects.metax_rules import LINKED, POINT, Shared, Whole
from subak.model.card import CardState
from subak.model.device import MIB, RDMA
from subak.model.placement import Charge
from subak.model.request import (
    BINPACK,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    SPREAD,
    CardPolicy,
    Claim,
    Pick,
    Request,
)
from subak.model.rules import PLAIN, Rules
from subak.policy import allocated
from subak.policy.on_node import on_node
from subak.policy.place import place
from subak.policy.registry import score_of
from subak.policy.score import use
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import SCALE
from tests.support.cards import card, cards_of, claim, device, node, numbered, placed, share

POLICIES = [BINPACK, SPREAD]


ZONES = Shared("best-effort", zones=True)
AWARE = Shared("best-effort", zones=True, aware=True)
ONLINE = Shared(None, "online")


def asking(*claims: Claim, policy: str = BINPACK) -> Request:
    return Request(claims, node_policy=policy)


def by(rules: Rules, **wishes: Any) -> Claim:
    return claim(families=frozenset({"metax"}), policy=CardPolicy(pick=Pick.RULES), rules=rules, **wishes)


def scored(cards: list[CardState], request: Request) -> int:
    """The score of a node with these cards once its cards for the request are chosen."""
    grants = on_node(node("n"), cards, request)
    assert isinstance(grants, tuple), grants
    return score_of(request).score(node("n"), cards, request, grants)


def test_use_is_the_sum_of_three_fractions_over_all_cards() -> None:
    """(1+2)/8 slots, (10+40)/200 cores, (4,000+4,000)/32,000 MiB."""
    cards = [card(0, used=1, used_cores=10, used_mib=4_000), card(1, used=2, used_cores=40, used_mib=4_000)]
    assert use(cards) == (375 + 250 + 250) * SCALE // 1000


def test_a_point_is_one_of_hamis_whose_score_is_ten_times_the_use() -> None:
    assert POINT * 10 == SCALE


def test_use_counts_gpus_of_every_vendor_and_nothing_else() -> None:
    cards = [card(0, used=4), card(1, family="metax"), card(2, kind=RDMA, family="rdma", used=4)]
    assert use(cards) == SCALE // 2


@pytest.mark.parametrize("cards", [[], [card(slots=0)], [card(cores=0)], [card(mib=0)]])
def test_a_node_without_something_to_share_has_no_use(cards: list[CardState]) -> None:
    assert use(cards) == 0


def test_the_fuller_node_wins_under_binpack_and_the_emptier_under_spread() -> None:
    idle, busy = [card(0)], [card(0, used=1, used_mib=1_000)]
    assert scored(busy, asking(claim())) > scored(idle, asking(claim())) == 0
    assert scored(busy, asking(claim(), policy=SPREAD)) < scored(idle, asking(claim(), policy=SPREAD)) == 0
    assert scored(busy, asking(claim())) == -scored(busy, asking(claim(), policy=SPREAD)) == use(busy)


def test_an_unknown_node_policy_means_binpack() -> None:
    assert scored([card(used=1)], asking(claim(), policy="tightest")) == use([card(used=1)]) > 0


@pytest.mark.parametrize("strategy", [LEAST_ALLOCATED, MOST_ALLOCATED])
def test_koordinators_strategies_score_by_their_own_rule(strategy: str) -> None:
    cards = [card(0, used=1, used_mib=4_000), card(1)]
    asked = claim(memory_percent=50)
    assert scored(cards, asking(asked, policy=strategy)) == allocated.node_score(cards, asked, strategy)


def test_a_pod_without_cards_is_scored_by_use_under_every_policy() -> None:
    cards = [card(used=1)]
    assert scored(cards, asking(policy=MOST_ALLOCATED)) == use(cards)
    assert scored(cards, asking(policy=SPREAD)) == -use(cards)


@pytest.mark.parametrize(
    ("rules", "depends"),
    [(PLAIN, False), (Shared("best-effort"), False), (ZONES, False), (AWARE, True), (ONLINE, True), (Whole(), True)],
)
def test_only_metax_needs_the_very_cards_to_score_a_node(rules: Rules, depends: bool) -> None:
    request = asking(claim(), by(rules))
    pool = Snapshot([node("n", *cards_of("n"))]).pools[0]
    assert (score_of(request).column(pool, request) is None) is depends


def zoned(*zones: int, **more: Any) -> list[CardState]:
    return [card(index, family="metax", zone=zone, **more) for index, zone in enumerate(zones)]


@pytest.mark.parametrize("policy", POLICIES)
def test_zones_outweigh_use_and_the_same_node_wins_under_both_policies(policy: str) -> None:
    """Four whole cards of a zone of four: 600 points; of two zones of two: 200 less."""
    request = asking(by(AWARE, count=4, cores=100), policy=policy)
    one_zone, two_zones = zoned(1, 1, 1, 1), zoned(1, 1, 2, 2)
    assert scored(one_zone, request) == 600 * 10_000 * POINT
    assert scored(two_zones, request) == 200 * 10_000 * POINT


def test_zones_count_only_for_whole_cards_of_pods_that_care() -> None:
    cards = zoned(1, 1)
    assert scored(cards, asking(by(ZONES, count=2, cores=100))) == 0
    assert scored(cards, asking(by(AWARE, count=2, cores=100))) == 100 * 10_000 * POINT


def test_zones_do_not_count_for_other_whole_cards_of_the_pod() -> None:
    cards = numbered([*zoned(1), card(zone=1), card(zone=1)])
    request = asking(by(AWARE, cores=100), claim(cores=100, container=1))
    assert scored(cards, request) == 0


def test_zones_count_idle_cards_of_the_vendor_only() -> None:
    """Taking one of two idle ones breaks a pair; cards in use and other vendors' have none to break."""
    request = asking(by(AWARE, cores=100))
    cards = numbered([*zoned(1, 1), *zoned(1, 1, used=1), card(zone=1)])
    assert scored(cards, request) == -10 * 10_000 * POINT + use(cards)


@pytest.mark.parametrize("policy", POLICIES)
def test_online_pods_avoid_nodes_with_others_of_their_kind(policy: str) -> None:
    online = {"default/a": Charge(1, tag=("", "online"))}
    request = asking(by(ONLINE), policy=policy)
    busy = [card(family="metax", used=1, tenants=online)]
    sign = 1 if policy == BINPACK else -1
    assert scored(busy, request) == -20 * 10_000 * POINT + sign * use(busy)
    assert scored([card(family="metax")], request) == 0


def test_only_the_cards_taken_count_for_online_pods() -> None:
    """The pod goes to the idle card; what is on the other does not matter."""
    online = {"default/a": Charge(1, tag=("", "online"))}
    cards = [card(0, family="metax", used=1, tenants=online), card(1, family="metax")]
    assert scored(cards, asking(by(ONLINE))) == use(cards)


@pytest.mark.parametrize("policy", POLICIES)
def test_metaxlink_counts_all_whole_cards_of_the_pod_once(policy: str) -> None:
    cards = zoned(1, 1, 2, 2)
    claims = [by(Whole(), container=i, idle=True, cores=100) for i in (0, 1)]
    sign = 1 if policy == BINPACK else -1
    points = metax.node_points(policy, 2, [each.device for each in cards], {})
    assert scored(cards, asking(*claims, policy=policy)) == sign * points * LINKED


def test_metaxlink_looks_at_idle_cards_only() -> None:
    cards = numbered([*zoned(1, 1), *zoned(2, 2, used=1), card()])
    idle = [each.device for each in cards[:2]]
    points = metax.node_points(BINPACK, 1, idle, {})
    assert scored(cards, asking(by(Whole(), idle=True))) == use(cards) + points * LINKED


def test_the_vendors_tables_are_believed_where_they_fit() -> None:
    home = node("n", tables={SCORES: {1: 0, 2: 7}, LOSSES: {1: 3, 2: 0}})
    cards = [card(i, family="metax") for i in range(2)]
    request = asking(by(Whole()))
    grants = on_node(home, cards, request)
    assert isinstance(grants, tuple)
    assert score_of(request).score(home, cards, request, grants) == (2_000 - 3) * metax.STEP * LINKED


@pytest.mark.parametrize("policy", POLICIES)
def test_of_nodes_that_lose_alike_the_better_linked_one_wins_whatever_its_name(policy: str) -> None:
    """All free cards are taken, so that no link is lost.  The first by name has two pairs, the other four."""
    cards = {"a": zoned(1, 1, 2, 2), "b": zoned(1, 1, 1, 1)}
    snapshot = Snapshot([node(name, *(each.device for each in own)) for name, own in cards.items()])
    found = place(snapshot, asking(by(Whole(), idle=True, count=4), policy=policy))
    assert found is not None
    assert found.node == "b"


@pytest.mark.parametrize("policy", POLICIES)
def test_links_of_whole_cards_outweigh_use(policy: str) -> None:
    """Whichever node is fuller, the pod goes to the linked pair."""
    for busy in ("a", "b"):
        apart, linked = zoned(1, 2, 3), zoned(1, 1, 3)
        snapshot = Snapshot(
            [
                node("a", *(msgspec.structs.replace(each.device, id=f"a-{each.device.index}") for each in apart)),
                node("b", *(msgspec.structs.replace(each.device, id=f"b-{each.device.index}") for each in linked)),
            ]
        )
        for name in "ab":  # the third card of each node is held, of one of them by more
            mib = 16_000 if name == busy else 1
            snapshot.restore(f"default/{name}", placed(name, share(f"{name}-2", mib, cores=100 if mib > 1 else 1)))
        found = place(snapshot, asking(by(Whole(), idle=True, count=2), policy=policy))
        assert found is not None
        assert found.node == "b"


def nodes_in_use(*used_mib: int) -> Snapshot:
    snapshot = Snapshot([node(f"n{i}", *cards_of(f"n{i}", 1)) for i in range(len(used_mib))])
    for i, mib in enumerate(used_mib):
        if mib:
            snapshot.restore(f"default/p{i}", placed(f"n{i}", share(f"n{i}-0", mib)))
    return snapshot


@pytest.mark.parametrize(
    ("used", "policy", "chosen"),
    [
        ((0, 500, 100), BINPACK, "n1"),
        ((0, 500, 100), SPREAD, "n0"),
        ((0, 0, 0), BINPACK, "n0"),
        ((500, 500, 500), SPREAD, "n0"),
        ((500, 100, 100), SPREAD, "n1"),
        ((15_900, 500, 100), BINPACK, "n1"),
        ((4_000, 12_000, 0), MOST_ALLOCATED, "n1"),
        ((4_000, 12_000, 0), LEAST_ALLOCATED, "n2"),
    ],
)
def test_the_best_node_that_has_room_takes_the_pod(used: tuple[int, ...], policy: str, chosen: str) -> None:
    found = place(nodes_in_use(*used), asking(claim(1_000), policy=policy))
    assert found is not None
    assert found.node == chosen


@pytest.mark.parametrize(("one", "two"), [("a", "b"), ("b", "a")])
def test_of_equal_nodes_the_first_by_name_is_taken_whatever_its_make(one: str, two: str) -> None:
    snapshot = Snapshot([node(one, *cards_of(one, 1)), node(two, *cards_of(two, 2))])
    found = place(snapshot, asking(claim(1)))
    assert found is not None
    assert found.node == "a"


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 100), st.integers(0, 16_000)),
        max_size=5,
    )
)
def test_the_columns_know_the_same_use(cards: list[tuple[int, int, int]]) -> None:
    home = node("n", *(device(index) for index in range(len(cards))))
    snapshot = Snapshot([home])
    for index, (slots, cores, mib) in enumerate(cards):
        for number in range(slots):
            part = share(f"GPU-{index}", mib if number == 0 else 0, cores if number == 0 else 0)
            snapshot.restore(f"default/p{index}-{number}", placed("n", part))
    pool = snapshot.pools[0]
    assert pool.usage[: pool.size].tolist() == [use(snapshot.cards("n"))]
    assert sum(each.memory_used for each in snapshot.cards("n")) == sum(mib * MIB for slots, _, mib in cards if slots)
