"""Who leaves for a gang, in random worlds of shared cards: then the whole gang has places, and nobody left in vain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from subak.batch.actions.preempt import preempt
from subak.batch.arguments import Arguments
from subak.batch.candidates import Candidates
from subak.batch.configuration import Configuration, Option
from subak.batch.registry import PLUGINS
from subak.batch.session import Session
from subak.batch.world import Status, Task
from subak.model import manifest
from subak.model.reason import Refusal
from subak.policy.place import place
from subak.policy.preempt import place_on
from subak.policy.victims import Occupant, Price, price, started
from tests.batch.worlds import Stage, configuration
from tests.policy.test_place import ledger
from tests.policy.test_preempt import BUDGETS, HOUSES, named
from tests.support.fuzz import rare
from tests.support.world import make, pods

THOROUGH = rare(quick=5, ci=100)
MOST = 8
"""So many tasks on a node have 255 sets."""

BREAKABLE = Option("gang", {"enablePreemptable": False})
"""Gangs start whole, but may lose members to others, as in Volcano's own default."""

CONFIGURATIONS: list[list[list[str | Option]]] = [
    [["conformance", "gang", "priority"]],
    [["priority", BREAKABLE, "conformance"]],
    [["priority", "gang", "conformance"], ["drf", "proportion"]],
    [["gang", "drf", "conformance", "proportion"]],
]


@dataclass(frozen=True)
class Wish:
    """A pod that came, with what matters of it here."""

    pod: manifest.Pod
    group: int
    priority: int
    start: int
    app: str
    preemptable: bool
    system: bool


@dataclass(frozen=True)
class Story:
    """Nodes, groups that are there, the pods that came to them, and a gang that comes now."""

    kinds: list[int]
    groups: list[tuple[int, int]]
    stream: list[Wish]
    gang: list[manifest.Pod]
    least: int
    priority: int
    protected: bool
    tiers: list[list[str | Option]]


@st.composite
def stories(draw: st.DrawFn, largest: int = 4) -> Story:
    kinds, dialects = draw(st.sampled_from(HOUSES))
    groups = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 3)), min_size=1, max_size=4))
    wishes = st.builds(
        Wish,
        pods(dialects),
        st.integers(0, len(groups) - 1),
        st.integers(-2, 3),
        st.integers(0, 3),
        st.sampled_from(["", "web", "db"]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([False, False, False, True]),
    )
    gang = draw(st.lists(pods(dialects), min_size=1, max_size=2)) * draw(st.integers(1, max(largest // 2, 1)))
    gang = gang[:largest]
    return Story(
        kinds,
        groups,
        draw(st.lists(wishes, min_size=8, max_size=30)),
        gang,
        draw(st.integers(1, len(gang))),
        draw(st.integers(1, 4)),
        draw(st.booleans()),
        draw(st.sampled_from(CONFIGURATIONS)),
    )


def staged(story: Story) -> Stage:
    """The world of a story, with the gang `gang` waiting."""
    stage = Stage()
    for i, kind in enumerate(story.kinds):
        stage.add_node(make(kind, f"node-{i}"))
    for i, (least, priority) in enumerate(story.groups):
        stage.group(f"g{i}", least, priority=priority, phase="Running")
    for i, wish in enumerate(story.stream):
        pod = named(wish.pod, f"p{i}", wish.priority, wish.start, wish.app)
        if wish.system:
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace="kube-system"))
        _add(stage, pod, f"g{wish.group}", priority=wish.priority, preemptable=wish.preemptable)
    stage.group("gang", story.least, priority=story.priority, phase="Inqueue")
    try:
        for i, pod in enumerate(story.gang):
            stage.add_pod(named(pod, f"member-{i}", story.priority), "gang", priority=story.priority)
    except Refusal:
        assume(False)
    return stage


def _add(stage: Stage, pod: manifest.Pod, group: str, **facts: Any) -> None:
    """A pod runs if there is room for it."""
    try:
        request = stage.decider.request(stage.decider.interpreter.admit(pod))
    except Refusal:
        return
    found = place(stage.snapshot, request)
    if found is not None and place_on(stage.snapshot, found.node, request) is not None:
        stage.add_pod(pod, group, node=found.node, status=Status.RUNNING, **facts)


def state(stage: Stage) -> object:
    """All that a session could change."""
    jobs = stage.world.jobs.values()
    tasks = {task.key: (task.status, task.node) for job in jobs for task in job.tasks.values()}
    tallies = [(job.key, dict(job.held), dict(job.asked), job.ready_count, job.waiting_count) for job in jobs]
    queues = [(queue.name, dict(queue.held), dict(queue.asked)) for queue in stage.world.queues.values()]
    return ledger(stage.snapshot), set(stage.snapshot.bookings), tasks, tallies, queues


def members(stage: Stage, *statuses: Status) -> list[Task]:
    job = next(job for job in stage.world.jobs.values() if job.name == "default/gang")
    return list(job.with_status(*statuses))


def conf(story: Story, *actions: str) -> Configuration:
    return configuration(*actions, tiers=story.tiers)


def overcommitted(stage: Stage) -> list[str]:
    """Cards and nodes that have given more than they have."""
    found = []
    for pool in stage.snapshot.pools:
        for at in pool:
            node = pool.nodes[at]
            found += [f"{node.name} {name}" for name in ("cpu", "memory", "pods") if pool.free(at, name) < 0]
            for card in pool.cards(at):
                if min(card.memory_free, card.cores_free, card.slots_free) < 0:
                    found.append(card.device.id)
    return found


@THOROUGH
@given(story=stories())
def test_nobody_leaves_unless_the_whole_gang_then_has_places(story: Story) -> None:
    stage = staged(story)
    before = state(stage)
    tasks = {stage.name(task): task for job in stage.world.jobs.values() for task in job.tasks.values()}
    stage.run(conf(story, "preempt"))
    if not stage.evicted:
        assert stage.kept == {}
        assert state(stage) == before, "who cannot be helped changes nothing"
        return
    event(f"{len(stage.evicted)} leave")
    assert len(stage.kept) >= story.least
    assert {stage.name(task) for task in members(stage, Status.PIPELINED)} == set(stage.kept)
    for name in stage.evicted:
        victim = tasks[name]
        assert victim.preemptable
        assert victim.pod.namespace != "kube-system"
        assert victim.status is Status.RELEASING
        if not any("drf" in tier for tier in story.tiers):
            assert victim.job.priority < story.priority
        if "gang" in story.tiers[0] and len(story.tiers) == 1:
            assert victim.job.ready_count >= victim.job.min_member
    stage.gone(*stage.evicted)
    assert overcommitted(stage) == []


@pytest.mark.long
@THOROUGH
@given(story=stories())
def test_nobody_leaves_in_vain(story: Story) -> None:
    stage = staged(story)
    stage.run(conf(story, "preempt"))
    assume(stage.evicted)
    kept = members(stage, Status.PIPELINED)
    for spared in stage.evicted:
        with stage.snapshot.transaction():
            for task in kept:
                stage.snapshot.forget(task.key)
            for name in stage.evicted:
                if name != spared:
                    stage.snapshot.forget(f"default/{name}")
            for task in sorted(kept, key=lambda task: task.number):
                found = place(stage.snapshot, task.request)
                if found is None:
                    break
                stage.snapshot.assume(task.key, found, task.request.needs.resources, task.pod)
            else:
                raise AssertionError(f"{spared} could have stayed")


@pytest.mark.long
@THOROUGH
@given(story=stories(), data=st.data())
def test_while_victims_leave_nobody_else_has_to(story: Story, data: st.DataObject) -> None:
    stage = staged(story)
    stage.run(conf(story, "preempt"))
    assume(stage.evicted)
    victims, kept = dict(stage.evicted), dict(stage.kept)
    for name in data.draw(st.permutations(sorted(victims))):
        stage.run(conf(story, "allocate", "preempt"))
        _nobody_else_leaves_for(kept, stage, victims)
        stage.gone(name)
        assert set(kept) <= {*stage.kept, *stage.bound}
    stage.run(conf(story, "allocate", "preempt"))
    _nobody_else_leaves_for(kept, stage, victims)
    assert set(kept) <= set(stage.bound)
    assert overcommitted(stage) == []


def _nobody_else_leaves_for(kept: Mapping[str, str], stage: Stage, victims: Mapping[str, str]) -> None:
    """Others may have to leave for members that had no place yet, never for those that wait for theirs."""
    more = {name: taker for name, taker in stage.evicted.items() if name not in victims}
    assert not set(more.values()) & set(kept)
    assert {**stage.evicted, **victims} == stage.evicted


@THOROUGH
@given(story=stories(largest=1))
def test_a_single_task_takes_the_cheapest_set_of_all(story: Story) -> None:
    stage = staged(story)
    (task,) = members(stage, Status.PENDING)
    budgets = _protect(stage, story)
    session = Session(stage.world, stage.decider, conf(story, "preempt"), PLUGINS, stage, stage, budgets=budgets)
    assume(place(stage.snapshot, task.request) is None and session.starving(task.job))
    best = cheapest(session, task)
    seen = occupants(session, task)
    preempt(session, Arguments())
    if best is None:
        assert stage.evicted == {}
        return
    assert stage.evicted
    victims = sorted((seen[f"default/{name}"] for name in stage.evicted), key=lambda each: each.rank)
    if len(task.request.claims) == 1 and task.request.claims[0].count == 1:
        assert price(victims) == best
    assert price(victims) >= best


def _protect(stage: Stage, story: Story) -> Any:
    from subak.policy.budgets import Budgets

    budgets = Budgets()
    for budget in BUDGETS if story.protected else ():
        budgets.put(budget)
    return budgets


def occupants(session: Session, task: Task) -> dict[str, Occupant]:
    """All whom the task may ask, by key."""
    candidates = Candidates(session.world, session.world.jobs.values())
    return {
        key: Occupant(
            key,
            each.pod,
            session.snapshot.bookings[key],
            tuple(session.budgets.protecting(each.pod)),
            started(each.pod),
            candidates.weights[key],
        )
        for key, each in candidates.tasks.items()
        if each.job is not task.job
    }


def cheapest(session: Session, task: Task) -> Price | None:
    """The lowest price of all sets, by node, whom all plugins let go and who make room."""
    seen, tasks = occupants(session, task), Candidates(session.world, session.world.jobs.values()).tasks
    costs = []
    queue = session.world.queues[task.job.queue]
    for node in session.snapshot:
        there = sorted(
            (each for each in seen.values() if each.booking.placement.node == node.name), key=lambda e: e.rank
        )
        assume(len(there) <= MOST)
        if not session.preemptable(task, [tasks[each.key] for each in reversed(there)]):
            continue
        for size in range(1, len(there) + 1):
            for victims in combinations(there, size):
                gone = [tasks[each.key] for each in reversed(victims)]
                if len(session.preemptable(task, gone)) < size:
                    continue
                with session.snapshot.transaction(), session.statement(task.job) as trial:
                    for each in gone:
                        trial.evict(each, task, "")
                    if not session.unallocatable(queue, task) and place_on(session.snapshot, node.name, task.request):
                        costs.append(price(victims))
    return min(costs, default=None)
