"""One run of the configured actions: it asks the plugins, tries tasks on the snapshot, and hands over what it decides.

Each action goes so:

    jobs in order ── Statement: try tasks ── enough of them have places? ── commit: the Hand acts
                                            └─ else: as if it had never been
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol

from subak.batch import Hand, Plugin, Problem, Rank, Vote
from subak.batch.amounts import times
from subak.batch.arguments import Arguments
from subak.batch.configuration import Configuration, Option
from subak.batch.refusals import Refusals, Shortfall
from subak.batch.statement import Statement
from subak.batch.world import Job, Phase, Queue, State, Task, World
from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy.budgets import Budgets
from subak.policy.decider import Decider, Exceeded
from subak.policy.explain import explaining, explanation
from subak.policy.preempt import pinned, place_on
from subak.policy.tally import Tally

MOST_EXPLANATIONS = 20
"""So many refusals are explained in one session: each takes milliseconds in a large cluster."""

Ranks = tuple[Rank | str, ...]


class Leaving(Protocol):
    """What a session must know of pods besides their bookings."""

    def leaving(self, node: str) -> Collection[str]:
        """The pods on this node that leave anyway."""

    def unsettled(self) -> Iterable[str]:
        """The nodes that somebody leaves."""


class Session:
    """Jobs, queues, plugins and a snapshot, for the time of one run.

    `refused` is what fits nowhere, as far as is known, for who keeps it between sessions.  `budgets` protect pods from
    having to leave.  `notes` say why jobs do not go on, `shortfalls` how far their trials came, by the jobs' keys, and
    `misfits` why tasks do not fit, by theirs.  After `most` decisions no other job is begun.  `registry.run` makes and
    runs sessions.
    """

    def __init__(
        self,
        world: World,
        decider: Decider,
        configuration: Configuration,
        known: Mapping[str, type[Plugin]],
        hand: Hand,
        pods: Leaving,
        now: float = 0.0,
        refused: Refusals | None = None,
        budgets: Budgets | None = None,
        most: int | None = None,
    ) -> None:
        self.world = world
        self.decider = decider
        self.snapshot = decider.snapshot
        self.configuration = configuration
        self.hand = hand
        self.pods = pods
        self.now = now
        self.refused = Refusals() if refused is None else refused
        self.budgets = Budgets() if budgets is None else budgets
        self.decided = 0
        """How many tasks were decided on."""
        self._most = most
        self.notes: dict[str, Problem] = {}
        self.shortfalls: dict[str, Shortfall] = {}
        self.limited: set[str] = set()
        """Jobs of which a queue or a quota kept tasks off, by key."""
        self.misfits: dict[str, str] = {}
        self.admitted: list[Job] = []
        """Jobs that were let in, in this session."""
        self.doubts: list[str] = []
        """What is wrong with arguments of the configuration."""
        self._trial: Statement | None = None
        self._explained = 0
        self._asked: dict[str, list[list[Any]]] = {}
        self._flat: dict[str, list[Any]] = {}
        self._tiers: list[list[tuple[Plugin, Option]]] = [
            [
                (known[option.name](self, Arguments(option.arguments, f"plugin {option.name}", self.doubts)), option)
                for option in tier
                if option.name in known
            ]
            for tier in configuration.tiers
        ]

    @property
    def full(self) -> bool:
        """Whether so much was decided that the rest is left to the next session."""
        return self._most is not None and self.decided >= self._most

    def plugin(self, name: str) -> Plugin | None:
        """The configured plugin of this name."""
        return next((plugin for tier in self._tiers for plugin, _ in tier if plugin.name == name), None)

    # Who comes first

    @cached_property
    def queues(self) -> list[Queue]:
        """The queues that have jobs."""
        return [queue for queue in self.world.queues.values() if queue.jobs]

    def jobs(self) -> list[Job]:
        """The jobs that are not whole, or of which a task waits, if their queue is there."""
        queues = self.world.queues
        return [job for job in self.world.unfinished.values() if job.queue in queues]

    def queue_rank(self, queue: Queue) -> Ranks:
        """The lowest comes first."""
        return (*[ask(queue) for ask in self._all("queue_rank")], queue.created, queue.uid, queue.name)

    def job_rank(self, job: Job) -> Ranks:
        """The lowest comes first; half-bound jobs before all others."""
        return (not job.half_bound, *[ask(job) for ask in self._all("job_rank")], *_age(job))

    def task_rank(self, task: Task) -> Ranks:
        """The lowest comes first."""
        ranks = [ask(task) for ask in self._all("task_rank")]
        return (*ranks, task.number, task.created, task.pod.metadata.uid, task.key)

    # Who may go on

    def invalid(self, job: Job) -> Problem | None:
        """Why the job cannot be tried at all."""
        return next((found for ask in self._all("invalid") if (found := ask(job)) is not None), None)

    def ready(self, job: Job) -> bool:
        """Whether enough of the job's tasks have their places."""
        return all(ask(job) for ask in self._all("ready"))

    def pipelined(self, job: Job) -> bool:
        """Whether enough of them have, or will have, their places."""
        return self._vote("pipelined", job)

    def enqueueable(self, job: Job) -> bool:
        """Whether the job may be tried."""
        return self._vote("enqueueable", job)

    def enqueue(self, job: Job) -> None:
        """Let a job in."""
        job.phase = Phase.INQUEUE
        self.admitted.append(job)
        for tier in self._tiers:
            for plugin, _ in tier:
                plugin.enqueued(job)

    def starving(self, job: Job) -> bool:
        """Whether the job may take from others: all plugins of the first tier that has an opinion say so."""
        asked = next((tier for tier in self._by_tier("starving") if tier), ())
        return bool(asked) and all(ask(job) for ask in asked)

    def overused(self, queue: Queue) -> bool:
        """Whether the queue has all that it deserves."""
        return any(ask(queue) for ask in self._all("overused"))

    def unallocatable(self, queue: Queue, task: Task, count: int = 1) -> str:
        """Why the queue may not have this task too, or so many like it; empty if it may.

        A half-bound job may always be completed.
        """
        if task.job.half_bound:
            return ""
        if queue.state is not State.OPEN:
            return f"queue {queue.name} is {queue.state.value}"
        one = task.amounts
        task.amounts = one if count == 1 else times(one, count)
        try:
            return next((why for ask in self._all("unallocatable") if (why := ask(queue, task))), "")
        finally:
            task.amounts = one

    def preemptive(self, queue: Queue, task: Task) -> bool:
        """Whether the queue may take from other queues for this task."""
        return all(ask(queue, task) for ask in self._all("preemptive"))

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Those who may all leave for a task of their own queue."""
        return self._victims("preemptable", preemptor, candidates)

    def reclaimable(self, reclaimer: Task, candidates: Sequence[Task]) -> list[Task]:
        """Those who may all leave for a task of another queue."""
        return self._victims("reclaimable", reclaimer, candidates)

    def note(self, job: Job, reason: str, message: str) -> None:
        """Why the job does not go on; the last word counts."""
        self.notes[job.key] = Problem(reason, message)

    # Trials

    def place(self, task: Task) -> Placement | None:
        """Where the task goes now; None if nowhere, and then `misfits` may say why."""
        # What was refused may fit where the trial has sent somebody away.
        if task.request in self.refused and not (self._trial is not None and self._trial.frees):
            return None
        answer = self.decider.decide(task.pod.namespace, task.request)
        if isinstance(answer, Exceeded):
            self.misfits[task.key] = answer.message
            return None
        return answer

    def place_at(self, task: Task, placement: Placement) -> Placement | None:
        """The same cards of the same node, if they are free now."""
        return self.place_on(task, placement.node, pinned(task.request, placement))

    def place_later(self, task: Task, node: str, kept: Placement | None = None) -> Placement | None:
        """The task's place on this node once those have left who leave anyway: the kept one, or any."""
        with self.snapshot.transaction():
            for key in self.pods.leaving(node):
                self.snapshot.forget(key)
            return self.place_on(task, node, task.request if kept is None else pinned(task.request, kept))

    def place_on(self, task: Task, node: str, request: Request | None = None) -> Placement | None:
        """The task's place on this node as it is in the trial, if the quota of its namespace has room too."""
        placement = place_on(self.snapshot, node, request or task.request)
        if placement is None or self.decider.quotas.refuse(task.pod.namespace, placement) is not None:
            return None
        return placement

    def explain(self, task: Task) -> str:
        """What stands against the task now, beside all that the trial has placed; empty if that takes too long."""
        if task.key in self.misfits:
            return self.misfits[task.key]
        if task.request in self.refused and (why := self.refused.why(task.request)):
            return why
        self._explained += 1
        if self._explained > MOST_EXPLANATIONS:
            return ""
        tally = Tally()
        for _ in explaining(self.snapshot, task.request, tally):
            pass
        return str(explanation(tally))

    @contextmanager
    def statement(self, job: Job) -> Iterator[Statement]:
        """Tentative decisions about a job.  Without `commit` or `keep` the end of the block takes all of them back."""
        statement = Statement(self.world, self.snapshot, job)
        outer, self._trial = self._trial, statement
        with self.snapshot.transaction():
            try:
                yield statement
            finally:
                self._trial = outer
                if not statement.kept:
                    statement.undo()
        if statement.kept:
            self.decided += len(statement)
            if statement.carry_out(self.hand):
                self.refused.clear()
            self.refused.moved()

    # Asking plugins

    def _by_tier(self, question: str) -> list[list[Any]]:
        """The methods of all plugins that answer a question, tier by tier."""
        found = self._asked.get(question)
        if found is None:
            found = self._asked[question] = [
                [
                    getattr(plugin, question)
                    for plugin, option in tier
                    if getattr(type(plugin), question) is not getattr(Plugin, question) and option.takes_part(question)
                ]
                for tier in self._tiers
            ]
        return found

    def _all(self, question: str) -> list[Any]:
        found = self._flat.get(question)
        if found is None:
            found = self._flat[question] = [ask for tier in self._by_tier(question) for ask in tier]
        return found

    def _vote(self, question: str, job: Job) -> bool:
        """No rejection in any tier up to the first in which somebody permits."""
        for tier in self._by_tier(question):
            votes = [ask(job) for ask in tier]
            if Vote.REJECT in votes:
                return False
            if Vote.PERMIT in votes:
                return True
        return True

    def _victims(self, question: str, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        """Those whom all plugins of a tier let go; the first tier in which there are any decides.

        A plugin that has a veto is asked besides, in whichever tier it is.
        """
        for tier in self._by_tier(question):
            chosen: list[Task] | None = None
            for ask in tier:
                found: list[Task] = ask(taker, candidates)
                chosen = found if chosen is None else [task for task in chosen if task in found]
                if not chosen:
                    break
            if chosen:
                for ask in self._vetoes(question):
                    chosen = ask(taker, chosen)
                return chosen
        return []

    def _vetoes(self, question: str) -> list[Any]:
        return [
            getattr(plugin, question)
            for tier in self._tiers
            for plugin, option in tier
            if question in plugin.vetoes and option.takes_part(question)
        ]


def _age(job: Job) -> tuple[float, int, str, str]:
    """The oldest comes first."""
    return job.created, job.arrived, job.uid, job.key


Action = Callable[[Session, Arguments], None]
