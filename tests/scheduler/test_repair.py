"""Cards to which two writers bound too much: who goes, and when nobody may go."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, Evict, Instruction, NodeGone, NodeSeen, PodGone, PodSeen, Warn
from subak.scheduler.repair import AGAIN, DOUBT, SETTLE
from tests.support.scheduler import volcano_node

MEMORY = "volcano.sh/gpu-memory"


def bound(name: str, mib: int = 600, card: str | None = "0", **more: Any) -> manifest.Pod:
    """A pod that somebody has bound to a card of n1; `card=None` leaves the record out."""
    annotations = {} if card is None else {"volcano.sh/gpu-index": card}
    going = {"deletionTimestamp": "2026-01-01T00:01:00Z"} if more.get("deleted") else {}
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": more.get("since")}]
    if more.get("marked"):
        conditions.append({"type": "DisruptionTarget", "status": "True", "lastTransitionTime": None})
    content = {
        "metadata": {"name": name, "uid": more.get("uid", f"uid-{name}"), "annotations": annotations, **going},
        "spec": {
            "nodeName": "n1",
            "schedulerName": more.get("scheduler", "subak"),
            "priority": more.get("priority", 0),
            "containers": [{"name": "c", "resources": {"limits": {MEMORY: mib}}}],
        },
        "status": {"phase": more.get("phase", "Pending"), "conditions": conditions},
    }
    return msgspec.convert(content, manifest.Pod)


def waiting(name: str, mib: int = 600) -> manifest.Pod:
    pod = bound(name, mib, card=None)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


class Clock:
    """A core and its time.  It has been running for a while when a story begins; `pods` were there before it."""

    def __init__(self, *pods: manifest.Pod, cards: int = 1, mib: int = 1000) -> None:
        self.core = Core(serves=lambda pod: pod.spec.scheduler_name == "subak")
        self.now = 100.0
        for size in (2 * mib, mib):  # as if two objects described the card, one after the other
            self.core.handle(NodeSeen(volcano_node("n1", cards, size)))
        self.see(*pods)
        self.core.cycle(self.now)
        self.now += 100

    def see(self, *pods: manifest.Pod) -> None:
        for pod in pods:
            self.core.handle(PodSeen(pod))

    def resize(self, mib: int, cards: int = 1) -> None:
        self.core.handle(NodeSeen(volcano_node("n1", cards, mib)))

    def wait(self, seconds: float) -> list[Instruction]:
        """What the core says in so many seconds; it is asked when it wants to be."""
        said = self.core.cycle(self.now)
        end = self.now + seconds
        for _ in range(1000):
            due = self.core.wakes_at()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            said += self.core.cycle(self.now)
        self.now = end
        return said


def evicted(said: Iterable[Instruction]) -> list[str]:
    return [each.key.removeprefix("default/") for each in said if isinstance(each, Evict)]


def warnings(said: Iterable[Instruction]) -> list[str]:
    return [each.text for each in said if isinstance(each, Warn)]


def test_of_two_pods_bound_to_the_same_memory_one_goes_and_is_told_why() -> None:
    clock = Clock()
    clock.see(bound("a"), bound("b"))
    assert not clock.wait(SETTLE * 0.9)
    (evict,) = clock.wait(SETTLE * 0.2)
    assert evict == Evict(
        "default/b",
        "uid-b",
        "Overcommitted",
        "CardOvercommitted",
        "node n1: card n1-nvidia-0 carries 1,200 of 1,000 MiB of memory; pod default/a stays",
    )
    clock.core.handle(PodGone("default/b"))
    assert not clock.wait(2 * AGAIN)


WORTHY: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("goes anyway", {}, {"marked": True, "phase": "Running", "priority": 9}),
    ("has not started", {"phase": "Running"}, {"priority": 9}),
    ("is less important", {"priority": 1, "since": "2026-01-01T00:00:09Z"}, {"since": "2026-01-01T00:00:01Z"}),
    ("was bound later", {"since": "2026-01-01T00:00:01Z", "uid": "z"}, {"since": "2026-01-01T00:00:02Z", "uid": "y"}),
    ("has the larger uid", {"uid": "y"}, {"uid": "z"}),
)


@pytest.mark.parametrize(("why", "stays", "goes"), WORTHY, ids=[why for why, _, _ in WORTHY])
@pytest.mark.parametrize("order", [1, -1])
def test_the_pod_goes_that(why: str, stays: dict[str, Any], goes: dict[str, Any], order: int) -> None:
    clock = Clock()
    clock.see(*[bound("stays", **stays), bound("goes", **goes)][::order])
    assert evicted(clock.wait(5)) == ["goes"]


def test_as_few_go_as_needed() -> None:
    clock = Clock(cards=2)
    two = "0,1"
    clock.see(bound("big", 700, priority=3), bound("both", 600, two, priority=2), bound("small", 300, priority=1))
    assert evicted(clock.wait(5)) == ["both"], "once it goes, the less important pod has room"


def test_a_pod_whose_binding_is_under_way_is_judged_once_it_is_bound() -> None:
    clock = Clock()
    clock.see(waiting("ours"))
    (bind,) = clock.wait(0)
    assert isinstance(bind, Bind)
    clock.see(bound("theirs", uid="a", since="2026-01-01T00:00:00Z"))
    assert not evicted(clock.wait(30)), "ours may still be refused"
    ours = bound("ours", since="2026-01-01T00:00:30Z")
    annotations = {**bind.annotations}
    clock.see(msgspec.structs.replace(ours, metadata=msgspec.structs.replace(ours.metadata, annotations=annotations)))
    assert evicted(clock.wait(5)) == ["ours"]


def test_a_card_that_becomes_smaller_under_its_pods_leads_to_no_eviction() -> None:
    clock = Clock(mib=2000)
    clock.see(bound("a"), bound("b", 900))
    clock.wait(60)
    clock.resize(1000)
    said = clock.wait(60)
    assert not evicted(said)
    clock.see(bound("a", phase="Running"), bound("b", 900, phase="Running"))
    assert not evicted(clock.wait(60))


def test_a_card_that_becomes_smaller_between_decision_and_binding_leads_to_no_eviction() -> None:
    clock = Clock(mib=2000)
    clock.see(waiting("a"), waiting("b", 900))
    binds = [each for each in clock.wait(0) if isinstance(each, Bind)]
    clock.resize(1000)
    clock.wait(60)
    for each, mib in zip(binds, (600, 900), strict=True):
        pod = bound(each.key.removeprefix("default/"), mib)
        metadata = msgspec.structs.replace(pod.metadata, annotations=each.annotations)
        clock.see(msgspec.structs.replace(pod, metadata=metadata))
    said = clock.wait(60)
    assert not evicted(said)
    assert any("nobody is evicted" in text for text in warnings(said))


def test_a_binding_that_is_seen_just_after_the_card_became_smaller_may_be_older() -> None:
    clock = Clock(mib=2000)
    clock.see(bound("a"))
    clock.wait(60)
    clock.resize(1000)
    clock.wait(DOUBT / 2)
    clock.see(bound("b"))
    assert not evicted(clock.wait(60))


def test_who_comes_after_the_card_became_smaller_goes_and_the_others_stay() -> None:
    clock = Clock(mib=2000)
    clock.see(bound("a", 900), bound("b", 900))
    clock.wait(60)
    clock.resize(1000)
    clock.wait(60)
    clock.see(bound("c", 100, priority=9, phase="Running"))
    assert evicted(clock.wait(5)) == ["c"]


def test_a_pod_that_exceeds_its_card_alone_evicts_nobody_and_stays() -> None:
    clock = Clock()
    clock.see(bound("a"), bound("large", 1500, priority=9))
    assert not evicted(clock.wait(60))
    clock.see(bound("b"))
    assert evicted(clock.wait(5)) == ["b"], "the others are still judged"


def test_a_node_that_comes_back_smaller_evicts_nobody() -> None:
    clock = Clock(mib=2000)
    clock.see(bound("a"), bound("b"))
    clock.core.handle(NodeGone("n1"))
    clock.wait(60)
    clock.resize(1000)
    assert not evicted(clock.wait(60))


@pytest.mark.parametrize("card", [None, "", "nonsense", "7"])
def test_a_pod_without_a_readable_record_evicts_nobody(card: str | None) -> None:
    clock = Clock()
    clock.see(bound("a"), bound("lost", 900, card, priority=9, phase="Running"))
    assert not evicted(clock.wait(60))


def test_once_its_record_can_be_read_a_pod_counts_as_bound_there() -> None:
    clock = Clock()
    clock.see(bound("a"), bound("lost", 900, None, priority=9))
    assert not evicted(clock.wait(60))
    clock.see(bound("lost", 900, "0", priority=9))
    assert evicted(clock.wait(5)) == ["a"]


def test_a_pod_of_another_scheduler_is_named_and_never_evicted() -> None:
    clock = Clock()
    clock.see(bound("ours", phase="Running"), bound("theirs", scheduler="other"))
    said = clock.wait(60)
    assert not evicted(said)
    (warning,) = warnings(said)
    assert "1,200 of 1,000 MiB" in warning
    assert "pod default/theirs should go, but belongs to another scheduler" in warning


def test_nobody_goes_while_a_pod_that_ends_makes_enough_room() -> None:
    clock = Clock()
    clock.see(bound("a", deleted=True, phase="Running", priority=9), bound("b"))
    assert not evicted(clock.wait(3 * AGAIN))


def test_a_pod_that_is_still_there_is_evicted_again_and_no_other_one() -> None:
    clock = Clock()
    clock.see(bound("a"), bound("b"))
    assert evicted(clock.wait(SETTLE)) == ["b"]
    clock.see(bound("b", marked=True))
    assert not evicted(clock.wait(AGAIN - SETTLE))
    assert evicted(clock.wait(SETTLE)) == ["b"]
    clock.see(bound("b", marked=True, deleted=True))
    assert not evicted(clock.wait(3 * AGAIN))


def test_a_new_core_finishes_the_eviction_that_it_finds() -> None:
    pods = bound("a", priority=1), bound("b", marked=True, priority=5)
    assert evicted(Clock(*pods).wait(SETTLE)) == ["b"]
    pods = bound("a", priority=1), bound("b", marked=True, deleted=True, priority=5)
    assert not evicted(Clock(*pods).wait(3 * AGAIN))


def test_a_new_core_evicts_only_pods_that_have_not_started() -> None:
    running = bound("a", phase="Running"), bound("b", phase="Running")
    said = Clock(*running).wait(60)
    assert not evicted(said)
    assert any("nobody is evicted" in text for text in warnings(said))
    assert evicted(Clock(bound("a", phase="Running"), bound("b", priority=9)).wait(60)[:1]) == ["b"]


SIZES = st.sampled_from([100, 300, 600, 1000])


@st.composite
def crowds(draw: st.DrawFn) -> list[manifest.Pod]:
    """Pods that somebody bound to two cards, in any way."""
    count = draw(st.integers(1, 7))
    stamps = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", None)
    return [
        bound(
            f"p{number}",
            draw(SIZES),
            draw(st.sampled_from(["0", "1"])),
            priority=draw(st.integers(0, 2)),
            phase=draw(st.sampled_from(["Pending", "Running"])),
            since=draw(st.sampled_from(stamps)),
            marked=draw(st.booleans()) and draw(st.booleans()),
            deleted=draw(st.booleans()) and draw(st.booleans()),
        )
        for number in range(count)
    ]


def load(pods: Iterable[manifest.Pod], card: str) -> int:
    mine = [each for each in pods if each.annotations["volcano.sh/gpu-index"] == card]
    return sum(int(str(each.spec.containers[0].limits[MEMORY])) for each in mine)


@given(crowds(), st.randoms(use_true_random=False))
def test_all_cores_choose_the_same_pods_and_no_more_than_needed(pods: list[manifest.Pod], chance: Any) -> None:
    answers = []
    for _ in range(2):
        clock = Clock(cards=2)
        told = pods.copy()
        chance.shuffle(told)
        clock.see(*told)
        answers.append(sorted(evicted(clock.wait(SETTLE))))
    assert answers[0] == answers[1]
    gone = {each.name for each in pods if each.metadata.deletion_timestamp} | set(answers[0])
    left = [each for each in pods if each.name not in gone]
    for card in ("0", "1"):
        assert load(left, card) <= 1000, "still overcommitted"
    for name in answers[0]:
        back = next(each for each in pods if each.name == name)
        assert load([*left, back], back.annotations["volcano.sh/gpu-index"]) > 1000, f"{name} went in vain"


@given(crowds())
def test_whoever_stays_in_place_of_another_is_worthier(pods: list[manifest.Pod]) -> None:
    clock = Clock(cards=1)
    equal = [each for each in pods if each.annotations["volcano.sh/gpu-index"] == "0" and load([each], "0") == 600]
    clock.see(*equal)
    chosen = set(evicted(clock.wait(SETTLE)))
    started = {each.name: each.started for each in equal if not each.metadata.deletion_timestamp}
    for goes, stays in itertools.product(chosen, started.keys() - chosen):
        marked = {each.name: each.condition("DisruptionTarget") is not None for each in equal}
        assert marked[goes] or not started[goes] or started[stays]
