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
from subak.snapshot.scores import NEVER, Evaluator, Scores, Where
from tests.support.cards import cards_of, claim, node

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
        self.asked: list[list[str]] = []
        self.one_by_one = True
        self.rules_out: Callable[[Pool], bool] = lambda pool: False

    def __call__(self, pool: Pool, request: Request) -> Evaluator | None:
        self.prepared.append((request, pool))
        if self.rules_out(pool):
            return None

        def evaluate(at: Where) -> Column:
            positions = range(pool.size)[at] if isinstance(at, slice) else at.tolist()
            self.asked.append([pool.nodes[each].name for each in positions])
            shares: Column = pool.taken[0][at]
            return shares

        return Evaluator(evaluate, self.one_by_one)


def read(scores: Scores, scorer: Scorer, *pools: Pool, request: Request = SHAPE) -> list[list[int]]:
    """The scores of the nodes by name; what no node has a place for is NEVER."""
    found = []
    for row in scores.rows(request, list(pools), scorer):
        values = row.refresh()
        assert (values[row.pool.size :] == NEVER).all()
        found.append([int(values[at]) for at in sorted(row.pool, key=lambda at: row.pool.nodes[at].name)])
    return found


def test_the_first_look_scores_every_node_and_the_second_none() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b", "c")
    assert read(scores, scorer, pool) == [[0, 0, 0]]
    assert read(scores, scorer, pool) == [[0, 0, 0]]
    assert scorer.asked == [["a", "b", "c"]]


def test_only_nodes_whose_use_changed_are_scored_again_each_once() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b", "c")
    read(scores, scorer, pool)
    scorer.asked.clear()
    for name in "cac":
        used(pool, name)
    assert read(scores, scorer, pool) == [[1, 0, 2]]
    assert scorer.asked == [["c", "a"]]
    assert read(scores, scorer, pool) == [[1, 0, 2]]
    assert len(scorer.asked) == 1
    used(pool, "b")
    assert read(scores, scorer, pool) == [[1, 1, 2]]
    assert scorer.asked[1:] == [["b"]]


def test_a_node_that_changed_is_looked_at_as_such() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    read(scores, scorer, pool)
    scorer.asked.clear()
    pool.replace(1, one("b"))
    read(scores, scorer, pool)
    assert scorer.asked[0] == ["b"]
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
    assert scorer.asked == [["a", "b"]]


def test_equal_requests_are_one_shape() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    read(scores, scorer, pool, request=shape(5))
    read(scores, scorer, pool, request=shape(5))
    assert len(scorer.prepared) == 1


def test_a_node_that_comes_or_goes_is_scored_and_the_others_are_left() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "c")
    used(pool, "c")
    assert read(scores, scorer, pool) == [[0, 1]]
    scorer.asked.clear()
    pool.insert([one("b")])
    assert read(scores, scorer, pool) == [[0, 0, 1]]
    pool.remove(0)
    assert read(scores, scorer, pool) == [[0, 1]]
    assert scorer.asked == [["b"], [""]]
    for number in range(20):  # more than there was room for
        pool.insert([one(f"d{number:02d}")])
    assert read(scores, scorer, pool) == [[0, 1, *[0] * 20]]
    assert len(scorer.prepared) == 1


def test_a_cheap_shape_that_comes_rarely_scores_all_nodes_at_once() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of(*(f"n{number}" for number in range(9)))
    scorer.one_by_one = False
    read(scores, scorer, pool)
    scorer.asked.clear()
    used(pool, "n3")
    read(scores, scorer, pool)
    assert scorer.asked == [["n3"]]
    for name in ("n3", "n3"):  # how many different ones is not counted first
        used(pool, name)
    assert read(scores, scorer, pool) == [[0, 0, 0, 3, 0, 0, 0, 0, 0]]
    assert len(scorer.asked[1]) == 9


def test_everything_is_scored_once_more_when_a_log_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "LONGEST_LOG", 4)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    read(scores, scorer, pool)
    for name in "aab":
        used(pool, name)
    assert pool.log == []
    assert read(scores, scorer, pool) == [[2, 1]]
    used(pool, "a")
    assert read(scores, scorer, pool) == [[3, 1]]
    assert len(scorer.prepared) == 1


def test_a_pool_that_is_ruled_out_has_no_row() -> None:
    scores, scorer = Scores(), Scorer()
    small, large = pool_of("a"), pool_of("b", count=2)
    scorer.rules_out = lambda pool: len(pool.make) < 2
    assert read(scores, scorer, small, large) == [[0]]
    read(scores, scorer, small, large)
    assert len(scorer.prepared) == 2


def test_what_a_reader_strikes_out_stays_out_until_the_node_changes() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    (row,) = scores.rows(SHAPE, [pool], scorer)
    row.refresh()[0] = -1
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


def test_rows_are_forgotten_when_they_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 16)
    scores, scorer, pool = Scores(), Scorer(), pool_of("a", "b")
    for number in (1, 2, 3):  # room for eight nodes each
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


def test_the_rows_of_a_pool_that_is_no_more_are_dropped_and_others_stay() -> None:
    scores, scorer = Scores(), Scorer()
    one_pool, other = pool_of("a"), pool_of("b", count=2)
    read(scores, scorer, one_pool, other)
    scores.forget(one_pool)
    read(scores, scorer, one_pool, other)
    assert [pool for _, pool in scorer.prepared] == [one_pool, other, one_pool]


def test_scores_are_whole_numbers_of_64_bits() -> None:
    scores, scorer, pool = Scores(), Scorer(), pool_of("a")
    (row,) = scores.rows(SHAPE, [pool], scorer)
    assert row.scores.dtype == np.int64
