"""Sessions that take room come to rest, and leave every queue what it deserves, though those who left come again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from subak.batch.amounts import Amounts, exceeding, plus
from subak.batch.plugins.proportion import Proportion
from subak.batch.world import Queue, Status, Task
from subak.model import manifest
from subak.model.reason import Refusal
from tests.batch.test_taking import overcommitted
from tests.batch.worlds import Stage, configuration
from tests.policy.test_preempt import HOUSES, named
from tests.support.fuzz import rare
from tests.support.world import make, pods

SOME = rare(quick=4, ci=80)
TIERS = [["priority", "gang", "conformance"], ["drf", "predicates", "proportion"]]
HELM = [["priority", "conformance"], ["predicates", "proportion"]]
"""As in the default of Volcano's chart, gang and drf protect nobody."""
TURNS = 40
"""More sessions than there are pods, so that only a circle takes as many."""


@dataclass(frozen=True)
class Wish:
    """A pod that comes to a queue."""

    pod: manifest.Pod
    queue: int
    priority: int


@dataclass(frozen=True)
class Story:
    """Nodes, queues by weight, and pods in the order in which they come."""

    kinds: list[int]
    weights: list[int]
    wishes: list[Wish]
    tiers: list[list[str]]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    kinds, dialects = draw(st.sampled_from(HOUSES[:4]))
    weights = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    wish = st.builds(Wish, pods(dialects), st.integers(0, len(weights) - 1), st.integers(-1, 2))
    wishes = draw(st.lists(wish, min_size=6, max_size=16))
    return Story(kinds, weights, wishes, draw(st.sampled_from([TIERS, HELM])))


class Life:
    """A stage whose pods come again when they had to leave, as a controller's do."""

    def __init__(self, story: Story) -> None:
        self.stage = Stage()
        for i, kind in enumerate(story.kinds):
            self.stage.add_node(make(kind, f"node-{i}"))
        self.queues = [self.stage.queue(f"q{i}", weight=weight) for i, weight in enumerate(story.weights)]
        self._born = 0

    def come(self, pod: manifest.Pod, queue: Queue, priority: int) -> None:
        name = f"p{self._born}"
        self._born += 1
        job = self.stage.group(name, 1, queue=queue.name, priority=priority)
        try:
            self.stage.add_pod(named(pod, name, priority), job, priority=priority)
        except Refusal:
            self.stage.world.remove_job(job.key)

    def turn(self, *actions: str, tiers: list[list[str]]) -> list[Task]:
        """A session; those who had to leave are gone afterwards, and others like them have come."""
        stage, before = self.stage, set(self.stage.evicted)
        there = {stage.name(task): task for job in stage.world.jobs.values() for task in job.tasks.values()}
        session = stage.run(configuration(*actions, tiers=tiers))
        stage.started()
        victims = [there[name] for name in stage.evicted if name not in before]
        self.deserved = cast(Proportion, session.plugin("proportion")).deserved
        self.held = {queue.name: dict(queue.held) for queue in self.queues}
        for task in victims:
            stage.gone(stage.name(task))
            stage.world.remove_job(task.job.key)
            queue = stage.world.queues[task.job.queue]
            pod = msgspec.structs.replace(task.pod, spec=task.pod.spec)
            self.come(pod, queue, task.job.priority)
        return victims


@SOME
@given(story=stories())
def test_taking_back_comes_to_rest_and_leaves_each_queue_its_share(story: Story) -> None:
    life = Life(story)
    for wish in story.wishes:
        life.come(wish.pod, life.queues[wish.queue], wish.priority)
        life.turn("enqueue", "allocate", "backfill", tiers=story.tiers)
        assert life.stage.evicted == {}, "without reclaim nobody leaves"
    for _ in range(TURNS):
        victims = life.turn("enqueue", "allocate", "backfill", "reclaim", tiers=story.tiers)
        for queue in life.queues:
            _check_share(life.held[queue.name], life.deserved.get(queue.name, {}), victims, queue)
        if not victims and not life.stage.kept:
            break
    else:
        raise AssertionError("queues take from each other for ever")
    assert overcommitted(life.stage) == []


def _check_share(held: Amounts, deserved: Amounts, victims: list[Task], queue: Queue) -> None:
    """Without the last of its victims the queue would have had more than it deserves."""
    mine = [task for task in victims if task.job.queue == queue.name]
    assert not mine or any(exceeding(plus(held, task.amounts), deserved, among=task.amounts) for task in mine)


@SOME
@given(story=stories())
def test_preemption_comes_to_rest(story: Story) -> None:
    life = Life(story)
    for wish in story.wishes:
        life.come(wish.pod, life.queues[0], wish.priority)
        life.turn("enqueue", "allocate", "backfill", tiers=story.tiers)
    for _ in range(TURNS):
        if not life.turn("enqueue", "allocate", "backfill", "preempt", tiers=story.tiers) and not life.stage.kept:
            break
    else:
        raise AssertionError("jobs take from each other for ever")
    assume(life.stage.evicted)
    running = [task for job in life.stage.world.jobs.values() for task in job.with_status(Status.RUNNING)]
    assert running
    assert overcommitted(life.stage) == []
