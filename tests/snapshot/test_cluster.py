"""The ledger of the whole cluster: what is booked, by whom, and that it always adds up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model.device import MIB
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy.columns import prepare
from subak.policy.place import place
from subak.snapshot.cluster import Overcommitted, Resources, Snapshot
from tests.support.cards import cards_of, claim, device, grant, node, placed, share
from tests.support.fuzz import examples


def one(name: str = "a", count: int = 2, **facts: Any) -> Node:
    return node(name, *cards_of(name, count, **facts))


def free(snapshot: Snapshot, name: str = "a") -> list[tuple[int, int, int]]:
    """Of each card: shares given out, MiB free, cores free."""
    return [(each.used, each.memory_free // MIB, each.cores_free) for each in snapshot.cards(name)]


IDLE = (0, 16_000, 100)


def test_an_empty_cluster() -> None:
    snapshot = Snapshot()
    assert len(snapshot) == 0
    assert list(snapshot) == []
    assert snapshot.node("a") is None
    with pytest.raises(KeyError):
        snapshot.cards("a")


def test_nodes_come_by_name_whatever_their_make() -> None:
    snapshot = Snapshot([one("c", 1), one("a", 2), one("b", 1)])
    assert [each.name for each in snapshot] == ["a", "b", "c"]
    assert len(snapshot) == 3
    assert len(snapshot.pools) == 2
    assert snapshot.node("b") == one("b", 1)


def test_assume_books_and_forget_gives_back() -> None:
    snapshot = Snapshot([one()])
    placement = placed("a", share("a-1", 4_000, 30))
    snapshot.assume("default/p", placement, (("cpu", 500),))
    assert free(snapshot) == [IDLE, (1, 12_000, 70)]
    assert snapshot.pools[0].resources == [{"cpu": 500}]
    booking = snapshot.forget("default/p")
    assert booking is not None
    assert (booking.placement, booking.resources) == (placement, (("cpu", 500),))
    assert free(snapshot) == [IDLE, IDLE]
    assert snapshot.pools[0].resources == [{}]
    assert snapshot.bookings == {}
    assert snapshot.forget("default/p") is None


def test_a_card_can_be_given_out_to_the_last_bit() -> None:
    snapshot = Snapshot([one()])
    for number in range(3):
        snapshot.assume(f"default/p{number}", placed("a", share("a-0", 5_000, 30)))
    snapshot.assume("default/rest", placed("a", share("a-0", 1_000, 10)))
    assert free(snapshot) == [(4, 0, 0), IDLE]


@pytest.mark.parametrize(
    ("held", "taken"),
    [
        ([share("a-0")] * 4, share("a-0")),
        ([share("a-0", 16_000)], share("a-0", 1)),
        ([share("a-0", cores=100)], share("a-0", cores=1)),
    ],
)
def test_no_card_is_overcommitted(held: list[Any], taken: Any) -> None:
    snapshot = Snapshot([one()])
    for number, part in enumerate(held):
        snapshot.assume(f"default/p{number}", placed("a", part))
    before = free(snapshot)
    with pytest.raises(Overcommitted, match="card a-0 of node a has .* left; pod default/late takes 1, "):
        snapshot.assume("default/late", placed("a", share("a-1", 1), taken), (("cpu", 1),))
    assert free(snapshot) == before
    assert "default/late" not in snapshot.bookings
    assert snapshot.pools[0].resources == [{}]


def test_a_vendors_own_amounts_are_not_overcommitted() -> None:
    snapshot = Snapshot([one(extras=(("aicpu", 5),))])
    snapshot.assume("default/plain", placed("a", share("a-0", 1)))
    for number, amount in enumerate((2, 2)):
        snapshot.assume(f"default/p{number}", placed("a", share("a-0", extras=(("aicpu", amount),))))
    with pytest.raises(Overcommitted, match="card a-0 has 1 aicpu left; pod default/late takes 2"):
        snapshot.assume("default/late", placed("a", share("a-0", extras=(("aicpu", 2),))))
    with pytest.raises(Overcommitted, match="card a-1 has 0 dvpp left; pod default/late takes 1"):
        snapshot.assume("default/late", placed("a", share("a-1", extras=(("dvpp", 1),))))
    snapshot.assume("default/last", placed("a", share("a-0", extras=(("aicpu", 1),))))


def test_shares_of_one_pod_on_one_card_add_up() -> None:
    snapshot = Snapshot([one()])
    with pytest.raises(Overcommitted):
        snapshot.assume("default/p", placed("a", share("a-0", 9_000), share("a-0", 9_000)))
    init = grant(share("a-0", 9_000), role=Role.INIT)
    snapshot.assume("default/p", Placement("a", (init, grant(share("a-0", 9_000), container=1))))
    assert free(snapshot)[0] == (1, 7_000, 100)


def test_a_pod_that_holds_something_is_not_assumed_again() -> None:
    snapshot = Snapshot([one("a"), one("b")])
    snapshot.assume("default/p", placed("a", share("a-0", 1)))
    with pytest.raises(Overcommitted, match="pod default/p already holds cards on node a"):
        snapshot.assume("default/p", placed("b", share("b-0", 1)))
    assert free(snapshot, "b") == [IDLE, IDLE]


def test_cards_that_a_node_does_not_have_cannot_be_assumed() -> None:
    snapshot = Snapshot([one()])
    with pytest.raises(Overcommitted, match="node a has not all of the cards a-0, b-7"):
        snapshot.assume("default/p", placed("a", share("a-0"), share("b-7")))
    with pytest.raises(KeyError):
        snapshot.assume("default/p", placed("b", share("b-0")))
    assert snapshot.bookings == {}


def test_truth_needs_no_room() -> None:
    """What runs, runs: more than a card has, on cards nobody knows, on nodes nobody knows."""
    snapshot = Snapshot([one()])
    snapshot.restore("default/p", placed("a", share("a-0", 20_000, 300), share("gone-7", 1)))
    assert free(snapshot) == [(1, -4_000, -200), IDLE]
    snapshot.restore("default/q", placed("elsewhere", share("x-0", 1)))
    assert free(snapshot) == [(1, -4_000, -200), IDLE]
    snapshot.forget("default/p")
    snapshot.forget("default/q")
    assert free(snapshot) == [IDLE, IDLE]


def test_a_pod_told_again_holds_what_was_told_last() -> None:
    snapshot = Snapshot([one("a"), one("b")])
    snapshot.restore("default/p", placed("a", share("a-0", 1_000)), (("cpu", 100),))
    snapshot.restore("default/p", placed("b", share("b-1", 2_000)), (("cpu", 200),))
    assert free(snapshot, "a") == [IDLE, IDLE]
    assert free(snapshot, "b") == [IDLE, (1, 14_000, 100)]
    assert [pool.resources for pool in snapshot.pools] == [[{}, {"cpu": 200}]]
    assert list(snapshot.bookings) == ["default/p"]


def test_a_node_that_comes_late_carries_the_pods_that_were_told_before() -> None:
    snapshot = Snapshot()
    snapshot.restore("default/p", placed("a", share("a-0", 1_000)), (("cpu", 100),))
    snapshot.put([one()])
    assert free(snapshot) == [(1, 15_000, 100), IDLE]
    snapshot.forget("default/p")
    assert free(snapshot) == [IDLE, IDLE]


def test_a_node_that_goes_and_comes_back_carries_its_pods() -> None:
    snapshot = Snapshot([one("a"), one("b")])
    snapshot.assume("default/p", placed("a", share("a-0", 1_000)))
    snapshot.assume("default/q", placed("a", share("a-0", 500)))
    snapshot.remove("a")
    assert [each.name for each in snapshot] == ["b"]
    assert snapshot.node("a") is None
    snapshot.forget("default/q")
    snapshot.put([one("a")])
    assert free(snapshot) == [(1, 15_000, 100), IDLE]
    snapshot.remove("nobody")


def test_a_node_that_changes_in_place_keeps_its_pods() -> None:
    snapshot = Snapshot([one()])
    snapshot.assume("default/p", placed("a", share("a-0", 1_000)))
    pool = snapshot.pools[0]
    snapshot.put([one(mib=20_000)])
    assert snapshot.pools[0] is pool
    assert free(snapshot) == [(1, 19_000, 100), (0, 20_000, 100)]
    snapshot.forget("default/p")
    assert free(snapshot) == [(0, 20_000, 100)] * 2


@pytest.mark.parametrize("alone", [True, False])
def test_a_node_whose_cards_were_exchanged_carries_what_is_held_of_those_that_stay(alone: bool) -> None:
    """The same number of cards, but other ones: what was held of the old ones counts no more."""
    snapshot = Snapshot([one("a")] if alone else [one("a"), one("b")])
    snapshot.assume("default/p", placed("a", share("a-0", 1_000), share("a-1", 2_000)), (("cpu", 100),))
    snapshot.put([node("a", device(0, id="a-9"), device(1, id="a-1"))])
    assert free(snapshot) == [IDLE, (1, 14_000, 100)]
    snapshot.put([node("a", device(0, id="a-1"), device(1, id="a-0"))])
    assert free(snapshot) == [(1, 14_000, 100), (1, 15_000, 100)]
    at = snapshot.pools[0].position("a")
    assert at is not None
    assert snapshot.pools[0].resources[at] == {"cpu": 100}
    snapshot.forget("default/p")
    assert free(snapshot) == [IDLE, IDLE]
    assert snapshot.pools[0].resources[at] == {}


def test_a_node_that_gets_another_make_moves_to_another_pool() -> None:
    snapshot = Snapshot([one("a", 2), one("b", 3)])
    snapshot.assume("default/p", placed("a", share("a-1", 1_000)))
    snapshot.put([one("a", 3)])
    assert [len(pool.make) for pool in snapshot.pools] == [3]
    assert free(snapshot) == [IDLE, (1, 15_000, 100), IDLE]
    snapshot.put([one("a", 1)])
    assert free(snapshot) == [IDLE]
    snapshot.put([one("a", 2)])
    assert free(snapshot) == [IDLE, (1, 15_000, 100)]


def test_of_a_node_told_twice_at_once_the_last_counts() -> None:
    snapshot = Snapshot([one("a", 1), one("a", 2)])
    assert len(snapshot) == 1
    assert free(snapshot) == [IDLE, IDLE]


def test_scores_of_a_pool_are_dropped_with_it_and_others_stay() -> None:
    snapshot = Snapshot([one("a", 1), one("b", 2)])
    request = Request((claim(),))
    place(snapshot, request)
    kept = snapshot.scores.rows(request, snapshot.pools, prepare)[0]
    snapshot.remove("b")
    snapshot.put([one("c", 2)])
    assert [len(pool) for pool in snapshot.pools] == [1, 1]
    rows = snapshot.scores.rows(request, snapshot.pools, prepare)
    assert rows[0] is kept
    assert [row.pool for row in rows] == snapshot.pools


NAMES = ("a", "b")
described = st.builds(
    lambda name, devices, cpu, ready: node(
        name,
        *(
            device(row, id=f"{name}-{number}", healthy=healthy, mib=mib)
            for row, (number, healthy, mib) in enumerate(devices)
        ),
        allocatable={"cpu": cpu},
        ready=ready,
    ),
    st.sampled_from(NAMES),
    st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([8_000, 16_000])),
        min_size=1,
        max_size=3,
        unique_by=lambda each: each[0],
    ),
    st.sampled_from([1_000, 4_000]),
    st.booleans(),
)
holdings = st.builds(
    lambda name, parts: placed(name, *(share(f"{name}-{number}", mib, cores) for number, mib, cores in parts)),
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9_000), st.integers(0, 60)), min_size=1, max_size=3),
)
keys = st.sampled_from(["default/p", "default/q", "default/r"])
resources = st.sampled_from([(), (("cpu", 500),), (("cpu", 700), ("example.com/fpga", 1))])
events = st.one_of(
    st.tuples(st.just("put"), st.lists(described, max_size=2)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("assume"), keys, holdings, resources),
    st.tuples(st.just("restore"), keys, holdings, resources),
    st.tuples(st.just("forget"), keys),
)


class Model:
    """The same ledger as two plain dictionaries."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[Placement, Resources]] = {}

    def held(self, name: str, id: str) -> tuple[int, int, int]:
        """Shares, bytes and cores of a card that all pods hold; these pods have one container each."""
        parts = [
            part
            for placement, _ in self.pods.values()
            if placement.node == name
            for part in placement.grants[0].shares
            if part.id == id
        ]
        return len(parts), sum(part.memory_bytes for part in parts), sum(part.cores for part in parts)

    def room(self, key: str, placement: Placement) -> bool:
        """Whether the placement can be assumed."""
        home = self.nodes[placement.node]
        parts = placement.grants[0].shares
        if key in self.pods or any(home.device(part.id) is None for part in parts):
            return False
        for each in home.devices:
            mine = [part for part in parts if part.id == each.id]
            slots, memory, cores = self.held(home.name, each.id)
            over = (
                slots + len(mine) > each.slots,
                memory + sum(part.memory_bytes for part in mine) > each.memory_bytes,
                cores + sum(part.cores for part in mine) > each.cores,
            )
            if mine and any(over):
                return False
        return True


def assert_adds_up(snapshot: Snapshot, model: Model) -> None:
    assert [each.name for each in snapshot] == sorted(model.nodes)
    assert set(snapshot.bookings) == set(model.pods)
    assert sum(len(pool) for pool in snapshot.pools) == len(model.nodes)
    for pool in snapshot.pools:
        for at in pool:
            home = pool.nodes[at]
            name = home.name
            assert home == model.nodes[name]
            taken = [model.held(name, each.id) for each in home.devices]
            assert pool.taken[:, at].tolist() == [
                sum(row[0] for row in taken),
                sum(r[2] for r in taken),
                sum(r[1] for r in taken),
            ]
            for row, (each, (slots, memory, cores)) in enumerate(zip(home.devices, taken, strict=True)):
                left = [each.slots - slots, each.memory_bytes - memory, each.cores - cores, -slots]
                assert pool.state[:, row, at].tolist() == [1 if each.healthy else -1, *left]
                holders = {key for key, (placement, _) in model.pods.items() if holds(placement, name, each.id)}
                assert set(pool.tenants[at][row]) == holders
            spent = Counter[str]()
            for placement, amounts in model.pods.values():
                if placement.node == name:
                    spent.update(dict(amounts))
            assert pool.resources[at] == dict(spent)
            assert pool.free(at, "cpu") == pool.plain[0, at] == home.allocatable["cpu"] - spent["cpu"]


def holds(placement: Placement, name: str, id: str) -> bool:
    return placement.node == name and any(part.id == id for part in placement.grants[0].shares)


@examples(quick=50, ci=200)
@given(st.lists(events, max_size=25))
def test_the_columns_are_the_sum_over_all_bookings_whatever_happens(stream: list[tuple[Any, ...]]) -> None:
    snapshot, model = Snapshot(), Model()
    for event in stream:
        match event:
            case "put", nodes:
                snapshot.put(nodes)
                model.nodes |= {each.name: each for each in nodes}
            case "remove", name:
                snapshot.remove(name)
                model.nodes.pop(name, None)
            case "forget", key:
                assert (snapshot.forget(key) is None) is (model.pods.pop(key, None) is None)
            case "restore", key, placement, amounts:
                snapshot.restore(key, placement, amounts)
                model.pods[key] = (placement, amounts)
            case _, key, placement, amounts if placement.node not in model.nodes:
                with pytest.raises(KeyError):
                    snapshot.assume(key, placement, amounts)
            case _, key, placement, amounts if model.room(key, placement):
                snapshot.assume(key, placement, amounts)
                model.pods[key] = (placement, amounts)
            case _, key, placement, amounts:
                with pytest.raises(Overcommitted):
                    snapshot.assume(key, placement, amounts)
        assert_adds_up(snapshot, model)
