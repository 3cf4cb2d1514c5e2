"""Columns of nodes: what stands in them, how nodes come and go, and what readers are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model.device import GPU, MIB, RDMA
from subak.model.node import Node
from subak.model.placement import Charge
from subak.snapshot import pool as module
from subak.snapshot.pool import ALIVE, CORES, IDLE, MEMORY, SCALE, SLOTS, UNLIMITED, VACANT, Pool, make_of, usage
from tests.support.cards import cards_of, device, node

CHARGE = Charge(shares=2, slots=2, memory_bytes=4_000 * MIB, cores=30)


def one(name: str, count: int = 2, **facts: Any) -> Node:
    return node(name, *cards_of(name, count, **facts))


def pool_of(*nodes: Node) -> Pool:
    pool = Pool(make_of(nodes[0]))
    pool.insert(nodes)
    return pool


def booked(pool: Pool, at: int, row: int = 0, key: str = "default/p", charge: Charge = CHARGE) -> None:
    pool.charge(at, row, key, charge, 1)
    pool.charge_node(at, (), 1)


def test_nodes_of_a_pool_have_as_many_cards_of_the_same_vendors_in_the_same_rows() -> None:
    assert make_of(one("a")) == make_of(one("b", mib=8_000, model="NVIDIA-T4")) == (("nvidia", GPU),) * 2
    assert make_of(one("a")) != make_of(one("a", 3))
    assert make_of(node("a", device(0), device(1, family="metax"))) == (("nvidia", GPU), ("metax", GPU))
    assert make_of(node("a", device(0, kind=RDMA))) == (("nvidia", RDMA),)
    assert make_of(node("a")) == ()


def test_a_fresh_node_has_everything_to_give() -> None:
    pool = pool_of(replace(one("a"), allocatable={"cpu": 8_000, "pods": 110}))
    assert pool.state[:, 1, 0].tolist() == [1, 4, 16_000 * MIB, 100, 0]
    assert pool.memory[:, 0].tolist() == [16_000 * MIB] * 2
    assert pool.cores[:, 0].tolist() == [100, 100]
    assert pool.totals[:, 0].tolist() == [8, 200, 32_000 * MIB]
    assert pool.taken[:, 0].tolist() == [0, 0, 0]
    assert pool.usage[0] == 0
    assert pool.plain[:, 0].tolist() == [8_000, UNLIMITED, 110]


@pytest.mark.parametrize(("fault", "state"), [({"healthy": False}, -1), ({"cordoned": True}, 0)])
def test_a_card_that_takes_nobody_is_not_alive(fault: dict[str, Any], state: int) -> None:
    assert pool_of(one("a", **fault)).state[ALIVE, :, 0].tolist() == [state, state]


def by_name(pool: Pool) -> list[str]:
    """The nodes as ties between them are decided."""
    return [pool.nodes[at].name for at in sorted(pool, key=lambda at: pool.order[at])]


def test_nodes_keep_their_places_and_are_ranked_by_name_whenever_they_came() -> None:
    pool = pool_of(one("d"), one("b"))
    booked(pool, 0)
    pool.insert([one("e", mib=3_000), one("c", mib=2_000), one("a", mib=1_000)])
    assert [each.name for each in pool.nodes] == ["d", "b", "e", "c", "a"]
    assert by_name(pool) == ["a", "b", "c", "d", "e"]
    assert (pool.memory[0, :5] // MIB).tolist() == [16_000, 16_000, 3_000, 2_000, 1_000]
    assert pool.state[IDLE, 0, :5].tolist() == [-2, 0, 0, 0, 0]
    assert [len(each[0]) for each in pool.tenants] == [1, 0, 0, 0, 0]
    assert [pool.position(name) for name in ("a", "c", "e", "x")] == [4, 3, 2, None]
    assert len(pool) == pool.size == 5


@given(st.lists(st.integers(0, 60), max_size=80))
def test_names_are_ranked_however_nodes_come_and_go_one_by_one(numbers: list[int]) -> None:
    pool = Pool(make_of(one("x", 1)))
    for number in numbers:
        name = f"n{number:02d}"
        at = pool.position(name)
        if at is None:
            pool.insert([one(name, 1)])
        else:
            pool.remove(at)
        assert by_name(pool) == sorted(pool.nodes[at].name for at in pool)


def test_there_is_always_a_number_between_two_neighbours() -> None:
    pool = pool_of(one("a", 1), one("c", 1))
    for number in range(100):  # each right behind "a", where numbers get scarce
        pool.insert([one(f"b{999 - number}", 1)])
    assert by_name(pool) == sorted(each.name for each in pool.nodes)


def test_a_node_that_goes_leaves_the_others_as_they_were_and_its_place_to_the_next() -> None:
    pool = pool_of(one("a", mib=1_000), one("b", mib=2_000), one("c", mib=3_000))
    booked(pool, 2, key="default/c")
    booked(pool, 1, key="default/b")
    pool.remove(1)
    assert len(pool) == 2
    assert list(pool) == [0, 2]
    assert pool.present.tolist() == [True, False, True]
    assert pool.nodes[1] == VACANT
    assert pool.state[:, :, 1].tolist() == [[0, 0]] * 5
    assert [list(held) for each in (0, 2) for held in pool.tenants[each]] == [[], [], ["default/c"], []]
    assert pool.position("b") is None
    assert pool.position("c") == 2
    pool.insert([one("d", mib=4_000)])
    assert pool.position("d") == 1
    assert pool.state[:, 0, 1].tolist() == [1, 4, 4_000 * MIB, 100, 0]
    assert (pool.taken[:, 1].tolist(), pool.usage[1]) == ([0, 0, 0], 0)


def test_what_is_booked_is_missing_from_the_card_and_comes_back() -> None:
    pool = pool_of(one("a"), one("b"))
    before = (pool.state.copy(), pool.taken.copy(), pool.usage.copy())
    booked(pool, 1, 1)
    assert pool.state[:, 1, 1].tolist() == [1, 2, 12_000 * MIB, 70, -2]
    assert pool.taken[:, :2].T.tolist() == [[0, 0, 0], [2, 30, 4_000 * MIB]]
    assert pool.usage[:2].tolist() == [0, SCALE * 2 // 8 + SCALE * 30 // 200 + SCALE // 8]
    (_, card) = pool.cards(1)
    assert (card.used, card.memory_used, card.cores_used) == (2, 4_000 * MIB, 30)
    assert card.tenants == {"default/p": CHARGE}
    pool.charge(1, 1, "default/p", CHARGE, -1)
    pool.charge_node(1, (), -1)
    for old, new in zip(before, (pool.state, pool.taken, pool.usage), strict=True):
        assert (old == new).all()
    assert pool.tenants[1] == [{}, {}]


def test_cards_that_are_no_gpus_have_no_part_in_use() -> None:
    pool = pool_of(node("a", device(0), device(1, kind=RDMA, family="rdma")))
    booked(pool, 0, 1)
    assert pool.totals[:, 0].tolist() == [4, 100, 16_000 * MIB]
    assert (pool.taken[:, 0].tolist(), pool.usage[0]) == ([0, 0, 0], 0)
    assert pool.state[SLOTS, :, 0].tolist() == [4, 2]


def test_a_copy_of_a_card_changes_no_ledger() -> None:
    pool = pool_of(one("a"))
    copy = pool.cards(0)[0]
    copy.take(CHARGE)
    assert (copy.used, copy.memory_used, copy.cores_used) == (2, 4_000 * MIB, 30)
    assert pool.cards(0)[0].used == 0
    assert pool.state[MEMORY, 0, 0] == 16_000 * MIB
    copy.take(CHARGE, -1)
    assert (copy.used, copy.memory_used, copy.cores_used) == (0, 0, 0)


@pytest.mark.parametrize(
    ("parts", "full"),
    [
        ([(1, 4), (50, 100), (0, 10)], 750_000),
        ([(1, 3), (1, 3), (1, 3)], 999_999),
        ([(1, 1), (0, 1), (1, 1)], 2_000_000),
        ([(1, 4), (0, 0)], 0),
        ([], 0),
    ],
)
def test_use_is_a_sum_of_fractions_in_millionths(parts: list[tuple[int, int]], full: int) -> None:
    assert usage(parts) == full


def test_plain_resources_of_a_node_are_booked_by_name() -> None:
    pool = pool_of(replace(one("a"), allocatable={"cpu": 8_000, "pods": 2, "example.com/fpga": 1}))
    pool.charge_node(0, (("cpu", 3_000), ("memory", 5), ("pods", 1), ("example.com/fpga", 1)), 1)
    assert [pool.free(0, name) for name in ("cpu", "memory", "pods", "example.com/fpga")] == [5_000, UNLIMITED, 1, 0]
    assert pool.plain[:, 0].tolist() == [5_000, UNLIMITED - 5, 1]
    pool.charge_node(0, (("cpu", 3_000), ("pods", 1)), -1)
    assert pool.resources[0] == {"memory": 5, "example.com/fpga": 1}
    assert [pool.free(0, name) for name in ("cpu", "pods")] == [8_000, 2]


def test_what_a_node_does_not_mention_is_unlimited_unless_it_is_an_extended_resource() -> None:
    pool = pool_of(one("a"))
    assert pool.free(0, "ephemeral-storage") == UNLIMITED
    assert pool.free(0, "example.com/fpga") == 0


def test_readers_are_told_which_nodes_were_used_came_changed_or_went() -> None:
    pool = pool_of(one("a"), one("b"))
    assert pool.log == [0, 1]
    booked(pool, 1)
    assert pool.log[2:] == [1]
    pool.replace(0, one("a", mib=8_000, model="NVIDIA-H100"))
    pool.insert([one("c")])
    pool.remove(1)
    assert pool.log[3:] == [0, 2, 1]
    assert pool.generation == 0


def test_a_log_that_grows_too_long_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_LOG", 4)
    pool = pool_of(one("a"))
    before = pool.generation
    for number in range(3):
        booked(pool, 0, key=f"default/{number}")
    assert (pool.log, pool.generation) == ([0, 0, 0, 0], before)
    booked(pool, 0, key="default/4")
    assert (pool.log, pool.generation) == ([], before + 1)


def test_a_changed_node_keeps_what_is_held_there() -> None:
    pool = pool_of(replace(one("a"), allocatable={"cpu": 4_000, "pods": 10}))
    pool.charge(0, 0, "default/p", CHARGE, 1)
    pool.charge_node(0, (("cpu", 1_000), ("pods", 1)), 1)
    changed = replace(one("a", mib=20_000, slots=2, cores=200), allocatable={"cpu": 2_000, "memory": 7})
    pool.replace(0, changed)
    assert pool.nodes == [changed]
    assert pool.state[:, 0, 0].tolist() == [1, 0, 16_000 * MIB, 170, -2]
    assert pool.state[:, 1, 0].tolist() == [1, 2, 20_000 * MIB, 200, 0]
    assert pool.totals[:, 0].tolist() == [4, 400, 40_000 * MIB]
    assert pool.taken[:, 0].tolist() == [2, 30, 4_000 * MIB]
    assert pool.usage[0] == SCALE // 2 + SCALE * 30 // 400 + SCALE // 10
    assert pool.plain[:, 0].tolist() == [1_000, 7, UNLIMITED]
    assert pool.tenants == [[{"default/p": CHARGE}, {}]]


def test_a_card_that_breaks_and_heals_is_told() -> None:
    pool = pool_of(one("a"))
    pool.replace(0, one("a", healthy=False))
    assert pool.state[ALIVE, :, 0].tolist() == [-1, -1]
    pool.replace(0, one("a"))
    assert pool.state[ALIVE, :, 0].tolist() == [1, 1]
    assert pool.state[CORES, :, 0].tolist() == [100, 100]


def test_kinds_of_cards_are_numbered_as_they_come() -> None:
    pool = pool_of(node("a", device(0), device(1, model="NVIDIA-T4")), one("b", mode="mig"))
    assert pool.types[:, :2].T.tolist() == [[0, 1], [2, 2]]
    assert pool.kinds == [("NVIDIA-A100", ""), ("NVIDIA-T4", ""), ("NVIDIA-A100", "mig")]
    pool.insert([one("c", model="NVIDIA-T4")])
    assert pool.types[:, 2].tolist() == [1, 1]


def test_verdicts_are_remembered_and_kept_up_to_date() -> None:
    pool = pool_of(one("a"), one("b"))
    asked: list[str] = []

    def judge(home: Node) -> str | None:
        asked.append(home.name)
        return None if home.ready else "not ready"

    def says() -> list[str | None]:
        verdicts = pool.verdicts("ready", judge)
        assert verdicts.passes[list(pool)].tolist() == [verdicts.codes[at] == 0 for at in pool]
        return [str(verdicts.texts[verdicts.codes[at]]) for at in pool]

    assert says() == says() == ["None", "None"]
    assert asked == ["a", "b"]
    pool.replace(1, replace(one("b"), ready=False))
    assert says() == ["None", "not ready"]
    assert asked == ["a", "b", "b"]
    for number in range(20):  # more than there was room for
        pool.insert([replace(one(f"n{number}"), ready=False)])
    assert says() == ["None", *["not ready"] * 21]
    pool.remove(0)
    assert says() == ["not ready"] * 21
    assert not pool.verdicts("ready", judge).passes[0]


def test_who_passed_a_stricter_rule_is_not_asked_again() -> None:
    pool = pool_of(one("a"), replace(one("b"), ready=False))
    strict = pool.verdicts("strict", lambda home: None if home.ready else "not ready")
    asked: list[str] = []
    lenient = pool.verdicts("lenient", lambda home: asked.append(home.name), strict)
    assert lenient.passes[:2].tolist() == [True, True]
    assert asked == ["b"]


def test_verdicts_that_somebody_keeps_stay_true_however_many_others_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECENT_VERDICTS", 1)
    pool = pool_of(one("a"))
    kept = pool.verdicts("kept", lambda home: None if home.ready else "not ready")
    pool.verdicts("another", lambda home: None)
    pool.replace(0, replace(one("a"), ready=False))
    assert not kept.passes[0]


def test_a_pool_of_nodes_without_cards_holds_plain_resources() -> None:
    pool = pool_of(node("a", allocatable={"cpu": 1_000}), node("b"))
    pool.charge_node(0, (("cpu", 400),), 1)
    assert pool.plain[0, :2].tolist() == [600, UNLIMITED]
    assert pool.cards(0) == []
    assert pool.usage.dtype == np.int64
    assert pool.usage[:2].tolist() == [0, 0]


def test_a_node_without_cards_may_change() -> None:
    pool = pool_of(replace(node("a"), allocatable={"cpu": 8_000}))
    pool.charge_node(0, [("cpu", 3_000)], 1)
    pool.replace(0, replace(node("a"), allocatable={"cpu": 4_000}, labels={"zone": "b"}))
    assert pool.plain[0, 0] == 1_000


def test_figures_follow_the_nodes_while_somebody_keeps_them() -> None:
    pool = pool_of(replace(one("a"), labels={"size": "3"}))
    figures = pool.figures(lambda node: int(node.labels.get("size", 1)))
    pool.insert([one(f"n{number}") for number in range(20)])
    pool.replace(0, replace(one("a"), labels={"size": "5"}))
    assert figures.values[: pool.size].tolist() == [5, *[1] * 20]
    pool.remove(4)
    assert figures.values[4] == 0
