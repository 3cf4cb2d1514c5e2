"""What a rule across nodes says to all nodes at one moment, by the nodes' numbers.

The rule puts its objections in the order in which a node is asked; the first that holds of a node is its reason.
`Memory` keeps the last answer, so that all pools, and the nodes asked one by one, share it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from subak.model.node import Node
from subak.model.reason import NodeRefusal
from subak.model.request import Request
from subak.snapshot.pool import Bools, Pool, Verdicts
from subak.snapshot.topology import Topology

Objection = tuple[Bools, NodeRefusal]
"""For each node whether it is out, and why."""


class Judged:
    """One reason, or none, for each node."""

    def __init__(self, room: int, objections: Sequence[Objection]) -> None:
        self.codes: npt.NDArray[np.int32] = np.zeros(room, np.int32)
        self.texts: list[NodeRefusal | None] = [None, *[refusal for _, refusal in objections]]
        for code in range(len(objections), 0, -1):
            self.codes[objections[code - 1][0]] = code


class Memory:
    """The last answer of a rule, as long as nothing has happened since."""

    def __init__(self, topology: Topology, judge: Callable[[Request], Judged]) -> None:
        self._topology = topology
        self._judge = judge
        self._last: tuple[Request, int, Judged] | None = None

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        """What the rule says to one node."""
        judged = self._of(request)
        return judged.texts[int(judged.codes[self._topology.number(node.name)])]

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        """What the rule says to all nodes of a pool."""
        judged, positions = self._of(request), self._topology.positions(pool)
        texts: list[Hashable | None] = [*judged.texts]
        return Verdicts.of(judged.codes[positions], texts)

    def _of(self, request: Request) -> Judged:
        moment, last = self._topology.moment, self._last
        if last is None or last[0] is not request or last[1] != moment:
            self._last = last = (request, moment, self._judge(request))
        return last[2]
