"""MetaX's rules, by HAMi's tables and by a second, slower way to compute the same."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.metax_links import (
    LOSSES,
    SCORES,
    STEP,
    UNKNOWN,
    Tables,
    best_cards,
    by_zones,
    metax_gpu_node_score,
    node_points,
    node_tables,
    pair_score,
    topology_tables,
    zone_score,
)
from subak.dialects.metax_rules import (
    LINKED,
    card_qos,
    class_fits,
    online_order,
    online_score,
    qos_fits,
    weighted,
)
from subak.model.card import CardState
from subak.model.device import Device
from subak.model.placement import Charge
from subak.model.request import BINPACK, SPREAD


def devices(zones: list[int], free: list[int] | None = None) -> list[Device]:
    """Cards numbered from 1 in these link zones; only those that are free."""
    cards = [Device(f"G{i}", i, "metax", zone=zone) for i, zone in enumerate(zones, 1)]
    return [card for card in cards if free is None or card.index in free]


def states(zones: list[int], free: list[int] | None = None) -> list[CardState]:
    return [CardState.of(device) for device in devices(zones, free)]


def tenants(*charges: Charge) -> dict[str, Charge]:
    return {f"default/p{i}": charge for i, charge in enumerate(charges)}


def shared(*classes: str) -> dict[str, Charge]:
    return tenants(*(Charge(slots=1, cores=10, tag=("", each)) for each in classes))


TWO_GROUPS = [1, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("policy", "card_policy", "used", "cores", "fits"),
    [
        ("best-effort", "burst-share", 2, 100, True),
        ("best-effort", "burst-share", 2, 50, False),
        ("best-effort", "best-effort", 2, 50, True),
        ("best-effort", "burst-share", 0, 50, True),
        ("best-effort", "", 2, 50, True),
        ("fixed-share", "fixed-share", 1, 50, True),
        (None, "burst-share", 2, 0, True),
    ],
)
def test_pods_on_one_card_have_one_qos_policy(
    policy: str | None, card_policy: str, used: int, cores: int, fits: bool
) -> None:
    assert qos_fits(policy, card_policy, used, cores) is fits


@pytest.mark.parametrize(
    ("reported", "charges", "policy"),
    [
        ("best-effort", [], "best-effort"),
        ("best-effort", [Charge(1, cores=50, tag=("best-effort", ""))], "best-effort"),
        ("burst-share", [Charge(1, cores=50, tag=("best-effort", ""))], "best-effort"),
        ("best-effort", [Charge(1, cores=100, tag=("best-effort", ""))], ""),
        ("best-effort", [Charge(2, cores=100, tag=("fixed-share", ""))], "fixed-share"),
        (
            "best-effort",
            [Charge(1, tag=("", "online")), Charge(1, cores=9, tag=("burst-share", "offline"))],
            "burst-share",
        ),
        ("best-effort", [Charge(1, cores=20)], "best-effort"),
    ],
)
def test_what_tenants_were_placed_with_beats_what_the_node_reports(
    reported: str, charges: list[Charge], policy: str
) -> None:
    card = CardState.of(Device("G", 0, "metax", qos=reported), tenants=tenants(*charges))
    assert card_qos(card) == policy


@pytest.mark.parametrize(
    ("app_class", "others", "fits"),
    [
        ("online", [], True),
        ("offline", [], True),
        ("", ["online"], False),
        ("", ["offline"], False),
        ("", [""], True),
        ("online", [""], False),
        ("offline", ["offline"], True),
        ("online", ["online", "offline"], True),
        ("offline", ["online", "offline"], False),
    ],
)
def test_online_and_offline_pods_keep_to_themselves(app_class: str, others: list[str], fits: bool) -> None:
    assert class_fits(app_class, others) is fits


@pytest.mark.parametrize(
    ("cards", "count", "chosen"),
    [
        ({1: "G1 G2", 2: "G5"}, 1, "G5"),
        ({1: "G1 G2", 2: "G5 G6 G7"}, 2, "G1 G2"),
        ({1: "G1 G2", 2: "G5 G6 G7 G8"}, 4, "G5 G6 G7 G8"),
        ({1: "G1 G2", 2: "G5 G6 G7"}, 4, "G1 G2 G5 G6"),
        ({0: "G5 G6 G7"}, 2, "G5 G6"),
        ({0: "G3 G4", 1: "G7 G8"}, 2, "G7 G8"),
        ({0: "G3 G4", 1: "G6 G7 G8"}, 4, "G6 G7 G8 G3"),
        ({2: "G5 G6", 1: "G1 G2"}, 2, "G1 G2"),
    ],
)
def test_whole_shared_cards_come_from_the_smallest_zone_that_has_enough(
    cards: dict[int, str], count: int, chosen: str
) -> None:
    zones = {card: zone for zone, names in cards.items() for card in names.split()}
    assert by_zones(list(zones), count, zones.__getitem__) == chosen.split()


@pytest.mark.parametrize(
    ("free", "chosen", "score"),
    [
        ([1], [1], 0),
        ([1, 1, 1, 1], [1], -30),
        ([1, 1, 1, 1], [1, 1], 60),
        ([1, 2], [1, 2], 0),
        ([1, 1, 1, 1, 2], [1, 1, 1, 1], 600),
        ([1, 1, 1, 2, 2], [1, 1, 2, 2], 180),
        (TWO_GROUPS, TWO_GROUPS, 1200),
        ([0, 0, 0], [0, 0], 0),
    ],
)
def test_nodes_are_scored_by_whole_zones_given_less_zones_broken(
    free: list[int], chosen: list[int], score: int
) -> None:
    assert zone_score(free, chosen) == score


def test_link_scores_decide_under_either_policy() -> None:
    assert weighted(60, BINPACK) == 600_000
    assert weighted(60, SPREAD) == -600_000


@pytest.mark.parametrize(
    ("classes", "score"),
    [
        ([], 0),
        (["online", "online"], -40),
        (["offline", "offline"], -200),
        (["offline", "offline", "online", "online"], -44),
    ],
)
def test_online_pods_avoid_each_other_and_cards_full_of_offline_ones(classes: list[str], score: int) -> None:
    assert online_score(classes) == score


def test_an_online_pod_takes_the_card_with_fewest_online_pods_and_suspends_offline_ones_last() -> None:
    cards = {
        "G1": ["online", "online", "online"],
        "G2": ["online", "offline"],
        "G3": ["online", "online", "offline"],
        "G4": ["offline", "offline"],
        "G5": ["offline"],
        "G6": ["online"],
        "G7": [],
    }
    ordered = online_order(
        CardState.of(Device(id, index, "metax"), tenants=shared(*classes))
        for index, (id, classes) in enumerate(cards.items())
    )
    assert [card.device.id for card in ordered] == ["G7", "G6", "G2", "G3", "G1", "G5", "G4"]


def test_metaxlink_beats_a_common_pcie_switch_and_that_beats_nothing() -> None:
    a = Device("a", 0, "metax", zone=1, pcie="s0")
    assert pair_score(a, Device("b", 1, "metax", zone=1, pcie="s0")) == 110
    assert pair_score(a, Device("b", 1, "metax", zone=2, pcie="s0")) == 50
    assert pair_score(a, Device("b", 1, "metax", zone=2, pcie="s1")) == 10
    assert pair_score(Device("a", 0, "metax"), Device("b", 1, "metax")) == 10
    assert pair_score(a, Device("b", 1, "metax", links={"a": 70})) == 70


def table(*figures: int) -> dict[int, int]:
    return dict(enumerate(figures, 1))


def test_all_eight_cards_free() -> None:
    assert topology_tables(devices(TWO_GROUPS)) == (
        table(0, 110, 330, 660, 700, 850, 1110, 1480),
        table(370, 520, 450, 160, 450, 520, 370, 0),
    )


def test_two_cards_of_the_first_group_in_use() -> None:
    assert topology_tables(devices(TWO_GROUPS, [3, 4, 5, 6, 7, 8])) == (
        table(0, 110, 330, 660, 700, 850),
        table(150, 80, 390, 80, 150, 0),
    )


def test_groups_wired_as_rings() -> None:
    ring = [
        Device(
            f"G{i}",
            i,
            "metax",
            pcie=str(i // 4),
            links={f"G{i // 4 * 4 + (i + step) % 4}": 110 for step in (1, 3)},
        )
        for i in range(8)
    ]
    assert topology_tables(ring) == (
        table(0, 110, 270, 540, 580, 730, 930, 1240),
        table(310, 400, 390, 160, 390, 400, 310, 0),
    )


def test_spread_takes_four_linked_cards_although_others_are_free() -> None:
    chosen = best_cards(states(TWO_GROUPS, [3, 4, 5, 6, 7, 8]), 4, SPREAD)
    assert [card.device.index for card in chosen] == [5, 6, 7, 8]


def test_binpack_finishes_the_broken_group_and_keeps_the_intact_one() -> None:
    chosen = best_cards(states(TWO_GROUPS, [3, 4, 5, 6, 7, 8]), 2, BINPACK)
    assert [card.device.index for card in chosen] == [3, 4]


def test_a_single_card_comes_from_the_broken_group_under_either_policy() -> None:
    for policy in (BINPACK, SPREAD):
        (card,) = best_cards(states(TWO_GROUPS, [3, 5, 6, 7, 8]), 1, policy)
        assert card.device.index == 3


def test_cards_without_known_wiring_are_taken_as_they_come() -> None:
    for policy in (BINPACK, SPREAD):
        chosen = best_cards(states([0] * 8)[::-1], 3, policy)
        assert [card.device.index for card in chosen] == [8, 7, 6]


def test_nodes_are_scored_by_the_vendors_tables() -> None:
    assert metax_gpu_node_score(BINPACK, 2, {LOSSES: {1: 100, 2: 200}}) == 1800
    assert metax_gpu_node_score(SPREAD, 1, {SCORES: {1: 100, 2: 200}}) == 1900


def test_a_node_without_figures_never_wins() -> None:
    free = [Device(f"card-{i}", i, "metax") for i in range(2)]
    assert node_points(BINPACK, 2, free, {SCORES: {2: 110}}) == -UNKNOWN * STEP
    assert node_points(SPREAD, 2, free, {LOSSES: {2: 80}}) == UNKNOWN * STEP
    assert node_points(SPREAD, 3, free, {SCORES: {2: 110}}) == UNKNOWN * STEP


def test_missing_tables_are_computed_where_the_wiring_is_known() -> None:
    scores, losses = topology_tables(devices(TWO_GROUPS))
    assert node_tables({}, devices(TWO_GROUPS)) == {SCORES: scores, LOSSES: losses}
    assert node_tables({SCORES: table(*range(8))}, devices(TWO_GROUPS)) == {SCORES: table(*range(8)), LOSSES: losses}
    assert node_tables({}, devices([0] * 8)) == {SCORES: {}, LOSSES: {}}


def test_a_table_for_another_number_of_free_cards_is_out_of_date() -> None:
    stale = {SCORES: table(0, 1, 2), LOSSES: table(2, 1, 0)}
    scores, losses = topology_tables(devices([1, 1]))
    assert node_tables(stale, devices([1, 1])) == {SCORES: scores, LOSSES: losses}
    assert node_tables(stale, devices([0, 0])) == stale, "nothing better is known"


def test_between_nodes_the_links_of_the_free_cards_decide() -> None:
    intact, broken, untold = devices(TWO_GROUPS), devices(TWO_GROUPS, [3, 4, 5, 6, 7, 8]), devices([0] * 8)
    by_loss = [node_points(BINPACK, 2, free, {}) for free in (untold, intact, broken)]
    assert by_loss == sorted(by_loss), "binpack takes the highest: the node whose group is broken already"
    by_score = [node_points(SPREAD, 4, free, {}) for free in (untold, devices(TWO_GROUPS, [1, 2, 3, 5, 6]), intact)]
    assert by_score == sorted(by_score, reverse=True), "spread takes the lowest: the node with four linked cards"


@pytest.mark.parametrize(
    ("policy", "better", "worse"),
    [
        (BINPACK, {LOSSES: {2: 80}, SCORES: {2: 110}}, {LOSSES: {2: 80}, SCORES: {2: 50}}),
        (BINPACK, {LOSSES: {2: 80}, SCORES: {2: 10}}, {LOSSES: {2: 81}, SCORES: {2: 110}}),
        (BINPACK, {LOSSES: {2: 80}, SCORES: {2: 10}}, {LOSSES: {2: 80}}),
        (SPREAD, {LOSSES: {2: 80}, SCORES: {2: 110}}, {LOSSES: {2: 90}, SCORES: {2: 110}}),
        (SPREAD, {LOSSES: {2: 900}, SCORES: {2: 110}}, {LOSSES: {2: 0}, SCORES: {2: 109}}),
        (SPREAD, {LOSSES: {2: 900}, SCORES: {2: 110}}, {SCORES: {2: 110}}),
    ],
)
def test_of_nodes_that_are_equal_by_one_table_the_other_decides(policy: str, better: Tables, worse: Tables) -> None:
    free = [Device(f"card-{i}", i, "metax") for i in range(2)]
    one, other = node_points(policy, 2, free, better), node_points(policy, 2, free, worse)
    assert one < other if policy == SPREAD else one > other


@pytest.mark.parametrize("figure", [10**30, -(10**30)])
def test_figures_beyond_reason_stay_within_the_columns(figure: int) -> None:
    free = [Device(f"card-{i}", i, "metax") for i in range(2)]
    for policy in (BINPACK, SPREAD):
        points = node_points(policy, 2, free, {LOSSES: {2: figure}, SCORES: {2: figure}})
        assert abs(points * LINKED) < 2**62


def test_large_nodes_are_divided_by_zones() -> None:
    zones = [1] * 12 + [2] * 8 + [0] * 4
    free = states(zones)
    for policy in (BINPACK, SPREAD):
        assert [card.device.zone for card in best_cards(free, 8, policy)] == [2] * 8
    scores, losses = topology_tables(devices(zones))
    assert (scores[8], losses[24]) == (28 * 110, 0)
    assert losses[8] == 8 * 16 * 10


links = st.lists(st.integers(0, 3), min_size=1, max_size=9)


@given(zones=links, switches=st.lists(st.sampled_from(["", "a", "b"]), min_size=9, max_size=9), data=st.data())
def test_the_tables_and_choices_are_those_of_trying_all_subsets(
    zones: list[int], switches: list[str], data: st.DataObject
) -> None:
    cards = [Device(f"G{i}", i, "metax", zone=zone, pcie=switches[i]) for i, zone in enumerate(zones)]
    count = data.draw(st.integers(1, len(cards)))

    def score(subset: tuple[Device, ...] | list[Device]) -> int:
        return sum(pair_score(a, b) for a, b in combinations(subset, 2))

    def loss(subset: tuple[Device, ...]) -> int:
        return score(cards) - score(subset) - score([card for card in cards if card not in subset])

    subsets = list(combinations(cards, count))
    scores, losses = topology_tables(cards)
    assert scores[count] == max(map(score, subsets))
    assert losses[count] == min(map(loss, subsets))
    assert scores.keys() == losses.keys() == set(range(1, len(cards) + 1))

    # combinations come in the order of their indices, and min takes the first of equal ones.
    free = [CardState.of(card) for card in cards]
    for policy, best in (
        (SPREAD, min(subsets, key=lambda each: (-score(each), loss(each)))),
        (BINPACK, min(subsets, key=lambda each: (loss(each), -score(each)))),
    ):
        assert [card.device for card in best_cards(free, count, policy)] == list(best)


@given(zones=links, data=st.data())
def test_zones_give_as_many_cards_as_are_wanted_each_once(zones: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(zones)))
    chosen = by_zones(range(len(zones)), count, zones.__getitem__)
    assert len(chosen) == len(set(chosen)) == count
