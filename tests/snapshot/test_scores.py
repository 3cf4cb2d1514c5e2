"""Scores remembered per shape: only what changed is scored again, and nothing stale is ever read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from subak.model.node import Node
from subak.model.placement import Charge
from subak.model.request import Request
from subak.snapshot import pool as pool_module
from subak.snapshot import scores as module
from subak.snapshot.pool import Column, Pool, make_of
from subak.snapshot.scores import Evaluate, Positions, Scores
from tests.snapshot import cards_of, claim, node

SHAPE = Request((claim(1),))


def one(name: str, count: int = 1) -> Node:
    return node(name, *cards_of(name, count))


def shape(number: int) -> Request:
    return Request((claim(number),))


def pool_of(*names: str, count: int = 1) -> Pool:
    nodes = [one(name, count) for name in names]
    pool = Pool(make_of(nodes[0]))
    pool.insert(nodes)
    return pool


def used(pool: Pool, name: str) -> None:
    at = pool.position(name)
    assert at is not None
    pool.charge(at, 0, f"default/p{len(pool.tenants[at][0])}", Charge(1, 1), 1)
    pool.charge_node(at, (), 1)


class Scorer:
    """Scores a node by the shares it has given out, and writes down what it was asked."""

    def __init__(self) -> None:
        self.prepared: list[tuple[Request, Pool]] = []
        self.asked: list[tuple[list[str], bool]] = []
        self.rules_out: Callable[[Pool], bool] = lambda pool: False

    def __call__(self, pool: Pool, request: Request) -> Evaluate | None:
        self.prepared.append((request, pool))
        if self.rules_out(pool):
            return None

        def evaluate(at: Positions, changed: bool) -> Column:
            self.asked.append(([pool.names[each] for each in at.tolist()], changed))
            shares: Column = pool.taken[at, 0]
            return shares

        return evaluate


def read(scores: Scores, scorer: Scorer, *pools: Pool, request: Request = SHAPE) -> list[list[int]]:
    return [row.refresh().tolist() for row in scores.rows(request, list(pools), scorer)]


def test_the_first_look_scores_every_node_and_the_second_none() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b", "c")
    assert read(scores, scorer, pool) == [[0, 0, 0]]
    assert read(scores, scorer, pool) == [[0, 0, 0]]
    assert scorer.asked == [(["a", "b", "c"], False)]


def test_only_nodes_whose_use_changed_are_scored_again_each_once() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b", "c")
    read(scores, scorer, pool)
    scorer.asked.clear()
    for name in "cac":
        used(pool, name)
    assert read(scores, scorer, pool) == [[1, 0, 2]]
    assert scorer.asked == [(["c", "a"], False)]
    assert read(scores, scorer, pool) == [[1, 0, 2]]
    assert len(scorer.asked) == 1
    used(pool, "b")
    assert read(scores, scorer, pool) == [[1, 1, 2]]
    assert scorer.asked[1:] == [(["b"], False)]


def test_a_node_that_changed_is_looked_at_as_such() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    read(scores, scorer, pool)
    scorer.asked.clear()
    pool.replace(1, one("b"))
    read(scores, scorer, pool)
    assert scorer.asked[0] == (["b"], True)
    scorer.asked.clear()
    read(scores, scorer, pool)
    assert scorer.asked == []


def test_every_shape_is_told_of_every_change() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    for number in (1, 2):
        read(scores, scorer, pool, request=shape(number))
    used(pool, "a")
    assert read(scores, scorer, pool, request=shape(1)) == [[1, 0]]
    used(pool, "b")
    scorer.asked.clear()
    assert read(scores, scorer, pool, request=shape(2)) == [[1, 1]]
    assert scorer.asked == [(["a", "b"], False)]


def test_equal_requests_are_one_shape() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    read(scores, scorer, pool, request=shape(5))
    read(scores, scorer, pool, request=shape(5))
    assert len(scorer.prepared) == 1


def test_rows_are_made_anew_when_a_pool_gets_other_nodes() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "c")
    used(pool, "c")
    assert read(scores, scorer, pool) == [[0, 1]]
    pool.insert([one("b")])
    assert read(scores, scorer, pool) == [[0, 0, 1]]
    pool.remove(0)
    assert read(scores, scorer, pool) == [[0, 1]]
    assert len(scorer.prepared) == 3


def test_rows_are_made_anew_when_a_log_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "LONGEST_LOG", 2)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    read(scores, scorer, pool)
    for name in "aab":
        used(pool, name)
    assert pool.log == []
    assert read(scores, scorer, pool) == [[2, 1]]
    used(pool, "a")
    assert read(scores, scorer, pool) == [[3, 1]]
    assert len(scorer.prepared) == 2


def test_a_pool_that_is_ruled_out_has_no_row_until_it_changes() -> None:
    scores, scorer = Scores(), Scorer()
    small, large = pool_of("a"), pool_of("b", count=2)
    scorer.rules_out = lambda pool: len(pool.make) < 2
    assert read(scores, scorer, small, large) == [[0]]
    read(scores, scorer, small, large)
    assert len(scorer.prepared) == 2
    scorer.rules_out = lambda pool: False
    small.insert([one("c")])
    assert read(scores, scorer, small, large) == [[0, 0], [0]]


def test_what_a_reader_strikes_out_stays_out_until_the_node_changes() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    (row,) = scores.rows(SHAPE, [pool], scorer)
    row.scores[0] = -1
    assert read(scores, scorer, pool) == [[-1, 0]]
    used(pool, "b")
    assert read(scores, scorer, pool) == [[-1, 1]]
    used(pool, "a")
    assert read(scores, scorer, pool) == [[1, 1]]


def prepared(scorer: Scorer) -> list[int]:
    numbers = [request.claims[0].memory_bytes >> 20 for request, _ in scorer.prepared]
    scorer.prepared.clear()
    return numbers


def test_the_shape_that_was_used_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SHAPES", 3)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    for number in (1, 2, 3, 1, 4):  # 2 is the oldest when 4 comes
        read(scores, scorer, pool, request=shape(number))
    assert prepared(scorer) == [1, 2, 3, 4]
    for number in (1, 3, 4):
        read(scores, scorer, pool, request=shape(number))
    assert prepared(scorer) == []
    read(scores, scorer, pool, request=shape(2))
    assert prepared(scorer) == [2]
    read(scores, scorer, pool, request=shape(1))
    assert prepared(scorer) == [1]


def test_a_shape_whose_rows_were_made_anew_counts_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SHAPES", 2)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    for number in (1, 2):
        read(scores, scorer, pool, request=shape(number))
    pool.insert([one("b")])
    read(scores, scorer, pool, request=shape(1))
    read(scores, scorer, pool, request=shape(3))
    prepared(scorer)
    read(scores, scorer, pool, request=shape(1))
    assert prepared(scorer) == []


def test_rows_are_forgotten_when_they_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 5)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    for number in (1, 2, 3):  # two cells each
        read(scores, scorer, pool, request=shape(number))
    prepared(scorer)
    for number in (2, 3):
        read(scores, scorer, pool, request=shape(number))
    assert prepared(scorer) == []
    read(scores, scorer, pool, request=shape(1))
    assert prepared(scorer) == [1]


def test_the_shape_just_asked_for_is_kept_however_large_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 1)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    for number in (1, 1, 2, 2, 1):  # each takes too much, so that only one is kept at a time
        read(scores, scorer, pool, request=shape(number))
    assert prepared(scorer) == [1, 2, 1]


def test_rows_made_anew_do_not_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 8)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    for name in "bc":
        pool.insert([one(name)])
        for number in (1, 2):
            read(scores, scorer, pool, request=shape(number))
    prepared(scorer)
    for number in (1, 2):
        read(scores, scorer, pool, request=shape(number))
    assert prepared(scorer) == []


def test_forgetting_drops_everything() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    read(scores, scorer, pool)
    scores.forget()
    read(scores, scorer, pool)
    assert len(scorer.prepared) == 2


def test_forgotten_rows_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 4)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    for number in (1, 2):
        read(scores, scorer, pool, request=shape(number))
    scores.forget()
    for number in (3, 4):
        read(scores, scorer, pool, request=shape(number))
    prepared(scorer)
    for number in (3, 4):
        read(scores, scorer, pool, request=shape(number))
    assert prepared(scorer) == []


def test_scores_are_whole_numbers_of_64_bits() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    (row,) = scores.rows(SHAPE, [pool], scorer)
    assert row.scores.dtype == np.int64
