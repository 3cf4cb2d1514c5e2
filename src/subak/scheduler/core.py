"""The scheduler without its loop: it takes events and gives instructions.

Every pod has one record with one state (`scheduler.record`).  A pod is booked before its binding is sent.  The booking
ends only when the pod is gone, has finished, is bound elsewhere, or its binding was refused.  So no card is promised
twice, and a pod never waits in the line while it may be bound.  Nothing is stored: a new core that sees all nodes and
pods knows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable

import msgspec

from subak.dialects import mark
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.model.request import Request
from subak.policy.decider import Decider, Exceeded
from subak.policy.explain import Explanation
from subak.scheduler.batcher import Batcher
from subak.scheduler.books import Books
from subak.scheduler.explainer import Explainer
from subak.scheduler.messages import (
    AgentGone,
    AgentSeen,
    Bind,
    BindFailed,
    BudgetGone,
    BudgetSeen,
    Configured,
    DeviceGone,
    DeviceSeen,
    Event,
    EvictFailed,
    Instruction,
    NamesChanged,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    QuotasSeen,
    Report,
    Restore,
    StorageGone,
    StorageSeen,
    Warn,
)
from subak.scheduler.preemptor import Nominated, Preemptor
from subak.scheduler.record import Record, State
from subak.scheduler.repair import Repair
from subak.scheduler.story import Moment, Story, Word, printed
from subak.scheduler.waiting import Line, Ticket
from subak.snapshot.cluster import Overcommitted, Snapshot

GATED = "scheduling gates"
NEVER = "Never"
MOST_PER_CYCLE = 1_000


def everything(pod: manifest.Pod) -> bool:
    """Serve all pods, as on one machine."""
    return True


class Core:
    """Events in, instructions out."""

    def __init__(
        self, interpreter: Interpreter | None = None, serves: Callable[[manifest.Pod], bool] = everything
    ) -> None:
        self.interpreter = interpreter or Interpreter()
        self._decider = Decider(self.interpreter)
        self._books = Books(self._decider)
        self._serves = serves
        self._line = Line(self.snapshot)
        self._explainer = Explainer(self.snapshot)
        self._records: dict[str, Record] = {}
        self._preemptor = Preemptor(
            self._books,
            self._line,
            self._records,
            lambda instruction: self._out.append(instruction),
            lambda: self._moment,
            lambda record, pause: self.batch.lost_place(record, pause),
            lambda record: self.batch.see(record),
            lambda node: self.batch.freed([node]),
        )
        self.batch = Batcher(
            self._decider,
            self._records,
            self._preemptor,
            serves,
            lambda instruction: self._out.append(instruction),
            self._bind,
            self._tell,
        )
        self._out: list[Instruction] = []
        self._arrivals = 0
        self._moment = Moment()
        self._repair = Repair(self._books, serves, self._moment)

    @property
    def snapshot(self) -> Snapshot:
        """All nodes, what every pod holds, and what every namespace uses."""
        return self._decider.snapshot

    @property
    def needs_variables(self) -> bool:
        """Whether there has been a node where containers get their cards by variables (`model.variables`)."""
        return self._books.needs_variables

    def __len__(self) -> int:
        """How many pods have no place yet."""
        return len(self._line) + len(self.batch)

    def state(self, key: str) -> State | None:
        """Where a pod is in its life; None if there is no such pod, or it has finished."""
        record = self._records.get(key)
        return None if record is None else record.state

    def story(self, key: str) -> Story:
        """Why a pod is where it is; empty if there is no such pod, or it has finished."""
        record = self._records.get(key)
        return () if record is None else record.story

    def reason(self, key: str) -> str:
        """What the pod's user was told last of why it waits; empty if it does not."""
        record = self._records.get(key)
        return "" if record is None else record.reported

    def explaining(self, key: str) -> Generator[int, None, Explanation | None]:
        """What every node says to a waiting pod, step by step; None if it does not wait.

        Raises Refusal if the pod asks for something that cannot be.
        """
        record = self._records.get(key)
        if record is None or record.state in (State.ASSUMED, State.HELD):
            return None
        return (yield from self._decider.explaining(record.pod))

    def seen_at(self, key: str) -> float | None:
        """When the pod was first seen; None if that is not known yet."""
        record = self._records.get(key)
        return None if record is None else record.since.at

    def locks(self, key: str) -> tuple[str, ...]:
        """The node locks that the vendors' agents need for the cards of a decided pod."""
        booking = self.snapshot.bookings.get(key)
        if booking is None:
            return ()
        placement = booking.placement
        return self.interpreter.locks(placement, self.snapshot.node(placement.node))

    def handle(self, event: Event) -> None:
        """Take in an event.  Repeated events do no harm, nor do late ones about a bound pod."""
        match event:
            case PodSeen(pod):
                self._pod_seen(pod)
            case PodGone(key):
                self._release(key)
            case NodeSeen(node):
                self._books.see_node(node)
            case NodeGone(name):
                self._books.lose_node(name)
            case DeviceSeen(device):
                self._books.see_device(device)
            case DeviceGone(name):
                self._books.lose_device(name)
            case NamespaceSeen(namespace):
                self.snapshot.see_namespace(namespace.name, namespace.labels)
            case NamespaceGone(name):
                self.snapshot.lose_namespace(name)
            case QuotasSeen(namespace, quotas):
                self._books.warnings += self._decider.quotas.replace(namespace, quotas)
                self.snapshot.relieved[namespace] = None
            case NamesChanged():
                self._see_waiting_again()
            case StorageSeen(object):
                self._books.see_stored(object)
            case StorageGone(object):
                self._books.lose_stored(object)
            case AgentSeen(name, until):
                self._books.see_agent(name, until)
            case AgentGone(name):
                self._books.lose_agent(name)
            case BindFailed(key, uid, message):
                self._bind_failed(key, uid, message)
            case BudgetSeen(budget):
                self._preemptor.budgets.put(budget)
                self.batch.budgets_changed()
            case BudgetGone(key):
                self._preemptor.budgets.remove(key)
                self.batch.budgets_changed()
            case EvictFailed(key, uid):
                self._preemptor.evict_failed(key, uid)
            case Configured():
                self.batch.handle(event)
                self._see_waiting_again()
            case _:
                self.batch.handle(event)
        self._pass_on()

    def cycle(self, now: float, most: int = MOST_PER_CYCLE) -> list[Instruction]:
        """Decide on pods whose turn it is, at most so many."""
        self._moment.at = now
        self._books.pass_time(now)
        self._pass_on()
        self._out += self._repair.look(now, self._moment)
        self._preemptor.restore(now)
        self.batch.begin(now)
        for _ in range(most):
            ticket = self._line.pop(now)
            for joined in self._line.joined:
                self._explainer.refused(joined, now)
            self._line.joined.clear()
            if self.batch.due(now) and self.batch.comes_before(ticket):
                self._run_session(now)
            if ticket is None:
                break
            self._decide(ticket, now)
        if self.batch.due(now):
            self._run_session(now)
        self.batch.end(now)
        for key, message, reasons in self._explainer.answers(now):
            self._report(self._records[key], message, reasons)
        out, self._out, self._moment = self._out, [], Moment()
        return out

    def stand_by(self, now: float) -> list[Instruction]:
        """Pass time while another replica decides.  Only warnings come out; what else was to be done, it does."""
        self._moment.at = now
        self._books.pass_time(now)
        self._pass_on()
        self._line.tidy()
        self.batch.stand_by()
        warnings: list[Instruction] = [each for each in self._out if isinstance(each, Warn)]
        self._out, self._moment = [], Moment()
        return warnings

    def take_over(self) -> None:
        """Begin to decide.  What the last leader may have left undone is done again, which does no harm."""
        for record in self._records.values():
            if record.edited is not None:
                record.edited = None
                self._guard(record)
            elif record.state is State.ASIDE and record.reported:
                message, record.reported = record.reported, ""
                self._report(record, message, {})
            elif record.state is State.WAITING and record.pod.status.nominated_node_name:
                self._preemptor.returning.append(record.key)
        self.batch.take_over()

    def wakes_at(self) -> float | None:
        """When the next cycle is due without an event: 0 for at once, None if only an event can bring work."""
        if self._line.ready or self._preemptor.returning:
            return 0.0
        due = (
            self._line.next_pause_ends(),
            self._explainer.due(),
            self._books.next_doubt_ends(),
            self._repair.next_look(),
            self.batch.wakes_at(),
        )
        return min((each for each in due if each is not None), default=None)

    def _pass_on(self) -> None:
        """Pass freed nodes and relieved namespaces to the line, overcommitted cards to the repair, and warnings on."""
        books, snapshot = self._books, self.snapshot
        if snapshot.freed:
            self._preemptor.freed(snapshot.freed)
            self._line.freed(snapshot.freed)
            self.batch.freed(snapshot.freed)
            snapshot.freed.clear()
        if snapshot.relieved:
            self._line.relieved(snapshot.relieved)
            self.batch.relieved(snapshot.relieved)
            snapshot.relieved.clear()
        if snapshot.changes:
            self._line.changed(snapshot.changes)
            self.batch.changed(snapshot.changes)
            snapshot.changes.clear()
        if books.overdrawn:
            self._repair.suspect(books.overdrawn)
            books.overdrawn.clear()
        if books.shrunk:
            self._repair.shrank(books.shrunk, self._moment)
            books.shrunk.clear()
        if books.warnings:
            self._out += [Warn(text) for text in books.warnings]
            books.warnings = []

    # Pods

    def _pod_seen(self, pod: manifest.Pod) -> None:
        key = pod.key
        record = self._records.get(key)
        if record is not None and record.pod.metadata.uid != pod.metadata.uid:
            self._release(key)  # another pod of the same name
            record = None
        if pod.finished:
            self._release(key)
            self.batch.finished(pod)
            return
        carried = self.interpreter.record(pod)
        nominated = "" if record is None else record.pod.status.nominated_node_name
        if record is None:
            record = self._records[key] = Record(key, pod, carried, self._moment)
            if not pod.spec.node_name:
                record.note(self._moment, Word.SEEN)
        if pod.spec.node_name:
            before = record.pod
            record.see(pod, carried)
            self._hold(record, before)
            self._preemptor.see(record)
            if record.batched or before is pod or before.annotations != pod.annotations or before.labels != pod.labels:
                self.batch.see(record)
        elif record.state is State.ASSUMED:
            before = record.pod
            record.see(pod, carried)
            if not self._asks_the_same(before, pod):
                self._books.book(record)  # its binding is under way: the allocation stays, other fields may differ
        elif record.state is State.NOMINATED and self._goes_on(record.pod, pod):
            record.see(pod, carried)
        elif record.state is not State.HELD:  # a held pod without a node is a late event
            record.see(pod, carried)
            self._preemptor.withdraw(record)
            self._enqueue(record)
            if pod.status.nominated_node_name not in ("", nominated):
                self._preemptor.returning.append(key)

    def _hold(self, record: Record, before: manifest.Pod) -> None:
        """Book what a bound pod holds."""
        pod, carried = record.pod, record.carried
        if record.state is State.HELD and record.node == pod.spec.node_name:
            if carried == record.annotations and self._asks_the_same(before, pod):
                return  # most updates of a running pod are about its status
            self._guard(record)
            self._books.book(record)
            return
        as_decided = (
            record.state is State.ASSUMED
            and record.node == pod.spec.node_name
            and record.digest is not None
            and record.digest is self.snapshot.node(record.node)
            and carried == record.annotations
            and self._asks_the_same(before, pod)
        )
        if record.ticket is not None:
            self._leave_line(record.key)
        if record.state is not State.ASSUMED or record.node != pod.spec.node_name:
            record.came = self._moment
        self._preemptor.forget(record)
        record.state, record.ticket, record.annotations, record.reported = State.HELD, None, carried, ""
        record.note(self._moment, Word.BOUND, pod.spec.node_name)
        if as_decided:  # it carries exactly what we booked
            self._books.confirm(record)
            if before.labels != pod.labels:
                self.snapshot.relabel(record.key, pod)
        else:
            self._books.move(record, pod.spec.node_name)
            self._books.book(record)

    def _guard(self, record: Record) -> None:
        """Restore the record of a bound pod if somebody changed it, unless the old one was unreadable."""
        carried = record.carried
        if carried == record.annotations:
            record.edited = None
        elif not record.known or not self._serves(record.pod) or self._books.means_the_same(record):
            record.annotations = carried  # HAMi's plugin, for one, adds the instances that it has cut
        elif carried != record.edited:
            record.edited = carried
            keys = sorted(carried.keys() | record.annotations.keys())
            undo = {key: record.annotations.get(key) for key in keys if carried.get(key) != record.annotations.get(key)}
            self._out.append(Restore(record.key, record.pod.metadata.uid, undo))
            record.note(self._moment, Word.PUT_BACK, ", ".join(undo))
            self._books.warnings.append(
                f"pod {record.key}: somebody changed {', '.join(undo)}, which records what the pod holds; put back"
            )

    def _enqueue(self, record: Record, failures: int = 0) -> None:
        """Put a pod in the line, or move it there if its request has changed."""
        pod = record.pod
        ours = self._serves(pod)
        if not ours or pod.metadata.deletion_timestamp is not None:
            self._set_aside(record, "another scheduler's, or being deleted")
            self._reserve(record, "" if ours else self.interpreter.chosen(pod))
            return
        if record.state is State.ASIDE:
            self._reserve(record, "")  # another scheduler may have chosen its cards, before it became ours
        try:
            request, batched = self._decider.request(pod), self.batch.governs(pod)
            if batched:
                request = self.batch.read(pod, request)
        except Refusal as refusal:
            self._set_aside(record, "what it asks for cannot be")
            self._report(record, refusal.message, {})
            return
        if GATED in request.needs.unsupported:
            self._set_aside(record, GATED)
            return
        priority = pod.priority
        if record.batched != batched:
            self._set_aside(record, "others decide on it now")
            record.batched = batched
        standing = self.batch.standing(record) if batched else self._line.get(record.key)
        if standing is not None and standing.request == request and standing.priority == priority:
            if batched:
                self.batch.see(record)
            return  # nothing relevant has changed: it keeps its place
        self._arrivals += 1
        self._explainer.forget(record.key)
        ticket = Ticket(record.key, pod.namespace, request, priority, self._arrivals, failures)
        ticket.epoch = self.snapshot.epoch
        ticket.preempts = pod.spec.preemption_policy != NEVER
        record.state, record.ticket = State.WAITING, ticket
        record.note(self._moment, Word.QUEUED)
        if batched:
            self.batch.wait(record)
        elif failures:
            self._line.fail(ticket)
        else:
            self._line.add(ticket)

    def _reserve(self, record: Record, node: str) -> None:
        """Book what another scheduler has recorded before it binds the pod; nothing if it has chosen no node."""
        if node or record.node:
            self._books.move(record, node)
            record.annotations = record.carried if node else {}
            self._books.book(record)

    def _set_aside(self, record: Record, why: str) -> None:
        self._leave_line(record.key)
        self.batch.lose(record.key)
        record.state, record.ticket = State.ASIDE, None
        record.note(self._moment, Word.ASIDE, why)

    def _leave_line(self, key: str) -> None:
        self._line.remove(key)
        self._explainer.forget(key)

    def _bind_failed(self, key: str, uid: str, message: str) -> None:
        record = self._records.get(key)
        if record is None or record.state is not State.ASSUMED or record.pod.metadata.uid != uid:
            return
        failures = 1 if record.ticket is None else record.ticket.failures + 1
        self._preemptor.forget(record)
        self._books.move(record, "")
        record.state, record.annotations = State.ASIDE, {}
        record.note(self._moment, Word.REFUSED, message)
        self._enqueue(record, failures)

    def _see_waiting_again(self) -> None:
        """Whose pods wait, and what they ask for, is to be seen anew."""
        for record in self._records.values():
            if record.state in (State.WAITING, State.ASIDE):
                self._enqueue(record)
            else:
                self.batch.see(record)

    def _release(self, key: str) -> None:
        """Forget a pod that is gone or has finished."""
        self.batch.lose(key)
        record = self._records.pop(key, None)
        if record is not None:
            self._leave_line(key)
            self._preemptor.forget(record)
            self._books.move(record, "")

    # Decisions for another scheduler

    def asks_for_cards(self, pod: manifest.Pod) -> bool:
        """Whether a pod asks for cards at all.  Raises Refusal if what it asks for cannot be."""
        return bool(self._decider.request(pod).claims)

    def place_within(self, pod: manifest.Pod, names: Collection[str], now: float) -> Bind | Exceeded | None:
        """Decide for a pod that is not ours to place, among these nodes, and book it; None if none of them takes it.

        The booking ends as one of our own does: the pod is seen bound, is gone, or BindFailed gives it up.
        """
        record = self._records.get(pod.key)
        if record is None or record.pod.metadata.uid != pod.metadata.uid:
            self.handle(PodSeen(pod))  # the watch is late
            record = self._records.get(pod.key)
        if record is None or record.state is not State.ASIDE:
            return None
        request = self._decider.request(record.pod)
        answer = self._decider.decide(record.pod.namespace, request, within=frozenset(names))
        return self._assume(record, request, answer, now) if isinstance(answer, Placement) else answer

    def explain(self, pod: manifest.Pod) -> Explanation:
        """What every node says to a pod."""
        return self._decider.explain(pod)

    def pods_on(self, node: str) -> list[manifest.Pod]:
        """The pods that are bound to a node, or will be."""
        return [record.pod for record in self._books.there(node).values()]

    def fits_without(self, pod: manifest.Pod, node: str, keys: Iterable[str]) -> bool:
        """Whether a pod would fit on a node if these pods were gone."""
        request = self._decider.request(pod)
        with self.snapshot.transaction():
            for key in keys:
                self.snapshot.forget(key)
            return isinstance(self._decider.decide(pod.namespace, request, [node]), Placement)

    # Decisions

    def _decide(self, ticket: Ticket, now: float) -> None:
        record = self._records[ticket.key]
        self._read_again(ticket, record)
        match self._answer(record, ticket) or self._preemptor.make_room(record, ticket, now):
            case None:
                self._line.refuse(ticket)
                self._explainer.refused(ticket, now)
                self._pass_on()  # it may have lost a place
            case Nominated(message):
                self._explainer.forget(record.key)
                self._report(record, message, {})
                self._pass_on()
            case Exceeded(message, reasons):
                self._line.over_quota(ticket)
                self._report(record, message, reasons)
            case placement:
                self._bind(record, ticket, placement, now)

    def _read_again(self, ticket: Ticket, record: Record) -> None:
        """Read the request anew if other pods that concern this one may have come since it was read."""
        if ticket.epoch != self.snapshot.epoch:
            ticket.epoch = self.snapshot.epoch
            request = self._decider.again(ticket.request, record.pod)
            if request != ticket.request:
                self._explainer.forget(ticket.key)
                ticket.request = request

    def _answer(self, record: Record, ticket: Ticket) -> Placement | Nominated | Exceeded | None:
        """Where the pod goes: to the node that it is nominated for, if it fits there."""
        if ticket.nominated and (outcome := self._preemptor.review(record, ticket)) is not None:
            return outcome
        nominated = record.pod.status.nominated_node_name
        if nominated and (ticket.hopes is None or nominated in ticket.hopes):
            answer = self._decider.decide(ticket.namespace, ticket.request, (nominated,))
            if isinstance(answer, Placement):
                return answer
        return self._decider.decide(ticket.namespace, ticket.request, ticket.hopes)

    def _run_session(self, now: float) -> None:
        self.batch.run(now)
        self._pass_on()

    def _bind(self, record: Record, ticket: Ticket, placement: Placement, now: float) -> None:
        """Book a decision and bind the pod."""
        bind = self._assume(record, ticket.request, placement, now)
        self._line.placed(ticket, placement.node)
        self._pass_on()
        self._out.append(bind)

    def _assume(self, record: Record, request: Request, placement: Placement, now: float) -> Bind:
        """Book a decision; gives the binding that carries it out."""
        record.note(self._moment, Word.DECIDED, placement)
        try:
            self._books.assume(record, request, placement)
        except Overcommitted as error:
            error.add_note(printed(record.story))
            raise
        annotations = self._decider.written(record.pod, placement, int(now * 10**9))
        self._explainer.forget(record.key)
        record.state, record.reported, record.edited = State.ASSUMED, "", None
        record.came = self._moment
        record.annotations = self._books.recorded(record.pod, annotations)
        labels, volumes = self.interpreter.labels(placement), self._books.volumes.promises.of(record.key)
        if annotations and record.digest is not None:  # now: when the binding is sent, the agent may have taken leave
            annotations |= mark.required(record.digest.way)
        return Bind(record.key, record.pod.metadata.uid, placement.node, annotations, labels, volumes)

    def _tell(self, record: Record, message: str) -> None:
        """Tell the user of a pod that waits for a session, or find out what to tell."""
        if message:
            self._report(record, message, {})
        elif record.ticket is not None and self._moment.at is not None:
            self._explainer.refused(record.ticket, self._moment.at)

    def _report(self, record: Record, message: str, reasons: dict[str, int]) -> None:
        """Report why the pod waits, unless its last report said the same."""
        if record.reported != message:
            record.reported = message
            record.note(self._moment, Word.WAITS, message)
            self._out.append(Report(record.key, record.pod.metadata.uid, message, reasons))

    def _asks_the_same(self, one: manifest.Pod, other: manifest.Pod) -> bool:
        """Whether both versions of a pod ask for the same; its node and its allocation may differ."""
        if not self.interpreter.same_labels(one, other):
            return False
        if (one.metadata.deletion_timestamp is None) != (other.metadata.deletion_timestamp is None):
            return False  # pods that are being deleted do not count for topology spread
        if one.annotations != other.annotations and self._wishes(one) != self._wishes(other):
            return False
        if one.spec.node_name == other.spec.node_name:
            return one.spec == other.spec
        return one.spec == msgspec.structs.replace(other.spec, node_name=one.spec.node_name)

    def _goes_on(self, before: manifest.Pod, pod: manifest.Pod) -> bool:
        """Whether a nominated pod waits on for its place: nothing that matters there has changed."""
        return pod.metadata.deletion_timestamp is None and self._asks_the_same(before, pod)

    def _wishes(self, pod: manifest.Pod) -> dict[str, str]:
        owned = self.interpreter.owned_among(pod.annotations)
        return {key: text for key, text in pod.annotations.items() if key not in owned}
