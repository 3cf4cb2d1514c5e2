"""Gangs and queues in the scheduler: keeps their world by events, runs sessions when they are due, and is their hand.

    pods, groups, queues ──> Jobs ──> Session: which gangs start, whole ──> Batcher: binds, keeps, drops, evicts
             something is freed ──> Hopes ──┘                                  └──> reports, phases, timeouts

A session runs when something has happened that may help a job that waits, at most once a cycle.  One that decided
nothing is followed by a short rest, however much happens meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

from subak.batch import registry, switches
from subak.batch.amounts import Amounts
from subak.batch.configuration import DEFAULT, Configuration
from subak.batch.dimensions import Dimensions
from subak.batch.overview import JobView, QueueView, jobs_of, look, overview
from subak.batch.scoring import Scoring
from subak.batch.world import HOLDING, WAITING, Job, Phase, Status, Task
from subak.model import manifest
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.model.request import Request
from subak.policy.decider import Decider
from subak.scheduler.bulletin import Bulletin
from subak.scheduler.halves import Halves, phase_of
from subak.scheduler.hopes import Hopes
from subak.scheduler.jobs import VOLCANO, Jobs, governed
from subak.scheduler.messages import (
    Configured,
    Event,
    GroupGone,
    GroupSeen,
    GroupsMade,
    Instruction,
    OwnerSeen,
    PriorityClassGone,
    PriorityClassSeen,
    QueueGone,
    QueueSeen,
    Warn,
)
from subak.scheduler.preemptor import Preemptor
from subak.scheduler.record import Record, State
from subak.scheduler.waiting import FIRST_PAUSE, LONGEST_PAUSE, NOBODY, Ticket

MOST_PER_SESSION = 64
"""After so many decisions a session leaves the rest to the next one, so that a cycle does not take too long."""

REST = 0.1
"""Seconds after a session that decided nothing."""

TIMEOUT_EVENT = "GangTimeout"
TAKING = frozenset({"preempt", "reclaim"})
"""Actions that let others leave: what tasks that have places do matters to those who wait."""

Bind = Callable[[Record, Ticket, Placement, float], None]
Tell = Callable[[Record, str], None]


class Batcher:
    """Decides on pods of gangs and queues.  It is the `Hand` of its sessions.

    `bind` books a place for a pod and binds it, `tell` tells the user of a pod why it waits; without a message, as soon
    as that is found out.
    """

    def __init__(
        self,
        decider: Decider,
        records: Mapping[str, Record],
        preemptor: Preemptor,
        serves: Callable[[manifest.Pod], bool],
        emit: Callable[[Instruction], None],
        bind: Bind,
        tell: Tell,
    ) -> None:
        self._decider = decider
        self._records = records
        self._preemptor = preemptor
        self._serves = serves
        self._emit = emit
        self._bind = bind
        self._tell = tell
        self._dimensions = Dimensions(decider.interpreter, decider.snapshot)
        self._estimated_at = self._dimensions.version
        self.jobs = Jobs(self._dimensions)
        self.world = self.jobs.world
        self.configuration: Configuration = DEFAULT
        self._scoring = Scoring(DEFAULT, self._named)
        self._hopes = Hopes(decider.snapshot, preemptor.nominations.leaving)
        self._halves = Halves()
        self._bulletin = Bulletin(
            self.jobs,
            self._halves,
            self._dimensions,
            preemptor.nominations.leaving,
            self._tell_why,
        )
        self._failed: dict[str, None] = {}
        self._paused: dict[str, float] = {}
        self._over_quota: set[str] = set()
        self._rejected = False
        self._rests_until = 0.0
        self._epoch = 0
        self._now = 0.0
        self._decided = 0
        self._ran = False
        self.sessions = 0
        self._first: int | None = None

    def queues(self) -> list[QueueView]:
        """How queues stand."""
        return overview(look(self.world, self._decider, self.configuration))

    def jobs_of(self, queue: str) -> list[JobView]:
        """The jobs of a queue, in their order."""
        return jobs_of(look(self.world, self._decider, self.configuration), queue)

    def __len__(self) -> int:
        """How many pods have no place yet."""
        return sum(job.waiting_count for job in self.world.unfinished.values())

    # Events

    def governs(self, pod: manifest.Pod) -> bool:
        """Whether sessions decide on a pod of ours.  Raises Refusal if it says of its group what cannot be honoured."""
        return governed(pod)

    def read(self, pod: manifest.Pod, request: Request) -> Request:
        """The request of a pod as the configuration has it.  Raises Refusal if what it asks for is switched off."""
        switches.check(self.configuration.off, pod)
        if pod.spec.scheduler_name != VOLCANO:
            return request  # gangs in other words keep the node score of their dialect
        return self._scoring.mixed(pod, request, self._dimensions.asked(request))

    def standing(self, record: Record) -> Ticket | None:
        """The ticket by which the pod waits; None if it does not wait here."""
        return record.ticket if record.state is State.WAITING and record.key in self.jobs.tasks else None

    def wait(self, record: Record) -> None:
        """The pod waits for a place; after a binding that failed, it pauses first."""
        assert record.ticket is not None, "a pod that waits has a ticket"
        record.ticket.epoch = self._present_epoch
        if record.ticket.failures:
            self._failed[record.key] = None
        self._see(record, record.ticket.request)

    def see(self, record: Record) -> None:
        """The pod has changed; it may be none of ours."""
        task = self.jobs.tasks.get(record.key)
        if task is not None and record.state in (State.WAITING, State.NOMINATED, State.ASSUMED):
            self._see(record, task.request)
        elif record.state is State.HELD and self._is_ours(record.pod):
            record.batched = True
            self._see(record, self._request(record.pod) if task is None else task.request)
        elif task is not None:
            self.lose(record.key)

    def finished(self, pod: manifest.Pod) -> None:
        """The pod has finished: it holds nothing, but still counts for its gang."""
        if self._is_ours(pod):
            status = Status.SUCCEEDED if pod.status.phase == "Succeeded" else Status.FAILED
            self.jobs.see(pod, Request(), {}, status, pod.spec.node_name)

    def lose(self, key: str) -> None:
        """The pod is gone, or not ours any more."""
        if self.jobs.lose(key) is not None:
            self._hopes.leave(key)
            self._failed.pop(key, None)
            self._paused.pop(key, None)

    def lost_place(self, record: Record, pause: bool) -> None:
        """The place that was kept for a pod is another's, or its holder stays: it waits anew."""
        assert record.ticket is not None, "a pod that waits has a ticket"
        if pause:
            record.ticket.failures += 1
        self.wait(record)

    def handle(self, event: Event) -> None:
        """Take in what is about groups and queues."""
        jobs = self.jobs
        match event:
            case GroupSeen(group):
                jobs.see_group(group)
            case GroupGone(words, key):
                jobs.lose_group(words, key)
            case QueueSeen(queue):
                jobs.see_queue(queue)
            case QueueGone(name):
                jobs.lose_queue(name)
            case PriorityClassSeen(priority_class):
                jobs.see_class(priority_class)
            case PriorityClassGone(name):
                jobs.lose_class(name)
            case OwnerSeen(uid, min_member):
                self._see_again(jobs.see_owner(uid, min_member))
            case GroupsMade(by_volcano):
                self._see_again(jobs.groups_made(by_volcano))
            case Configured(configuration, group_timeout):
                self.configuration, self._halves.timeout = configuration, group_timeout
                self._scoring = Scoring(configuration, self._named)
                self._hopes.refused.clear()
                jobs.news = True

    def freed(self, nodes: Iterable[str]) -> None:
        """Something was given back or has changed on these nodes, or somebody begins to leave them."""
        if self._hopes or self._rejected:
            self._hopes.freed(nodes)
            if self._preemptor.nominations.waiting(nodes):  # what is kept for them does not look free
                self.jobs.news = True

    def budgets_changed(self) -> None:
        """Others may have to leave than before."""
        self.jobs.news = self.jobs.news or self._takes

    @property
    def _takes(self) -> bool:
        """Whether others may have to leave for those who wait."""
        return not TAKING.isdisjoint(self.configuration.actions)

    def changed(self, changes: Collection[Hashable]) -> None:
        """This has happened somewhere."""
        if self._hopes.changed(changes):
            self.jobs.news = True

    def relieved(self, namespaces: Iterable[str]) -> None:
        """The quotas of these namespaces, or what is used of them, have changed."""
        if not self._over_quota.isdisjoint(namespaces):
            self.jobs.news = True

    def take_over(self) -> None:
        """Begin to decide: others may have decided meanwhile."""
        self.jobs.read_phases()
        self.jobs.touched.update(dict.fromkeys(self.world.jobs))
        self.jobs.touched_queues.update(dict.fromkeys(self.world.queues))
        self.jobs.news = True

    def stand_by(self) -> None:
        """Another scheduler decides; what was whole once is remembered, where no object says so."""
        for key in self.jobs.touched:
            job = self.world.jobs.get(key)
            if job is not None and not job.written:
                job.phase = phase_of(job, unschedulable=False)
        self.jobs.touched.clear()

    # Time

    def begin(self, now: float) -> None:
        """A cycle begins."""
        self._now, self._ran, self._first = now, False, None
        if self._failed or self._paused:
            self._pass_pauses(now)
        self._look_after(now)
        if self.jobs.asking or self.jobs.warnings:
            self._ask_and_warn()
        if self._hopes.in_doubt and (self._hopes.look() or self._rejected):
            self.jobs.news = True

    def _pass_pauses(self, now: float) -> None:
        for key in self._failed:
            task, ticket = self.jobs.tasks[key], self._records[key].ticket
            if ticket is not None and task.status is Status.PENDING:
                task.paused_until = now + min(FIRST_PAUSE * 2 ** (ticket.failures - 1), LONGEST_PAUSE)
                self._paused[key] = task.paused_until
        self._failed.clear()
        for key in [key for key, until in self._paused.items() if until <= now]:
            del self._paused[key]
            self.jobs.news = True

    def _ask_and_warn(self) -> None:
        for ask in self.jobs.asking:
            self._emit(ask)
        self.jobs.asking.clear()
        for text in self.jobs.warnings:
            self._emit(Warn(text))
        self.jobs.warnings.clear()

    def due(self, now: float) -> bool:
        """Whether a session may do something for somebody, and none has run in this cycle."""
        return self.jobs.news and not self._ran and now >= self._rests_until

    def comes_before(self, ticket: Ticket | None) -> bool:
        """Whether a job that waits is more important than the next pod of the line."""
        if self._first is None:
            self._first = max((job.priority for job in self.jobs.waiting()), default=NOBODY)
        return ticket is None or self._first > ticket.priority

    def run(self, now: float) -> None:
        """Run a session."""
        self._ran = True
        self._read_again()
        self.jobs.news = False
        if not any(self.jobs.waiting()):
            return
        self._decided = 0
        self.sessions += 1
        session = registry.run(
            self.world,
            self._decider,
            self.configuration,
            self,
            self._preemptor.nominations,
            now,
            self._hopes.refused,
            self._preemptor.budgets,
            MOST_PER_SESSION,
        )
        self._hopes.note_cures()
        self._over_quota = {key.partition("/")[0] for key in session.misfits}
        self._rejected = any(job.phase is Phase.PENDING for job in self.jobs.waiting())
        self.jobs.touched.update(dict.fromkeys(job.key for job in session.admitted))
        if session.admitted or session.full:
            self.jobs.news = True
        elif not self._decided:
            self._rests_until = now + REST
        self._bulletin.learn(session, now)

    def end(self, now: float) -> None:
        """A cycle ends."""
        self._look_after(now)
        if self._bulletin:
            for instruction in self._bulletin.instructions(now):
                self._emit(instruction)

    def wakes_at(self) -> float | None:
        """When the next cycle is due without an event: 0 for at once, None if only an event can bring work."""
        if self._failed or self._hopes.in_doubt or self.jobs.touched or self.jobs.touched_queues:
            return 0.0
        due = [*self._paused.values(), *(self._halves.ends(self.world.jobs[key]) for key in self._halves)]
        if (news := self._bulletin.next()) is not None:
            due.append(news)
        if self.jobs.news:
            due.append(self._rests_until)
        return min(due, default=None)

    # The hand of sessions

    def bind(self, task: Task, placement: Placement) -> None:
        """The task gets its place."""
        record = self._records[task.key]
        self._decided += 1
        assert record.ticket is not None, "a pod that waits has a ticket"
        self._preemptor.end(record)
        self._bind(record, record.ticket, placement, self._now)
        self._note(task, Status.BINDING, placement.node)

    def keep(self, task: Task, placement: Placement) -> None:
        """The task gets this place as soon as others have left it; until then it is kept."""
        record = self._records[task.key]
        if record.state is State.NOMINATED and self._decider.snapshot.bookings[task.key].placement == placement:
            self._note(task, Status.PIPELINED, placement.node)
            return
        self._decided += 1
        self._preemptor.keep(record, placement, self._now)
        self._note(task, Status.PIPELINED, placement.node)

    def drop(self, task: Task, why: str) -> None:
        """The place that was kept for the task is given up."""
        record = self._records[task.key]
        self._decided += 1
        self._preemptor.give_up(record, why)
        self._note(task, Status.PENDING, "")

    def evict(self, victim: Task, preemptor: Task, event: str) -> None:
        """The victim must leave."""
        record, taker = self._records[victim.key], self._records[preemptor.key].pod
        self._decided += 1
        message = f"{event} by pod {taker.metadata.uid} on node {victim.node}"
        self._preemptor.send_away(record, event, manifest.PREEMPTED, message)
        self._note(victim, Status.RELEASING, victim.node)

    def _note(self, task: Task, status: Status, node: str) -> None:
        """The task has this status for good."""
        self.world.move(task, status)
        task.node = node
        self.jobs.touch(task.job)
        self._hope(task)

    # How events become tasks

    def _see(self, record: Record, request: Request) -> None:
        known = self.jobs.tasks.get(record.key)
        before = None if known is None else known.status
        task = self.jobs.see(record.pod, request, self._amounts(record, request), _status(record), record.node)
        if task.status is not before and self._takes:
            self.jobs.news = True
        self._hope(task)

    def _hope(self, task: Task) -> None:
        if task.status in WAITING:
            self._hopes.wait(task.key, task.request)
        else:
            self._hopes.leave(task.key)

    def _amounts(self, record: Record, request: Request) -> Amounts:
        """What a pod holds, or else what it asks for."""
        return (self._dimensions.held(record.key) if record.node else None) or self._dimensions.asked(request)

    def _named(self, name: str) -> str:
        """Our name of a resource, by the one that users write."""
        return min(self._dimensions.meaning(name), default=name)

    def _see_again(self, keys: Iterable[str]) -> None:
        for key in keys:
            record = self._records.get(key)
            if record is not None:
                self.see(record)
            else:
                self.finished(self.jobs.tasks[key].pod)

    def _is_ours(self, pod: manifest.Pod) -> bool:
        try:
            return self._serves(pod) and governed(pod)
        except Refusal:
            return False

    def _request(self, pod: manifest.Pod) -> Request:
        """What a pod that has its place asked for."""
        try:
            return self._decider.request(pod)
        except Refusal:
            return Request()

    def _read_again(self) -> None:
        """Read anew what may mean something else, because other pods have come that concern it, or other cards."""
        if self._estimated_at != self._dimensions.version:
            self._estimated_at = self._dimensions.version
            self._scoring = Scoring(self.configuration, self._named)
            self.jobs.read_amounts()
        if self._epoch == self._present_epoch:
            return
        self._epoch = self._present_epoch
        for job in self.jobs.waiting():
            for task in tuple(job.with_status(Status.PENDING)):
                record = self._records[task.key]
                assert record.ticket is not None, "a pod that waits has a ticket"
                if record.ticket.epoch != self._epoch:
                    record.ticket.request = self.read(task.pod, self._decider.again(task.request, task.pod))
                    record.ticket.epoch = self._epoch
                    self._see(record, record.ticket.request)

    @property
    def _present_epoch(self) -> int:
        """Grows when requests that were read before may mean something else."""
        return self._decider.snapshot.epoch + self._dimensions.version

    # After sessions

    def _look_after(self, now: float) -> None:
        """What has become of jobs of which something changed; and those whose time is over."""
        if not self.jobs.touched and not self._halves:
            return
        touched, self.jobs.touched = self.jobs.touched, {}
        for key in touched:
            job = self.world.jobs.get(key)
            if job is None:
                self._halves.forget(key)
                self._bulletin.forget(key)
            else:
                self._look_at(job, now)
        queues, self.jobs.touched_queues = self.jobs.touched_queues, {}
        for name in queues:
            self._bulletin.see_queue(name)
        for key in self._halves:
            job = self.world.jobs[key]
            if self._halves.ends(job) <= now:
                self._end_half(job, now)

    def _look_at(self, job: Job, now: float) -> None:
        job.phase = phase_of(job, self._bulletin.unschedulable(job))
        self._halves.look(job, now)
        missing = self.jobs.missing(job)
        if missing:  # no session does it
            for task in list(job.with_status(Status.PIPELINED)):
                self.drop(task, missing)
            for task in job.with_status(Status.PENDING):
                self._tell_why(task, missing)
        self._bulletin.see(job, whole=job.ready_count >= job.min_member)

    def _end_half(self, job: Job, now: float) -> None:
        """The members of a gang that could not be completed in time give back what they hold."""
        bound, lasts = job.count(*HOLDING), self._halves.lasts(job, now)
        message = (
            f"{bound:,} of the {job.min_member:,} members that gang {job.name} needs were bound, "
            f"and for {lasts:,.0f} s there was no place for the others"
        )
        self._halves.told(job, now)
        for task in list(job.with_status(Status.BOUND, Status.RUNNING)):
            self._preemptor.send_away(self._records[task.key], TIMEOUT_EVENT, TIMEOUT_EVENT, message)
            self._note(task, Status.RELEASING, task.node)

    def _tell_why(self, task: Task, message: str) -> None:
        """Tell the user of a pod why it waits."""
        self._tell(self._records[task.key], message)


def _status(record: Record) -> Status:
    """How far the task of a pod is."""
    match record.state:
        case State.NOMINATED:
            return Status.PIPELINED
        case State.ASSUMED:
            return Status.BINDING
        case State.HELD if record.leaving:
            return Status.RELEASING
        case State.HELD:
            return Status.RUNNING if record.pod.started else Status.BOUND
    return Status.PENDING
