"""The two invariants, and that the ledger is a function of the objects, over random histories.

Each story lets other things happen to the same cluster: ids that change under a decision, pods whose record cannot be
read, pods and nodes of two vendors, pods that others bind, edit and move.  After every step no physical card is
overcommitted; in the end the core knows what a new core would know that is told everything in some other order, nobody
is lost or bound twice, and whoever waits fits nowhere.

Where a second scheduler binds too, or bindings arrive late, cards are overcommitted for a while.  Then exactly this is
repaired: nobody is evicted but from a card to which too much was bound, and in the end no such card is left.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.scheduler.messages import Bind
from tests.scheduler.history import ASKS, TWO_VENDORS, History, ledger
from tests.scheduler.rivalry import Rivalry
from tests.support.fuzz import histories

EVERYDAY = ("create", "create", "end", "finish", "see", "see", "see", "cycle", "cycle", "refuse", "repeat", "restart")

WRITERS = (
    *("create", "create", "rival", "rival", "rival", "late", "late", "land", "see", "see", "cycle", "cycle"),
    *("start", "relabel", "end", "refuse", "restart"),
)

STORIES: dict[str, tuple[str, ...]] = {
    "ids change": (*EVERYDAY, "register", "device", "rename", "volcano", "node"),
    "records cannot be read": (*EVERYDAY, "steal", "steal", "scribble", "register", "device"),
    "two vendors": (*EVERYDAY, "mthreads", "register", "device", "scribble"),
    "others write too": (*EVERYDAY, "steal", "steal", "node", "scribble", "forge", "erase", "resize"),
}

RIVALRIES: dict[str, tuple[str, ...]] = {
    "two writers": WRITERS,
    "two writers, and ids change": (*WRITERS, "register", "device", "rename", "node", "scribble"),
}

CONTESTED = (*ASKS[:2], *ASKS[:4])
"""Pods of which two rarely fit on one card, most of them such that a rival can write their record."""

Step = tuple[str, int]
numbers = st.integers(0, 30)


def steps(story: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from({**STORIES, **RIVALRIES}[story]), numbers), max_size=60)


def start(story: str) -> History:
    history = Rivalry() if story in RIVALRIES else History()
    for name in history.names:
        history.describe(name, mthreads=story == "two vendors")
    if story in RIVALRIES:
        for ask in CONTESTED:
            history.create(ask)
    return history


def happen(history: History, step: str, number: int, asks: tuple[dict[str, Any], ...]) -> None:
    name = history.names[number % len(history.names)]
    known = history.nodes[name]
    keys = sorted(history.pods)
    bound = [key for key in keys if history.pods[key].spec.node_name]
    waiting = [key for key in keys if not history.pods[key].spec.node_name]
    match step:
        case "create":
            history.create(asks[number % len(asks)], priority=number % 3)
        case "end" | "finish" if keys:
            history.end(keys[number % len(keys)], step == "finish")
        case "see":
            untold = [key for key, events in history.untold.items() if events]
            if untold:
                history.see(untold[number % len(untold)])
        case "cycle" | "refuse":
            history.cycle(refuse=step == "refuse")
        case "repeat" if bound:
            history.repeat(bound[number % len(bound)])
        case "restart":
            history.restart([number, number // 2, number // 3])
        case "register" | "device" | "volcano" | "mthreads":
            if step != "mthreads" or number % 4 == 0:
                history.describe(name, **{step: not getattr(known, step)})
        case "rename":
            history.describe(name, names=known.names + 1)
        case "resize":
            history.describe(name, size=16_000 if known.size != 16_000 else 24_000)
        case "node":
            history.describe(name, there=not known.there)
        case "steal" if waiting:
            history.steal(waiting[number % len(waiting)], ("n0", "n1", "n2")[number % 3], number % 2, number % 5 == 0)
        case "scribble" if bound:
            history.edit(bound[number % len(bound)], ("nonsense", "", "{}", None)[number % 4])
        case "forge" if bound:
            forged = ("GPU-n0-1,NVIDIA,1,0:;", "1", '{"gpu":[{"minor":0}]}')
            history.forge(bound[number % len(bound)], forged[number % 3])
        case "erase" if bound:
            history.edit(bound[number % len(bound)], None)


@pytest.mark.parametrize("story", STORIES)
@histories()
@given(data=st.data())
def test_whatever_happens_no_card_is_overcommitted_and_a_new_core_knows_the_same(
    story: str, data: st.DataObject
) -> None:
    history = start(story)
    asks = ASKS + TWO_VENDORS * 2 if story == "two vendors" else ASKS
    for step, number in data.draw(steps(story), label="steps"):
        happen(history, step, number, asks)
        assert not history.overcommitted(), f"after {step}"
    history.settle()
    assert not history.overcommitted()
    order = data.draw(st.lists(numbers, max_size=20), label="order")
    assert ledger(history.core) == ledger(history.fresh(order, waiting=False))
    assert len(history.bound) == len(set(history.bound)), "a pod was bound twice"
    waiting = {key for key, pod in history.pods.items() if not pod.spec.node_name}
    assert len(history.core) == len(waiting), "a pod was lost"
    again = history.fresh(order)
    assert not [each for each in again.cycle(history.now) if isinstance(each, Bind)], "a pod waits although it fits"


def compete(history: Rivalry, step: str, number: int) -> None:
    """What happens between two writers; all else is as ever."""
    keys = sorted(history.pods)
    waiting = [key for key in keys if not history.pods[key].spec.node_name]
    history.hold_back = step == "late"
    match step:
        case "rival" if waiting:
            history.rival(waiting[number % len(waiting)], "n0", number // 2 % 2)
        case "late":
            history.cycle()
        case "land":
            history.land(number)
        case "relabel" | "start" if keys:
            getattr(history, step)(keys[number % len(keys)], *([str(number)] if step == "relabel" else []))
        case _:
            happen(history, step, number, CONTESTED)


@pytest.mark.parametrize("story", RIVALRIES)
@histories()
@given(data=st.data())
def test_what_two_writers_overcommit_is_repaired_and_nothing_else(story: str, data: st.DataObject) -> None:
    history = start(story)
    assert isinstance(history, Rivalry)
    for step, number in data.draw(steps(story), label="steps"):
        compete(history, step, number)
    history.settle()
    assert len(history.bound) == len(set(history.bound)), "a pod was bound twice"
    waiting = {key for key, pod in history.pods.items() if not pod.spec.node_name}
    assert len(history.core) == len(waiting), "a pod was lost"
    order = data.draw(st.lists(numbers, max_size=20), label="order")
    assert ledger(history.core) == ledger(history.fresh(order, waiting=False))
    if story == "two writers":
        assert not history.persisting()
