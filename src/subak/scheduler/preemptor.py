"""Carries out plans by which less important pods make room, and sees to it that the room goes to whom it was made for.

    make_room ── plan ──> nominated: the place is booked, victims are sent away ── victims gone ──> review ──> bound
                                 │
                                 └── a more important pod takes the place, or a victim stays ──> in the line again

Victims are sent away only after the whole placement succeeded in a transaction.  Those that are leaving already are not
sent away again, so that a new core that finds half of them gone goes on where the last one stopped.

Pods of gangs (`scheduler.batcher`) do not stand in the line.  Their sessions decide who leaves for them; their places
are kept here like all others, and who loses one goes back to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from subak.model import manifest
from subak.model.placement import Placement
from subak.policy.budgets import Budgets
from subak.policy.preempt import Plan, waits_for
from subak.scheduler.books import Books
from subak.scheduler.messages import Evict, Instruction, Nominate
from subak.scheduler.nominations import Nominations, Outlook
from subak.scheduler.record import Record, State
from subak.scheduler.story import Moment, Word
from subak.scheduler.waiting import Line, Ticket


@dataclass(frozen=True, slots=True)
class Nominated:
    """The pod waits for others to leave its place; the message is for its user."""

    message: str


class Preemptor:
    """Makes room for pods of the line.  `returning` are pods that others have nominated, or we did before a restart."""

    def __init__(
        self,
        books: Books,
        line: Line,
        records: Mapping[str, Record],
        emit: Callable[[Instruction], None],
        moment: Callable[[], Moment],
        lost_place: Callable[[Record, bool], None],
        changed: Callable[[Record], None],
        leaves: Callable[[str], None],
    ) -> None:
        """`lost_place` gets pods that do not stand in the line, and whether to pause.

        `changed` gets who was sent away or stays, `leaves` each node that somebody begins to leave.
        """
        self.returning: list[str] = []
        self._emit = emit
        self._books = books
        self._line = line
        self._records = records
        self._moment = moment
        self._lost_place = lost_place
        self._changed = changed
        self._leaves = leaves
        self._nominations = Nominations(books.decider, records)

    @property
    def nominations(self) -> Nominations:
        """Who leaves which node, and who waits there."""
        return self._nominations

    @property
    def budgets(self) -> Budgets:
        """The cluster's PodDisruptionBudgets."""
        return self._nominations.preemption.budgets

    def see(self, record: Record) -> None:
        """A bound pod has changed: it may be leaving."""
        if self._nominations.see(record):
            self._leaves(record.node)

    def forget(self, record: Record) -> None:
        """The pod is no longer where it was: it is gone, or bound."""
        self._nominations.leave(record)

    def freed(self, nodes: Iterable[str]) -> None:
        """Something was freed or has changed on these nodes: those that wait there are tried."""
        for key in self._nominations.waiting(nodes):
            self._line.again(key)

    def make_room(self, record: Record, ticket: Ticket, now: float) -> Placement | Nominated | None:
        """What becomes of a pod that fits nowhere: a place at once, a place to come, or None."""
        plan = self._nominations.plan(ticket)
        if plan is None:
            return None
        displaced = self._nominations.displaced(ticket, plan)
        room = self._nominations.room(ticket, plan, displaced)
        for each in displaced:
            self._requeue(each, f"pod {record.key} is more important")
        if room:
            return plan.placement
        return self._carry_out(plan, record, ticket, now)

    def review(self, record: Record, ticket: Ticket) -> Placement | Nominated | None:
        """What becomes of a nominated pod now.  None if its place is lost: then it is like any other."""
        outcome = self._nominations.review(record, ticket)
        if outcome is Outlook.WAITS:
            self._line.refuse(ticket)
            return Nominated(waits_for(record.node, self._nominations.in_the_way(record)))
        if outcome is Outlook.LOST:
            self.withdraw(record, "its place is taken")
            record.state = State.WAITING
            return None
        self.end(record)
        return outcome

    def end(self, record: Record) -> None:
        """The pod no longer waits for others: it gets its place, or another one."""
        if record.state is State.NOMINATED and record.ticket is not None:
            self._nominations.leave(record)
            self._books.move(record, "")
            record.ticket.nominated = ""

    def withdraw(self, record: Record, why: str = "") -> None:
        """End a pod's nomination, if it has one, and give up the place that was kept."""
        if record.state is State.NOMINATED:
            self._line.remove(record.key)
            record.note(self._moment(), Word.WITHDRAWN, why)
            self._nominations.leave(record)
            self._books.move(record, "")
            record.state, record.annotations, record.reported = State.ASIDE, {}, ""
            if record.ticket is not None:
                record.ticket.nominated = ""
            self._emit(Nominate(record.key, record.pod.metadata.uid, ""))

    def evict_failed(self, key: str, uid: str) -> None:
        """A victim stays: those that wait for its place look for another one, after a pause."""
        victim = self._records.get(key)
        if victim is None or not victim.evicted or victim.pod.metadata.uid != uid:
            return
        victim.evicted = False
        self.see(victim)
        self._changed(victim)
        for waiting in self._nominations.waiting([victim.node]):
            self._requeue(self._records[waiting], f"pod {key} could not be evicted", pause=True)

    def restore(self, now: float) -> None:
        """Keep the places of pods that others have nominated, before anybody else is decided on."""
        if not self.returning:
            return
        tickets = [ticket for key in dict.fromkeys(self.returning) if (ticket := self._ticket(key)) is not None]
        self.returning.clear()
        for ticket in sorted((each for each in tickets if not each.nominated), key=lambda each: each.rank):
            record = self._records[ticket.key]
            found = self._nominations.restored(record, ticket)
            if found is not None:
                self._line.remove(ticket.key)
                # What we see may be older than a wish of ours to clear the field.
                self._nominate(record, ticket, found.placement, now)
                self._line.again(ticket.key)
                if not found.room:
                    self._finish_evictions(record)

    def _ticket(self, key: str) -> Ticket | None:
        """That of a pod that waits, in the line or in a gang."""
        record = self._records.get(key)
        return None if record is None or record.state not in (State.WAITING, State.NOMINATED) else record.ticket

    def keep(self, record: Record, placement: Placement, now: float) -> None:
        """Keep a place for a pod that others have still to leave."""
        assert record.ticket is not None, "a pod that waits has a ticket"
        self._nominations.leave(record)
        record.note(self._moment(), Word.NOMINATED, placement)
        self._books.reserve(record, record.ticket.request, placement, now)
        record.state, record.ticket.nominated = State.NOMINATED, placement.node
        self._nominations.enter(record)
        self._emit(Nominate(record.key, record.pod.metadata.uid, record.node))
        if record.batched:
            self._finish_evictions(record)

    def give_up(self, record: Record, why: str) -> None:
        """Give up a place that was kept; the pod waits on."""
        self.withdraw(record, why)
        record.state = State.WAITING

    def send_away(self, victim: Record, event: str, reason: str, message: str) -> None:
        """Evict a pod, unless that has been done."""
        if not victim.evicted and victim.pod.metadata.deletion_timestamp is None:
            victim.evicted = True
            victim.note(self._moment(), Word.EVICTED, message)
            self.see(victim)
            self._emit(Evict(victim.key, victim.pod.metadata.uid, event, reason, message))

    def _carry_out(self, plan: Plan, record: Record, ticket: Ticket, now: float) -> Nominated:
        self._nominate(record, ticket, plan.placement, now)
        for victim in plan.victims:
            self._evict(self._records[victim.key], record)
        self._finish_evictions(record)
        return Nominated(waits_for(record.node, self._nominations.in_the_way(record)))

    def _nominate(self, record: Record, ticket: Ticket, placement: Placement, now: float) -> None:
        """Keep a place for a pod of the line, or of a gang."""
        self.keep(record, placement, now)
        if record.batched:
            self._changed(record)
        else:
            self._line.placed(ticket, placement.node)
            self._line.refuse(ticket)

    def _requeue(self, record: Record, why: str, pause: bool = False) -> None:
        """End a nomination; the pod is tried anew."""
        ticket = self._line.remove(record.key)
        self.give_up(record, why)
        if ticket is None:
            self._lost_place(record, pause)
        elif pause:
            ticket.failures += 1
            self._line.fail(ticket)
        else:
            self._line.add(ticket)

    def _evict(self, victim: Record, preemptor: Record) -> None:
        message = f"Preempted by pod {preemptor.pod.metadata.uid} on node {preemptor.node}"
        self.send_away(victim, "Preempted", manifest.PREEMPTED, message)
        self._changed(victim)

    def _finish_evictions(self, preemptor: Record) -> None:
        """Delete those that a scheduler before us marked, but did not come to delete."""
        nominations, batched = self._nominations, preemptor.batched
        for key in sorted(nominations.leaving(preemptor.node)) if batched else nominations.in_the_way(preemptor):
            self._evict(self._records[key], preemptor)
