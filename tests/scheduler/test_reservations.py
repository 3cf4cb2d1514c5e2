"""What another scheduler has recorded on its pod counts before it binds the pod, and the ledger stays true."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subak.model.device import MIB
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, NamesChanged
from subak.scheduler.record import State
from subak.scheduler.served import Served
from tests.scheduler.history import ASKS, CARD_MIB, CHOSEN_NODE, History, ledger
from tests.support.fuzz import histories

OURS, THEIRS = "subak", "hami-scheduler"
MOST_OF_A_CARD = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 12_000}
LIVES = {THEIRS: "it lives"}


def start(names: tuple[str, ...] = ("n0", "n1")) -> tuple[History, Served]:
    """A cluster beside a HAMi that lives."""
    served = Served([OURS, THEIRS])
    served.leave(LIVES)
    history = History(names, Core(serves=served), serves=served)
    for name in history.names:
        history.describe(name)
        for kind in ("node", "device"):
            history.see(f"{kind} {name}", everything=True)
    return history, served


def free(history: History, name: str = "n0") -> list[int]:
    """MiB that are free on each card of a node."""
    return [card.memory_free // MIB for card in history.core.snapshot.cards(name)]


def test_a_record_counts_before_the_binding_and_as_long_as_it_is_there() -> None:
    history, _ = start()
    key = history.create(MOST_OF_A_CARD, scheduler=THEIRS)
    history.see(f"pod {key}")
    assert free(history) == [CARD_MIB, CARD_MIB]
    history.reserve(key, "n0", 1)
    assert free(history) == [CARD_MIB, CARD_MIB - 12_000]
    assert history.core.state(key) is State.ASIDE
    history.reserve(key, "n1", 0)
    assert free(history) == [CARD_MIB, CARD_MIB], "another node was chosen"
    assert free(history, "n1") == [CARD_MIB - 12_000, CARD_MIB]
    history.follow_up(key)
    history.see(f"pod {key}")
    assert free(history, "n1") == [CARD_MIB - 12_000, CARD_MIB]
    assert history.core.state(key) is State.HELD
    history.end(key, finished=False)
    history.see(f"pod {key}")
    assert free(history, "n1") == [CARD_MIB, CARD_MIB]


def test_a_record_that_goes_or_whose_pod_goes_counts_no_more() -> None:
    history, _ = start()
    for end in (history.withdraw, lambda key: history.end(key, finished=False)):
        key = history.create(MOST_OF_A_CARD, scheduler=THEIRS)
        history.reserve(key, "n0", 0)
        assert free(history) == [CARD_MIB - 12_000, CARD_MIB]
        end(key)
        history.see(f"pod {key}")
        assert free(history) == [CARD_MIB, CARD_MIB]


def test_our_pod_goes_to_the_other_card() -> None:
    history, _ = start(("n0",))
    theirs = history.create(MOST_OF_A_CARD, scheduler=THEIRS)
    history.reserve(theirs, "n0", 0)
    for _ in range(2):
        history.create(MOST_OF_A_CARD, scheduler=OURS)
    history.settle()
    assert len(history.bound) == 1
    assert not history.overcommitted()


def test_a_pod_that_becomes_ours_is_placed_anew() -> None:
    history, served = start()
    key = history.create(MOST_OF_A_CARD, scheduler=THEIRS)
    history.reserve(key, "n0", 1)
    served.leave({})
    history.core.handle(NamesChanged())
    assert free(history) == [CARD_MIB, CARD_MIB]
    assert history.core.state(key) is State.WAITING
    history.settle()
    assert history.bound == ["u1"]


def test_a_pod_bound_by_another_scheduler_without_a_record_counts_by_its_node() -> None:
    history, _ = start()
    key = history.create({"volcano.sh/gpu-memory": 6_000}, scheduler="somebody-else")
    history.steal(key, "n0", 1, recorded=False)
    assert free(history) == [CARD_MIB - 6_000, CARD_MIB - 6_000], "on each card that it may hold"


STEPS = (
    *("ours", "theirs", "theirs", "reserve", "reserve", "withdraw", "follow up"),
    *("end", "see", "see", "cycle", "cycle", "refuse", "node", "register", "dies", "returns", "restart"),
)
numbers = st.integers(0, 30)


def happen(history: History, served: Served, step: str, number: int) -> None:
    name = history.names[number % len(history.names)]
    foreign = [key for key, pod in sorted(history.pods.items()) if pod.spec.scheduler_name == THEIRS]
    unbound = [key for key in foreign if not history.pods[key].spec.node_name]
    recorded = [key for key in unbound if CHOSEN_NODE in history.pods[key].annotations]
    lives = THEIRS in served.foreign
    match step:
        case "ours":
            history.create(ASKS[number % len(ASKS)], scheduler=OURS)
        case "theirs":
            history.create(MOST_OF_A_CARD, scheduler=THEIRS)
        case "reserve" if unbound and lives:
            history.reserve(unbound[number % len(unbound)], name, number // 2 % 2)
        case "withdraw" if recorded and lives:
            history.withdraw(recorded[number % len(recorded)])
        case "follow up" if recorded and lives:
            history.follow_up(recorded[number % len(recorded)])
        case "end" if history.pods:
            history.end(sorted(history.pods)[number % len(history.pods)], finished=number % 2 == 0)
        case "see":
            untold = [key for key, events in history.untold.items() if events]
            if untold:
                history.see(untold[number % len(untold)])
        case "cycle" | "refuse":
            history.cycle(refuse=step == "refuse")
        case "node":
            history.describe(name, there=not history.nodes[name].there)
        case "register":
            history.describe(name, register=not history.nodes[name].register)
        case "dies" if lives:
            for key in recorded:  # it will not bind them any more
                history.truth.pop(key, None)
            served.leave({})
            history.core.handle(NamesChanged())
        case "returns" if not lives:
            for key in recorded:  # what it does first with pods that wait
                history.withdraw(key)
            served.leave(LIVES)
            history.core.handle(NamesChanged())
        case "restart":
            history.restart([number, number // 2])


@histories()
@given(st.lists(st.tuples(st.sampled_from(STEPS), numbers), max_size=50), st.lists(numbers, max_size=20))
def test_beside_another_scheduler_no_card_is_overcommitted_and_a_new_core_knows_the_same(
    steps: list[tuple[str, int]], order: list[int]
) -> None:
    history, served = start()
    for step, number in steps:
        happen(history, served, step, number)
        assert not history.overcommitted(), f"after {step}"
    history.settle()
    assert not history.overcommitted()
    assert ledger(history.core) == ledger(history.fresh(order, waiting=False))
    assert len(history.bound) == len(set(history.bound)), "a pod was bound twice"
    ours = {key for key, pod in history.pods.items() if served(pod) and not pod.spec.node_name}
    assert len(history.core) == len(ours), "a pod was lost"
    again = history.fresh(order)
    assert not [each for each in again.cycle(history.now) if isinstance(each, Bind)], "a pod waits although it fits"
