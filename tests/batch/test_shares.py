"""What queues deserve: Volcano's water-filling, and what must hold of it whatever the numbers are."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from subak.batch.amounts import Amounts, add, fits
from subak.batch.shares import deserved, guarantees, most, satisfied, share
from subak.batch.world import Queue
from tests.support.fuzz import examples

NAMES = ("cpu", "memory", "nvidia/memory")


def queue(name: str, weight: int = 1, asked: Amounts | None = None, **facts: Any) -> Queue:
    return Queue(name, weight=weight, asked=dict(asked or {}), **facts)


def shared(total: Amounts, *queues: Queue) -> dict[str, dict[str, float]]:
    return deserved(queues, total, guarantees(queues))


@pytest.mark.parametrize(
    ("total", "queues", "expected"),
    [
        pytest.param({"cpu": 8}, [queue("a", 3, {"cpu": 9}), queue("b", 1, {"cpu": 9})], {"a": 6, "b": 2}, id="K10"),
        pytest.param({"cpu": 8}, [queue("q", 1, {"cpu": 2})], {"q": 2}, id="K15"),
        pytest.param({"cpu": 8}, [queue("a", 3, {"cpu": 1}), queue("b", 1, {"cpu": 9})], {"a": 1, "b": 7}, id="rest"),
        pytest.param(
            {"cpu": 8}, [queue("a", 1, {"cpu": 9}, capability={"cpu": 2}), queue("b", 1, {"cpu": 9})], {"a": 2, "b": 6},
            id="capability",
        ),
        pytest.param(
            {"cpu": 8}, [queue("a", 1, {"cpu": 1}, guarantee={"cpu": 4}), queue("b", 1, {"cpu": 9})], {"a": 4, "b": 4},
            id="guarantee",
        ),
        pytest.param({"cpu": 8}, [queue("a", 1, {"memory": 9})], {"a": 0}, id="nothing of it"),
    ],
)  # fmt: skip
def test_water_filling(total: Amounts, queues: list[Queue], expected: Amounts) -> None:
    found = shared(total, *queues)
    assert {name: amounts.get("cpu", 0) for name, amounts in found.items()} == pytest.approx(expected)


def test_k13_a_queue_that_holds_everything_is_overused() -> None:
    total = {"cpu": 3, "memory": 3}
    first = queue("q1", 1, {"cpu": 3, "memory": 3}, held={"cpu": 3, "memory": 3})
    found = shared(total, first, queue("q2", 1, {"cpu": 1, "memory": 1}))
    assert found == {"q1": {"cpu": 2, "memory": 2}, "q2": {"cpu": 1, "memory": 1}}
    assert share(first.held, found["q1"]) == 1.5
    assert satisfied(first.held, found["q1"])


def test_a_queue_is_satisfied_only_when_it_has_all_of_every_resource() -> None:
    assert not satisfied({"cpu": 2}, {"cpu": 2, "memory": 1})
    assert satisfied({"cpu": 2, "memory": 1}, {"cpu": 2, "memory": 1})


def test_who_deserves_nothing_and_has_something_has_a_whole_share() -> None:
    assert share({"cpu": 1}, {}) == 1
    assert share({}, {}) == 0


def test_guarantees_of_others_are_out_of_reach() -> None:
    mine, other = queue("a", guarantee={"cpu": 1}), queue("b", guarantee={"cpu": 4})
    assert most(mine, {"cpu": 8}, guarantees([mine, other])) == {"cpu": 4}


amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 1 << 44), max_size=3)


@st.composite
def several(draw: st.DrawFn, guaranteed: bool = True) -> list[Queue]:
    weights = draw(st.lists(st.integers(1, 65_535), min_size=1, max_size=5))
    return [
        queue(
            f"q{i}",
            weight,
            draw(amounts),
            capability=draw(amounts) if draw(st.booleans()) else {},
            guarantee=draw(amounts) if guaranteed and draw(st.booleans()) else {},
        )
        for i, weight in enumerate(weights)
    ]


@given(total=amounts, queues=several())
def test_nobody_deserves_more_than_it_asks_for_or_is_allowed_but_for_guarantees(
    total: Amounts, queues: list[Queue]
) -> None:
    for each in queues:
        limits = most(each, total, guarantees(queues))
        for name, amount in shared(total, *queues)[each.name].items():
            assert fits(amount, max(each.asked.get(name, 0), each.guarantee.get(name, 0)))
            assert fits(amount, max(limits.get(name, 0), each.guarantee.get(name, 0)))


@given(total=amounts, queues=several(guaranteed=False))
def test_together_they_deserve_no_more_than_there_is(total: Amounts, queues: list[Queue]) -> None:
    together: dict[str, float] = {}
    for found in shared(total, *queues).values():
        add(together, found)
    assert all(fits(amount, total.get(name, 0)) for name, amount in together.items())


@examples(quick=50, ci=300)
@given(total=amounts, queues=several())
def test_guarantees_are_the_only_way_beyond_the_cluster(total: Amounts, queues: list[Queue]) -> None:
    together: dict[str, float] = {}
    for found in shared(total, *queues).values():
        add(together, found)
    for name, amount in together.items():
        assert fits(amount, total.get(name, 0) + guarantees(queues).get(name, 0))


@given(total=amounts, queues=several())
def test_the_order_of_queues_does_not_matter(total: Amounts, queues: list[Queue]) -> None:
    expected = shared(total, *queues)
    for order in list(permutations(queues))[:6]:
        found = shared(total, *order)
        for name, amounts in expected.items():
            assert found[name] == pytest.approx(amounts)


@given(total=amounts, queues=several(guaranteed=False))
def test_nothing_is_left_that_somebody_wants_and_may_have(total: Amounts, queues: list[Queue]) -> None:
    """Of each resource either all is given out, or every queue has all of it that it asks for and may have."""
    found = shared(total, *queues)
    for name, amount in total.items():
        given = sum(each.get(name, 0) for each in found.values())
        for each in queues:
            wanted = min(each.asked.get(name, 0), most(each, total, {}).get(name, 0))
            assert fits(wanted, found[each.name].get(name, 0)) or fits(amount, given + 1)


@given(total=st.integers(1, 1 << 44), asked=st.lists(st.integers(0, 1 << 44), min_size=2, max_size=5), data=st.data())
def test_of_one_resource_more_weight_never_means_less(total: int, asked: list[int], data: st.DataObject) -> None:
    """Of several resources it may: who is satisfied in one round shares no more in the next."""
    weights = [data.draw(st.integers(1, 100)) for _ in asked]
    more = data.draw(st.integers(1, 100))

    def of_first(weight: int) -> float:
        queues = [queue(f"q{i}", w, {"cpu": a}) for i, (w, a) in enumerate(zip(weights, asked, strict=True))]
        queues[0].weight = weight
        return shared({"cpu": total}, *queues)["q0"].get("cpu", 0)

    assert fits(of_first(weights[0]), of_first(weights[0] + more))


@given(total=st.integers(1000, 1 << 44), weights=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_queues_that_all_want_everything_get_by_weight(total: int, weights: list[int]) -> None:
    assume(total > 0)
    found = shared({"cpu": total}, *(queue(f"q{i}", w, {"cpu": total}) for i, w in enumerate(weights)))
    for i, weight in enumerate(weights):
        assert found[f"q{i}"]["cpu"] == pytest.approx(total * weight / sum(weights))
