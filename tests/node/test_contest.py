"""Another writer that insists is given way to, for longer each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subak.node.contest import FIRST_PAUSE, LONGEST_PAUSE, MOST, WITHIN, Contest


def test_a_few_times_are_an_accident() -> None:
    contest = Contest()
    assert not any(contest.put_back("a", float(second)) for second in range(MOST - 1))
    assert contest.left_alone(MOST) == frozenset()


def test_one_that_insists_is_left_alone_for_a_while_and_then_for_longer() -> None:
    contest, now = Contest(), 0.0
    for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE):
        assert [contest.put_back("a", now) for _ in range(MOST)][-1]
        assert contest.left_alone(now + pause - 1) == {"a"}
        assert contest.left_alone(now + pause) == frozenset()
        assert contest.next_try(now) == now + pause
        now += pause


def test_rarely_is_not_too_often() -> None:
    contest = Contest()
    assert not any(contest.put_back("a", number * WITHIN) for number in range(100))


@given(st.lists(st.floats(0, 30), min_size=20, max_size=200))
def test_however_often_somebody_writes_each_round_takes_longer(gaps: list[float]) -> None:
    contest, now, rounds = Contest(), 0.0, 0
    for gap in gaps:
        now += gap
        if "a" not in contest.left_alone(now):
            rounds += contest.put_back("a", now)
    assert now >= sum(min(FIRST_PAUSE * 2**each, LONGEST_PAUSE) for each in range(rounds - 1))
