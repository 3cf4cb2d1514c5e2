"""Sessions over random worlds: gangs are whole, cards are never overcommitted, and the books say what was decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subak.batch.configuration import Configuration
from subak.batch.world import READY, Job, Status, Task
from subak.model import manifest
from subak.model.placement import Placement
from subak.model.reason import Refusal
from tests.batch.worlds import SEED, Stage, configuration
from tests.policy.test_place import ledger
from tests.policy.test_preempt import HOUSES
from tests.support.fuzz import examples
from tests.support.world import make, pods

GANG = configuration("enqueue", "allocate", "backfill", tiers=[["priority", "gang"], ["drf", "predicates"]])
CONFIGURATIONS = st.sampled_from([SEED, GANG])
THOROUGH = examples(quick=10, ci=150)
FATES = ["Pending", "Pending", "Pending", "Running", "Releasing"]


@dataclass(frozen=True)
class Gang:
    """A group and its pods, each with its role and what it is before the session."""

    name: str
    members: list[tuple[manifest.Pod, str, str]]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """Nodes by their kind, and groups."""

    kinds: list[int]
    gangs: list[Gang]

    def shuffled(self, seed: int) -> Story:
        """The same in another order."""
        random = Random(seed)
        gangs = [replace(each, members=random.sample(each.members, len(each.members))) for each in self.gangs]
        return Story(random.sample(self.kinds, len(self.kinds)), random.sample(gangs, len(gangs)))

    def play(self) -> Stage:
        """A stage on which all of it stands; pods that mean nothing, or have no place to run, are left out."""
        stage = Stage()
        for name in ("a", "b"):
            stage.queue(name, created=0.0, weight=3 if name == "a" else 1)
        for kind in sorted(self.kinds):
            for number in range(self.kinds.count(kind)):
                stage.add_node(make(kind, f"node-{kind}-{number}"))
        for each in sorted(self.gangs, key=lambda each: each.name):
            stage.group(each.name, **each.facts)
        for fate in ("Running", "Releasing", "Pending"):
            for gang in self.gangs:
                for pod, role, status in gang.members:
                    if status == fate:
                        enter(stage, gang.name, pod, role, Status(status))
        return stage


def enter(stage: Stage, group: str, pod: manifest.Pod, role: str, status: Status) -> None:
    """Add a pod; one that is said to run already gets a place like any other."""
    facts: dict[str, Any] = {"role": role, "priority": pod.priority, "created": float(pod.priority)}
    try:
        task = stage.add_pod(pod, group, **facts)
    except Refusal:
        return
    if status is not Status.PENDING:
        placement = stage.decider.decide("default", task.request)
        stage.world.remove_task(task)
        if isinstance(placement, Placement):
            stage.add_pod(pod, group, node=placement.node, status=status, **facts)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Some nodes of one house, and gangs of pods in its dialects."""
    kinds, dialects = draw(st.sampled_from(HOUSES))
    gangs = []
    for number in range(draw(st.integers(1, 5))):
        shapes = draw(st.lists(pods(dialects), min_size=1, max_size=2))
        members = []
        for member in range(draw(st.integers(1, 6))):
            pod, role = draw(st.sampled_from(shapes)), draw(st.sampled_from(["", "lead", "work"]))
            members.append(
                (named(pod, f"g{number}-{member}", draw(st.integers(0, 2))), role, draw(st.sampled_from(FATES)))
            )
        least = draw(st.sampled_from([0, 1, len(members) // 2, len(members), len(members)]))
        facts: dict[str, Any] = {"min_member": least, "queue": draw(st.sampled_from(["a", "b"])), "created": 1.0}
        facts["min_roles"] = draw(st.sampled_from([{}, {}, {"lead": 1}, {"lead": 1, "work": 1}]))
        facts["priority"] = draw(st.integers(0, 2))
        gangs.append(Gang(f"g{number}", members, facts))
    return Story(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2)), gangs)


def named(pod: manifest.Pod, name: str, priority: int) -> manifest.Pod:
    # A card that must be idle is so only until the next pod comes: such a place cannot be kept for long.
    annotations = {key: text for key, text in pod.annotations.items() if text != "mutex"}
    known = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    metadata = msgspec.structs.replace(pod.metadata, **known)
    spec = msgspec.structs.replace(pod.spec, scheduler_name="volcano", priority=priority)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def tasks_of(stage: Stage) -> list[Task]:
    return [task for job in stage.world.jobs.values() for task in job.tasks.values()]


def is_whole(job: Job) -> bool:
    """Whether enough members have places, by a count of the tasks themselves."""
    placed = [task for task in job.tasks.values() if task.status in READY]
    roles = job.min_roles if sum(job.min_roles.values()) <= job.min_member else {}
    enough = all(sum(task.role == role for task in placed) >= least for role, least in roles.items())
    return len(placed) >= job.min_member and enough


def fingerprint(stage: Stage) -> object:
    """All that sessions may change."""
    jobs = {
        job.key: (
            {task.key: (task.status, task.node) for task in job.tasks.values()},
            *(dict(job.held), dict(job.asked), +job.counts, job.ready_count, job.waiting_count, job.best_effort_count),
        )
        for job in stage.world.jobs.values()
    }
    queues = {queue.name: (dict(queue.held), dict(queue.asked)) for queue in stage.world.queues.values()}
    return jobs, queues, ledger(stage.snapshot), dict(stage.snapshot.bookings), set(stage.world.unfinished)


def assert_no_card_carries_too_much(stage: Stage) -> None:
    """Neither now, without those whose places are not free yet, nor once those have left who leave."""
    by_status = {
        without: [task.key for task in tasks_of(stage) if task.status is without]
        for without in (Status.PIPELINED, Status.RELEASING)
    }
    for keys in by_status.values():
        with stage.snapshot.transaction():
            for key in keys:
                stage.snapshot.forget(key)
            for node in stage.snapshot:
                for card in stage.snapshot.cards(node.name):
                    assert min(card.memory_free, card.cores_free, card.slots_free) >= 0


@THOROUGH
@given(stories(), CONFIGURATIONS)
def test_a_job_starts_with_all_that_it_needs_or_not_at_all(story: Story, actions: Configuration) -> None:
    stage = story.play()
    before = {job.key: is_whole(job) for job in stage.world.jobs.values()}
    stage.run(actions)
    for job in stage.world.jobs.values():
        bound = [task for task in job.tasks.values() if stage.name(task) in stage.bound]
        assert not bound or is_whole(job) or before[job.key]
        kept = [task for task in job.tasks.values() if stage.name(task) in stage.kept]
        assert all(task.status is Status.PIPELINED for task in kept)


@THOROUGH
@given(stories(), CONFIGURATIONS)
def test_the_books_say_what_was_decided_and_no_card_carries_too_much(story: Story, actions: Configuration) -> None:
    stage = story.play()
    there = {key: booking.placement for key, booking in stage.snapshot.bookings.items()}
    stage.run(actions)
    assert_no_card_carries_too_much(stage)
    decided = {f"default/{name}": placement for name, placement in stage.placements.items()}
    assert {key: booking.placement for key, booking in stage.snapshot.bookings.items()} == {**there, **decided}
    assert stage.evicted == {}
    for _ in range(8):  # all who leave are gone, and those who waited for their places get them, or others
        stage.gone(*(stage.name(task) for task in tasks_of(stage) if task.status is Status.RELEASING))
        stage.run(actions)
        assert_no_card_carries_too_much(stage)
    assert stage.kept == {}


@THOROUGH
@given(stories(), CONFIGURATIONS)
def test_a_session_after_which_nothing_happens_is_the_last_to_decide_anything(
    story: Story, actions: Configuration
) -> None:
    stage = story.play()
    stage.run(actions)
    handed, after = list(stage.handed), fingerprint(stage)
    stage.run(actions)
    assert stage.handed == handed
    stage.refused.clear()
    stage.run(actions)
    assert stage.handed == handed
    assert fingerprint(stage) == after


@THOROUGH
@given(stories(), CONFIGURATIONS, st.integers(0, 99))
def test_the_order_in_which_objects_came_decides_nothing(story: Story, actions: Configuration, seed: int) -> None:
    pending = [replace(each, members=[(*m[:2], "Pending") for m in each.members]) for each in story.gangs]
    one, other = Story(story.kinds, pending).play(), Story(story.kinds, pending).shuffled(seed).play()
    one.run(actions)
    other.run(actions)
    assert one.bound == other.bound
    assert one.placements == other.placements


@THOROUGH
@given(stories(), st.data())
def test_a_statement_that_is_discarded_has_never_been(story: Story, data: st.DataObject) -> None:
    stage = story.play()
    session = stage.run(configuration(tiers=[["gang"]]))
    before = fingerprint(stage)
    jobs = [job for job in stage.world.jobs.values() if job.tasks]
    if not jobs:
        return
    job = data.draw(st.sampled_from(jobs))
    with session.statement(job) as statement:
        for task in list(job.tasks.values()):
            if task.status is Status.PENDING and (placement := session.place(task)) is not None:
                book = data.draw(st.sampled_from([statement.allocate, statement.pipeline]))
                book(task, placement)
                if data.draw(st.booleans()):
                    statement.take_back(task)
            elif task.status is Status.RUNNING:
                statement.evict(task, task, "Preempted")
    assert fingerprint(stage) == before
    assert stage.handed == []
