"""Transactions: what is rolled back has never happened, what is committed might as well have been done directly."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.model.request import Request
from subak.policy.columns import prepare
from subak.policy.decider import Decider
from subak.policy.place import place
from subak.snapshot import pool as pool_module
from subak.snapshot import scores as scores_module
from subak.snapshot.cluster import Overcommitted, Snapshot
from subak.snapshot.pool import Pool
from subak.snapshot.scores import NEVER, Row
from tests.support.cards import cards_of, claim, node, placed, share
from tests.support.fuzz import histories
from tests.support.world import INTERPRETER, KINDS, make, pods


def held(snapshot: Snapshot) -> list[int]:
    """MiB that are taken of each card of node `a`."""
    return [each.memory_used >> 20 for each in snapshot.cards("a")]


def two_cards() -> Snapshot:
    return Snapshot([node("a", *cards_of("a"))])


def test_a_block_without_commit_leaves_no_trace() -> None:
    snapshot = two_cards()
    snapshot.assume("default/old", placed("a", share("a-0", 16_000)))
    with snapshot.transaction():
        snapshot.forget("default/old")
        snapshot.assume("default/new", placed("a", share("a-0", 9_000), share("a-1", 9_000)))
        assert held(snapshot) == [9_000, 9_000]
    assert held(snapshot) == [16_000, 0]
    assert list(snapshot.bookings) == ["default/old"]
    assert (snapshot.freed, snapshot.relieved) == ({}, {})


def test_commit_keeps_everything_and_wakes_those_who_wait() -> None:
    snapshot = two_cards()
    snapshot.assume("default/old", placed("a", share("a-0", 16_000)))
    with snapshot.transaction() as trial:
        snapshot.forget("default/old")
        snapshot.assume("team/new", placed("a", share("a-0", 9_000)))
        trial.commit()
    assert held(snapshot) == [9_000, 0]
    assert (list(snapshot.freed), list(snapshot.relieved)) == (["a"], ["default"])


def test_an_error_rolls_back() -> None:
    snapshot = two_cards()
    with suppress(Overcommitted), snapshot.transaction():
        snapshot.assume("default/p", placed("a", share("a-0", 9_000)))
        snapshot.assume("default/q", placed("a", share("a-0", 9_000)))
    assert held(snapshot) == [0, 0]


def test_a_node_struck_out_in_a_transaction_is_asked_again_after_it() -> None:
    """The columns let the small node pass, since each container fits there alone; only a full try says no."""
    snapshot = Snapshot([node("large", *cards_of("large", 1, mib=32_000)), node("small", *cards_of("small", 1))])
    request = Request((claim(10_000), claim(10_000, container=1)))
    before = place(snapshot, request)
    (row,) = snapshot.scores.rows(request, snapshot.pools, prepare)
    scores = row.scores.tolist()
    assert NEVER not in scores[:2]
    with snapshot.transaction():
        snapshot.assume("default/p", placed("large", share("large-0", 20_000)))
        assert place(snapshot, request) is None
        assert row.scores.tolist()[:2] == [NEVER, NEVER]
    assert row.scores.tolist() == scores
    assert place(snapshot, request) == before


def test_what_an_inner_transaction_commits_the_outer_one_can_roll_back() -> None:
    snapshot = two_cards()
    with snapshot.transaction():
        with snapshot.transaction() as inner:
            snapshot.assume("default/p", placed("a", share("a-0", 1_000)))
            inner.commit()
        with snapshot.transaction():
            snapshot.assume("default/q", placed("a", share("a-1", 1_000)))
        assert held(snapshot) == [1_000, 0]
    assert held(snapshot) == [0, 0]


def test_nodes_do_not_change_within_a_transaction() -> None:
    snapshot = two_cards()
    with snapshot.transaction():
        with pytest.raises(RuntimeError, match="nodes cannot change within a transaction"):
            snapshot.put([node("b", *cards_of("b"))])
        with pytest.raises(RuntimeError, match="nodes cannot change within a transaction"):
            snapshot.remove("a")
    snapshot.put([node("b", *cards_of("b"))])
    assert len(snapshot) == 2


# The property: a history with transactions is the same history without those that were rolled back.


@dataclass(frozen=True)
class Come:
    """A pod comes, and is booked if it fits."""

    pod: manifest.Pod


@dataclass(frozen=True)
class Look:
    """Somebody asks where a pod would go, and why not elsewhere."""

    pod: manifest.Pod


@dataclass(frozen=True)
class Go:
    """One of the pods leaves."""

    which: int


@dataclass(frozen=True)
class Again:
    """A pod is found to hold what another one holds, whether or not there is room."""

    which: int
    other: int


@dataclass(frozen=True)
class Nodes:
    """All nodes are described anew; outside of transactions only."""


@dataclass(frozen=True)
class Trial:
    """A transaction."""

    steps: Sequence[Any]
    commits: bool


plain_steps = st.one_of(
    st.builds(Come, pods()),
    st.builds(Come, pods()),
    st.builds(Look, pods()),
    st.builds(Go, st.integers(0, 20)),
    st.builds(Again, st.integers(0, 20), st.integers(0, 20)),
)
trials = st.recursive(
    st.builds(Trial, st.lists(plain_steps, max_size=6), st.booleans()),
    lambda inner: st.builds(Trial, st.lists(plain_steps | inner, max_size=6), st.booleans()),
    max_leaves=4,
)
steps = st.lists(plain_steps | trials | st.builds(Nodes), min_size=4, max_size=14)


class World:
    """A cluster to which the steps happen; one that is `careful` leaves out what would be rolled back."""

    def __init__(self, kinds: Sequence[int], careful: bool) -> None:
        self.nodes = [make(kind, f"node-{number}") for number, kind in enumerate(kinds)]
        self.decider = Decider(INTERPRETER, self.nodes)
        self.careful = careful
        self.decided: list[Any] = []

    def run(self, steps: Sequence[Any]) -> None:
        for step in steps:
            if isinstance(step, Trial):
                self.try_out(step)
            else:
                self.decided.append(self.do(step))

    def try_out(self, trial: Trial) -> None:
        if self.careful:
            if trial.commits:
                self.run(trial.steps)
            return
        decided = list(self.decided)
        with self.decider.snapshot.transaction() as transaction:
            self.run(trial.steps)
            if trial.commits:
                transaction.commit()
        if not trial.commits:
            self.decided = decided

    def do(self, step: Any) -> object:
        """The answer, if the step asks for one."""
        snapshot = self.decider.snapshot
        keys = sorted(snapshot.bookings)
        match step:
            case Come(pod) | Look(pod):
                return self.ask(pod, book=isinstance(step, Come))
            case Go(which) if keys:
                return snapshot.forget(keys[which % len(keys)])
            case Again(which, other) if keys:
                booking = snapshot.bookings[keys[other % len(keys)]]
                return snapshot.restore(keys[which % len(keys)], booking.placement, booking.resources)
            case Nodes():
                snapshot.put(self.nodes)
        return None

    def ask(self, pod: manifest.Pod, book: bool) -> object:
        number = len(self.decided)
        metadata = msgspec.structs.replace(pod.metadata, name=f"pod-{number}", namespace=("a", "b")[number % 2])
        try:
            complete = INTERPRETER.admit(msgspec.structs.replace(pod, metadata=metadata))
            request = INTERPRETER.request(complete)
        except Refusal:
            return None
        answer = self.decider.decide(complete.namespace, request)
        if not book:
            return answer, self.decider.explain(complete)
        if isinstance(answer, Placement):
            self.decider.assume(complete.key, complete, request, answer)
        return answer


def entries(pool: Pool) -> dict[str, object]:
    """All that a pool holds."""
    columns = {name: getattr(pool, name).tolist() for name in ("state", "taken", "usage", "plain", "totals", "order")}
    logged = {"log": pool.log, "generation": pool.generation}
    return {**columns, **logged, "tenants": pool.tenants, "resources": pool.resources, "nodes": pool.nodes}


def score_rows(snapshot: Snapshot) -> dict[object, tuple[Row, int]]:
    """All rows by shape and number of the pool, and those that shapes share."""
    number = {pool: at for at, pool in enumerate(snapshot.pools)}
    rows: dict[object, tuple[Row, int]] = {
        (request, number[pool]): (row, pool.room)
        for request, by_pool in snapshot.scores._rows.items()
        for pool, row in by_pool.items()
        if row is not None
    }
    return {**rows, **{(key, number[pool]): (row, pool.room) for pool in number for key, row in pool.shared.items()}}


def figures(row: Row, room: int) -> tuple[Any, int, int]:
    """What a row says; how long its array is does not matter."""
    missing = [(0, 0)] * (row.scores.ndim - 1) + [(0, room - row.scores.shape[-1])]
    padded = np.pad(row.scores, missing, constant_values=NEVER)
    return padded.tolist(), row.seen, row.generation


def assert_same(one: Snapshot, other: Snapshot) -> None:
    for mine, theirs in zip(one.pools, other.pools, strict=True):
        assert entries(mine) == entries(theirs)
    for name in ("version", "bookings", "used", "freed", "relieved"):
        assert getattr(one, name) == getattr(other, name), name
    assert list(one.freed) == list(other.freed)
    rows, expected = score_rows(one), score_rows(other)
    assert rows.keys() >= expected.keys()
    for key, row in rows.items():
        if key in expected:
            assert figures(*row) == figures(*expected[key])
        else:  # made in a transaction that was rolled back: kept, but never read
            assert (row[0].seen, row[0].generation) == (0, -1)


@histories(ci=500)
@given(
    kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=4),
    history=steps,
    later=st.lists(plain_steps, max_size=5),
    longest_log=st.sampled_from([3, 10, 1 << 20]),
    many=st.sampled_from([0, 8]),
)
def test_a_history_with_transactions_is_the_same_without_those_rolled_back(
    kinds: list[int], history: list[Any], later: list[Any], longest_log: int, many: int
) -> None:
    with (
        patch.object(pool_module, "LONGEST_LOG", longest_log),
        patch.object(scores_module, "MANY", many),
    ):
        tried, careful = World(kinds, careful=False), World(kinds, careful=True)
        for world in (tried, careful):
            world.run(history)
        assert tried.decided == careful.decided
        assert_same(tried.decider.snapshot, careful.decider.snapshot)
        for world in (tried, careful):
            world.run(later)
        assert tried.decided == careful.decided
        assert_same(tried.decider.snapshot, careful.decider.snapshot)
