"""What preemption on a node would cost at least, remembered until the node changes.

Pods come in few shapes: of many that preempt one after the other, each finds that only the nodes of the others have
changed.  Within a transaction nothing is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from subak.policy.victims import Price
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Pool

MOST_SHAPES = 32

Known = dict[str, Price | None]
"""By node; None where nobody's leaving helps."""


@dataclass(slots=True)
class _Shape:
    known: Known = field(default_factory=dict)
    read: dict[Pool, tuple[int, int]] = field(default_factory=dict)


class Guesses:
    """The guesses of the shapes that were asked for last."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._shapes: OrderedDict[Hashable, _Shape] = OrderedDict()

    def of(self, shape: Hashable) -> Known:
        """What is known for a shape, and still true.  Add to it what is found out."""
        if self._snapshot.tentative:
            return {}
        found = self._shapes.setdefault(shape, _Shape())
        self._shapes.move_to_end(shape)
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.popitem(last=False)
        for pool in self._snapshot.pools:
            seen, generation = found.read.get(pool, (0, 0))
            if generation != pool.generation or len(pool.log) - seen > len(found.known):
                found.known.clear()
            else:
                for at in pool.log[seen:]:
                    found.known.pop(pool.nodes[at].name, None)
        found.read = {pool: (len(pool.log), pool.generation) for pool in self._snapshot.pools}
        return found.known
