"""What each queue deserves of a cluster: in proportion to its weight, and no more than it asks for.

    most(q)  = min(max(total - guarantees of all, 0) + guarantee(q), capability(q))

    deserved(q) = 0 for each queue; remaining = total
    repeat
        for each queue q that has not enough yet
            deserved(q) += remaining x weight(q) / weights of all such queues
            deserved(q)  = min(deserved(q), most(q), asked(q)), at least guarantee(q)
            it has enough if that is all that it asks for, or as much as before
        remaining -= what was given in this round
    until nothing remains, or nothing was given

All queues of a round share the same remainder, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Collection

from subak.batch.amounts import SLACK, Amounts, add, largest_part, times, within
from subak.batch.world import Queue

MOST_ROUNDS = 1_000
"""Each round satisfies a queue or a resource, but for those that guarantees keep going."""


def guarantees(queues: Collection[Queue]) -> dict[str, float]:
    """What all queues have in any case, together."""
    together: dict[str, float] = {}
    for queue in queues:
        add(together, queue.guarantee)
    return together


def most(queue: Queue, total: Amounts, guaranteed: Amounts) -> dict[str, float]:
    """The most that a queue may have, where all queues together are guaranteed so much."""
    limits = {
        name: max(amount - guaranteed.get(name, 0), 0) + queue.guarantee.get(name, 0)
        for name, amount in (dict.fromkeys(queue.guarantee, 0) | dict(total)).items()
    }
    for name, limit in queue.capability.items():
        limits[name] = min(limit, limits.get(name, 0))
    return limits


def deserved(queues: Collection[Queue], total: Amounts, guaranteed: Amounts) -> dict[str, dict[str, float]]:
    """What each of these queues deserves, by the queue's name."""
    limits = {queue.name: _capped(queue.asked, most(queue, total, guaranteed)) for queue in queues}
    found: dict[str, dict[str, float]] = {queue.name: {} for queue in queues}
    hungry = list(queues)
    remaining = dict(total)
    for _ in range(MOST_ROUNDS):
        weights = sum(queue.weight for queue in hungry)
        if not weights:
            break
        given = dict.fromkeys(remaining, 0.0)
        still: list[Queue] = []
        for queue in hungry:
            old = found[queue.name]
            new = _grown(old, times(remaining, queue.weight / weights), limits[queue.name], queue.guarantee)
            found[queue.name] = new
            for name in given:  # exactly: what is lost in a round would be given once more in the next
                given[name] += new.get(name, 0) - old.get(name, 0)
            if new != old and not within(queue.asked, new):
                still.append(queue)
        left = {name: max(amount - given[name], 0) for name, amount in remaining.items()}
        if left == remaining or all(amount < 0.1 for amount in left.values()):
            break
        hungry, remaining = still, left
    return {name: {each: amount for each, amount in mine.items() if amount > SLACK} for name, mine in found.items()}


def share(held: Amounts, deserves: Amounts) -> float:
    """How much of what it deserves a queue holds, of the resource of which that is most."""
    return largest_part(held, dict.fromkeys(held, 0.0) | dict(deserves))


def satisfied(held: Amounts, deserves: Amounts) -> bool:
    """Whether a queue has all that it deserves, of every resource."""
    return within(deserves, held)


def _capped(amounts: Amounts, limits: Amounts) -> dict[str, float]:
    return {name: min(amount, limits.get(name, 0)) for name, amount in amounts.items()}


def _grown(old: Amounts, more: Amounts, limits: Amounts, guarantee: Amounts) -> dict[str, float]:
    grown = {name: min(old.get(name, 0) + more.get(name, 0), limit) for name, limit in limits.items()}
    for name, amount in guarantee.items():
        grown[name] = max(grown.get(name, 0), amount)
    return grown
