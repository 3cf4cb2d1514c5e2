"""Which of the cards that fit: best linked against brute force, and that each way of picking is the one asked for."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.metax_rules import Shared, Whole
from subak.model.card import CardState
from subak.model.placement import Charge
from subak.model.request import BINPACK, SPREAD, CardPolicy, Claim, Pick
from subak.model.rules import PLAIN, Rules
from subak.policy.fit import pick
from subak.policy.pick import others
from tests.support.cards import card, claim, indices


def by(way: str, count: int, **wishes: Any) -> Claim:
    return claim(count=count, policy=CardPolicy(pick=way), **wishes)


def picked(cards: list[CardState], asked: Claim, node_policy: str = BINPACK) -> list[int]:
    return indices(pick(cards, asked, cards, node_policy))


def linked(*pairs: tuple[int, int, int], count: int = 4) -> list[CardState]:
    """Cards of which these pairs are connected so well."""
    links: dict[int, dict[str, int]] = {index: {} for index in range(count)}
    for a, b, strength in pairs:
        links[a][f"GPU-{b}"] = links[b][f"GPU-{a}"] = strength
    return [card(index, links=links[index]) for index in range(count)]


def test_in_order_takes_the_first() -> None:
    assert picked([card(3), card(1), card(2)], by(Pick.IN_ORDER, 2)) == [3, 1]


def test_one_card_is_the_one_that_the_others_miss_least() -> None:
    assert picked(linked((0, 1, 100), (1, 2, 100), (2, 3, 10)), by(Pick.LINKS, 1)) == [3]


def test_several_cards_are_the_best_connected() -> None:
    cards = linked((0, 1, 50), (0, 2, 60), (1, 2, 70), (2, 3, 100))
    assert picked(cards, by(Pick.LINKS, 2)) == [2, 3]
    assert picked(cards, by(Pick.LINKS, 3)) == [0, 1, 2]


def test_the_weakest_link_beats_none() -> None:
    assert picked(linked((2, 3, 1)), by(Pick.LINKS, 2)) == [2, 3]


def test_of_equally_linked_cards_the_first_in_order_are_taken() -> None:
    cards = [card(index) for index in (2, 0, 1)]
    assert picked(cards, by(Pick.LINKS, 1)) == [2]
    assert picked(cards, by(Pick.LINKS, 2)) == [2, 0]


def test_links_to_cards_that_do_not_fit_do_not_count() -> None:
    """Card 2 has the strongest links, but to card 3, which is not among those that fit."""
    cards = linked((0, 1, 10), (2, 3, 100))[:3]
    assert picked(cards, by(Pick.LINKS, 1)) == [2]


@pytest.mark.parametrize(
    ("way", "rules"),
    [
        (Pick.IN_ORDER, PLAIN),
        (Pick.LINKS, PLAIN),
        (Pick.RULES, Shared(zones=True)),
        (Pick.RULES, Shared(None, "online")),
        (Pick.RULES, Whole()),
    ],
)
def test_if_just_enough_fit_they_are_taken_as_they_come(way: str, rules: Rules) -> None:
    cards = [card(2, zone=1), card(0, zone=2), card(1, zone=1)]
    assert picked(cards, by(way, 3, rules=rules)) == [2, 0, 1]


strengths = st.integers(0, 3)


@given(st.lists(strengths, min_size=10, max_size=10), st.integers(2, 5), st.permutations(range(5)), st.data())
def test_links_are_picked_as_by_brute_force(
    drawn: list[int], size: int, shuffled: list[int], data: st.DataObject
) -> None:
    pairs = dict(zip(combinations(range(5), 2), drawn, strict=True))
    node = linked(*((a, b, strength) for (a, b), strength in pairs.items()), count=5)
    cards = [node[index] for index in shuffled[:size]]
    count = data.draw(st.integers(1, size))

    def strength(chosen: tuple[int, ...]) -> int:
        return sum(pairs[min(a, b), max(a, b)] for a, b in combinations(chosen, 2))

    everything = shuffled[:size]
    sets = list(combinations(everything, count))  # the first ones in order come first
    if count == size:
        want = sets[0]
    elif count == 1:
        alone = [sum(strength((index, other)) for other in everything if other != index) for index in everything]
        want = (everything[alone.index(min(alone))],)
    else:
        want = next(each for each in sets if strength(each) == max(map(strength, sets)))
    assert tuple(picked(cards, by(Pick.LINKS, count))) == want


def test_other_choices_take_a_card_as_often_as_it_has_instances() -> None:
    """The first card twice before it is taken once, and never its second instance without its first."""
    a, again, b, c = card(0), card(0), card(1), card(2)
    chosen = list(others([[a, again], [b], [c]], 2))
    assert [indices(list(each)) for each in chosen] == [[0, 0], [0, 1], [0, 2], [1, 2]]
    assert [indices(list(each)) for each in others([[a], [b], [c]], 2)] == [[0, 1], [0, 2], [1, 2]]
    assert all(each[0] is a for each in chosen[:3])
    assert not list(others([[a, again]], 3))


def test_zones_keep_the_larger_zone_whole() -> None:
    cards = [card(0, zone=1), card(1, zone=1), card(2, zone=1), card(3, zone=2), card(4, zone=2)]
    assert picked(cards, by(Pick.RULES, 2, rules=Shared(zones=True))) == [3, 4]


def test_online_pods_go_where_the_fewest_of_them_are() -> None:
    online = {"default/a": Charge(1, tag=("", "online"))}
    assert picked([card(0, used=1, tenants=online), card(1)], by(Pick.RULES, 1, rules=Shared(None, "online"))) == [1]


def test_metaxlink_takes_the_best_links_under_spread_and_leaves_them_under_binpack() -> None:
    cards = [card(0, zone=1), card(1, zone=2), card(2, zone=2), card(3, zone=2), card(4, zone=2)]
    assert picked(cards, by(Pick.RULES, 1, rules=Whole()), BINPACK) == [0]
    assert set(picked(cards, by(Pick.RULES, 2, rules=Whole()), SPREAD)) <= {1, 2, 3, 4}


def test_the_tree_looks_at_all_cards_of_the_node_not_only_at_those_that_fit() -> None:
    """A card in use makes its PCIe root the one to fill up."""
    node = [card(i, pcie=str(i // 2), used=int(i == 3)) for i in range(4)]
    asked = by(Pick.TREE, 1, memory_percent=100)
    assert indices(pick(node[:3], asked, node, BINPACK)) == [2]
    assert indices(pick(node[:3], asked, node[:3], BINPACK)) == [0]


def test_the_tree_may_refuse_even_if_just_enough_fit() -> None:
    node = [card(i, pcie=str(i)) for i in range(2)]
    asked = claim(count=2, memory_percent=100, policy=CardPolicy(pick=Pick.TREE, scope="PCIe"))
    assert pick(node, asked, node, BINPACK) == []


def test_a_part_of_a_card_takes_the_best_in_order_from_the_tree_a_whole_one_the_lowest_index() -> None:
    node = [card(i, pcie="0") for i in (1, 0)]
    assert picked(node, by(Pick.TREE, 1, memory_percent=50)) == [1]
    assert picked(node, by(Pick.TREE, 1, memory_percent=100)) == [0]
