"""Who waits and whose share does not hold, decided from who works."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.isolation import DEFAULT, DISABLE, FORCE, HIGH, USUAL
from subak.node.monitor.words import Party, Word, Work, decide

CARD = "GPU-a"
NONE, SOME, UNKNOWN = Work.NONE, Work.SOME, Work.UNKNOWN


def on_card(*parties: tuple[Work, int, str]) -> list[Word]:
    """The words of tenants that share one card."""
    there = [Party(n, {CARD: work}, priority, policy) for n, (work, priority, policy) in enumerate(parties)]
    decided = decide(there)
    return [decided[n][CARD] for n in range(len(parties))]


def test_a_share_is_lifted_while_nobody_else_works_on_the_card() -> None:
    assert on_card((SOME, USUAL, DEFAULT)) == [Word.LIFTED]
    assert on_card((SOME, USUAL, DEFAULT), (NONE, USUAL, DEFAULT)) == [Word.LIFTED, Word.NOTHING]
    assert on_card((SOME, USUAL, DEFAULT), (SOME, USUAL, DEFAULT)) == [Word.NOTHING, Word.NOTHING]


def test_a_share_is_never_lifted_where_the_policy_forbids_it() -> None:
    assert on_card((SOME, USUAL, FORCE)) == [Word.NOTHING]
    assert on_card((SOME, USUAL, DISABLE)) == [Word.NOTHING]


def test_those_of_low_priority_wait_while_one_of_high_priority_works() -> None:
    words = on_card((SOME, HIGH, FORCE), (SOME, USUAL, FORCE), (NONE, USUAL, DEFAULT), (UNKNOWN, 2, DEFAULT))
    assert words == [Word.NOTHING, Word.BLOCKED, Word.BLOCKED, Word.BLOCKED]
    assert on_card((NONE, HIGH, FORCE), (SOME, USUAL, FORCE)) == [Word.NOTHING, Word.NOTHING]


def test_who_waits_does_not_keep_the_share_of_the_more_important_one_in_force() -> None:
    assert on_card((SOME, HIGH, DEFAULT), (SOME, USUAL, DEFAULT)) == [Word.LIFTED, Word.BLOCKED]
    assert on_card((SOME, HIGH, DEFAULT), (SOME, HIGH, DEFAULT)) == [Word.NOTHING, Word.NOTHING]


def test_whoever_may_be_at_work_unseen_keeps_shares_in_force_and_blocks_nobody() -> None:
    assert on_card((SOME, USUAL, DEFAULT), (UNKNOWN, HIGH, DEFAULT))[0] is Word.NOTHING
    assert on_card((SOME, USUAL, DEFAULT), (UNKNOWN, 2, DEFAULT)) == [Word.NOTHING, Word.BLOCKED]


def test_cards_are_judged_one_by_one() -> None:
    wide = Party("wide", {"GPU-a": SOME, "GPU-b": SOME})
    important = Party("important", {"GPU-b": SOME, "GPU-c": NONE}, HIGH)
    assert decide([wide, important]) == {
        "wide": {"GPU-a": Word.LIFTED, "GPU-b": Word.BLOCKED},
        "important": {"GPU-b": Word.LIFTED, "GPU-c": Word.LIFTED},
    }


def test_nobody_is_nobody() -> None:
    assert decide(list[Party[str]]()) == {}


parties = st.lists(
    st.builds(
        lambda work, priority, policy: (work, priority, policy),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from(Work), max_size=3),
        st.integers(0, 2),
        st.sampled_from([DEFAULT, FORCE, DISABLE]),
    ),
    max_size=6,
)


@given(parties)
def test_what_always_holds(drawn: list[tuple[dict[str, Work], int, str]]) -> None:
    """Whoever is most important of those at work goes on, and two that can use a card at once are both held."""
    everybody = [Party(n, *each) for n, each in enumerate(drawn)]
    words = decide(everybody)
    for card in "abc":
        there = [each for each in everybody if card in each.work]
        working = [each for each in there if each.work[card] is SOME]
        if working:
            top = min(each.priority for each in working)
            assert all(words[each.name][card] is not Word.BLOCKED for each in working if each.priority == top)
            assert all(words[each.name][card] is Word.BLOCKED for each in there if each.priority > top)
        else:
            assert all(words[each.name][card] is not Word.BLOCKED for each in there)
        able = [each for each in there if each.work[card] is not NONE and words[each.name][card] is not Word.BLOCKED]
        if len(able) > 1:
            assert all(words[each.name][card] is Word.NOTHING for each in able)
        assert all(each.policy == DEFAULT for each in there if words[each.name][card] is Word.LIFTED)


@given(parties, st.permutations(range(6)))
def test_the_order_of_tenants_does_not_matter(drawn: list[tuple[dict[str, Work], int, str]], order: list[int]) -> None:
    everybody = [Party(n, *each) for n, each in enumerate(drawn)]
    shuffled = [everybody[n] for n in order if n < len(everybody)]
    assert decide(everybody) == decide(shuffled)
