"""The cheapest way to a place for one task: on which node, and who has to leave there.

A set of tasks may leave if the plugins, asked about just these, let all of them go; nobody leaves a node of whose tasks
they let none go.  What a set costs is kube-scheduler's order, with the weights of `batch.candidates` for priorities;
`policy.victims` searches card by card.
A queue that may not have the task may have it once enough of its own tasks are gone.

Bounds keep a search short, as in `policy.preempt`: MOST_LOOKS nodes are asked, those with the least important
candidates first; AT_ONCE are compared, and more only if none of them helps.  In larger clusters columns tell first
where amounts may suffice.  What a node costs at least is remembered until a task comes or goes there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from msgspec import structs

from subak.batch.candidates import Candidates
from subak.batch.session import Session
from subak.batch.world import Queue, Status, Task
from subak.model.budget import Budget
from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy import registry
from subak.policy.columns import possible
from subak.policy.levels import Relief
from subak.policy.preempt import AT_ONCE, MOST_LOOKS, Plan
from subak.policy.shortage import Shortage
from subak.policy.victims import Occupant, Price, Search, started, unasked
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import PLAIN
from subak.snapshot.watcher import Watcher


@dataclass(frozen=True, slots=True)
class Terms:
    """By which rules tasks are taken: whom a task may ask at all, and whom of those all plugins let go together."""

    concerns: Callable[[Task, Task], bool]
    consent: Callable[[Task, Sequence[Task]], list[Task]]
    event: str


class Reliefs(Watcher):
    """What nodes would have free without less important pods, in columns that outlive a session."""

    def __init__(self, relief: Relief) -> None:
        self.relief = relief

    @classmethod
    def start(cls, snapshot: Snapshot) -> Reliefs:
        """The columns of a snapshot."""
        return cls(Relief(snapshot))


class Takings:
    """Finds plans for tasks of one queue, in the open trial."""

    def __init__(self, session: Session, queue: Queue, candidates: Candidates, terms: Terms) -> None:
        self._session = session
        self._snapshot = session.snapshot
        self._queue = queue
        self.candidates = candidates
        self.terms = terms
        self._used: Counter[str] = Counter()
        self._bounds: dict[tuple[Request, bool], dict[str, Price | None]] = {}

    def look(self, requests: Iterable[Request]) -> None:
        """Find out on which nodes requests may get room: before the trial begins, because columns forget what it does.

        Trials only take of what columns count as free once all candidates have left.
        """
        for request in requests:
            if request not in self.candidates.hopeful:
                names = self.candidates.nodes
                if len(names) > MOST_LOOKS:
                    there = self._sufficient(request)
                    names = [name for name in names if name in there]
                self.candidates.hopeful[request] = names[:MOST_LOOKS]

    def plan(self, task: Task) -> Plan | None:
        """The cheapest way to a place; None if there is none."""
        names = iter(self.candidates.hopeful[task.request])
        while chunk := list(islice(names, AT_ONCE)):
            best = self._cheapest(chunk, task)
            if best is not None:
                return best
        return None

    def taken(self, victim: Occupant, sign: int = 1) -> None:
        """The victim leaves, which uses up what protects it; or stays, with sign -1."""
        self._used.update({budget.key: sign for budget in victim.budgets})
        self.changed(victim.booking.placement.node)

    def changed(self, node: str) -> None:
        """A task has come or gone there."""
        for known in self._bounds.values():
            known.pop(node, None)

    # Where

    def _sufficient(self, request: Request) -> set[str]:
        """Nodes that have enough if all pods leave that are no more important than some candidate."""
        plain = tuple((name, amount) for name, amount in request.needs.resources if name in PLAIN)
        easier = replace(request, needs=replace(request.needs, resources=plain))
        relief, limit = self._snapshot.watched(Reliefs).relief, self.candidates.highest
        return {
            pool.nodes[at].name
            for pool in self._snapshot.pools
            for at in np.flatnonzero(possible(relief.without(pool, limit), easier)).tolist()
        }

    def _cheapest(self, names: Iterable[str], task: Task) -> Plan | None:
        """The best plan on these nodes, which are asked in the order of what a plan there costs at least."""
        # What filters across nodes say changes with other nodes too.
        across = registry.across(self._snapshot, task.request)
        known = {} if across else self._bounds.setdefault((task.request, task.best_effort), {})
        bounds: list[tuple[Price, str]] = []
        for name in names:
            if name not in known:
                known[name] = self._bound(name, task)
            if (bound := known[name]) is not None:
                bounds.append((bound, name))
        best: Plan | None = None
        for bound, name in sorted(bounds):
            if best is not None and best.price <= (bound, name):
                break
            plan = self._on(name, task)
            if plan is not None and (best is None or plan.price < best.price):
                best = plan
        return best

    # On one node

    def _bound(self, name: str, task: Task) -> Price | None:
        """What a plan on this node costs at least; None if there can be none."""
        willing, _ = self._willing(name, task)
        if not willing:
            return None
        with self._snapshot.transaction():
            guess = self._search(name, task, willing).guess(self._occupants(willing))
        return None if guess is None else guess.bound

    def _on(self, name: str, task: Task) -> Plan | None:
        """The cheapest way to a place on this node."""
        willing, together = self._willing(name, task)
        with self._snapshot.transaction():
            search = self._search(name, task, willing)
            if len(together) < len(willing):
                search.allowed = lambda victims: self._allowed(task, victims)
            found = search.run(self._occupants(willing))
            if found is None and len(together) < len(willing):
                search.allowed = unasked
                found = search.run(self._occupants(together))
        return None if found is None else Plan(found[1], tuple(found[0]))

    def _search(self, name: str, task: Task, willing: Sequence[Task]) -> Search:
        request, snapshot = task.request, self._snapshot
        node = snapshot.node(name)
        assert node is not None, "room is sought on nodes that are there"
        limited = bool(self._session.unallocatable(self._queue, task))
        kept_off = any(each.refuse(node, request) is not None for each in registry.across(snapshot, request))

        def fits() -> Placement | None:
            placement = self._session.place_on(task, name)
            return placement if placement and (not limited or self._permitted(task, willing)) else None

        return Search(snapshot, fits, Shortage.of(snapshot, name, request), everybody=kept_off or limited)

    def _permitted(self, task: Task, willing: Iterable[Task]) -> bool:
        """Whether the queue may have the task without those who are out of the trial."""
        world = self._session.world
        gone = [(each, each.status) for each in willing if each.key not in self._snapshot.bookings]
        for each, _ in gone:
            world.move(each, Status.RELEASING)
        refusal = self._session.unallocatable(self._queue, task)
        for each, status in gone:
            world.move(each, status)
        return not refusal

    # Who

    def _willing(self, name: str, task: Task) -> tuple[list[Task], list[Task]]:
        """Candidates of whom each may leave, and those who may all leave; the least important come first."""
        there = [each for each in self.candidates.on(name) if self._there(each) and self.terms.concerns(task, each)]
        together = self.terms.consent(task, there) if there else []
        if not together or len(together) == len(there):
            return together, together
        agreed = {each.key for each in together}
        willing = [each for each in there if each.key in agreed or self.terms.consent(task, [each])]
        return willing, [each for each in there if each.key in agreed]

    def _there(self, task: Task) -> bool:
        booking = self._snapshot.bookings.get(task.key)
        return booking is not None and self._snapshot.home(task.node) is not None

    def _allowed(self, task: Task, victims: Sequence[Occupant]) -> bool:
        """Whether the plugins let all of these go."""
        tasks = [self.candidates.tasks[each.key] for each in reversed(victims)]
        return not tasks or len(self.terms.consent(task, tasks)) == len(tasks)

    def _occupants(self, tasks: Iterable[Task]) -> list[Occupant]:
        bookings, weights = self._snapshot.bookings, self.candidates.weights
        return [
            Occupant(task.key, task.pod, bookings[task.key], self._budgets(task), started(task.pod), weights[task.key])
            for task in tasks
        ]

    def _budgets(self, task: Task) -> tuple[Budget, ...]:
        """What protects a task, less what other victims have used up of it."""
        return tuple(self._less(each) for each in self._session.budgets.protecting(task.pod))

    def _less(self, budget: Budget) -> Budget:
        if not self._used[budget.key]:
            return budget
        allowed = budget.status.disruptions_allowed - self._used[budget.key]
        return structs.replace(budget, status=structs.replace(budget.status, disruptions_allowed=allowed))
