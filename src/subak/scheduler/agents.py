"""Which of our own agents live, by the marks on nodes and the agents' Leases (`dialects.mark`).

A Lease is renewed every few seconds on every node, so a renewal only notes a time.  A node is described again when its
agent dies or comes back, not in between.
"""

from __future__ import annotations

import heapq
from datetime import UTC, datetime

from subak.dialects import mark
from subak.model import manifest


class Agents:
    """Our agents, by the names of their nodes.  Until `pass_time` was called no agent is dead: nothing is known yet."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._marked: set[str] = set()
        self.by_variables = False
        """Whether there has been a node where containers get their cards by variables; its agent may come back."""
        self._dead: set[str] = set()
        self._looks: list[tuple[float, str]] = []
        self._now: float | None = None

    def see_node(self, node: manifest.Node) -> None:
        """Take in whether the node has our mark."""
        name = node.name
        self.by_variables |= mark.way(node) == mark.PLUGIN
        if not mark.marked(node):
            self.lose_node(name)
        elif name not in self._marked:
            self._marked.add(name)
            if self._now is not None and not self._lives(name):
                self._dead.add(name)
            else:
                heapq.heappush(self._looks, (self._until.get(name, 0.0), name))

    def lose_node(self, name: str) -> None:
        """Forget a node's mark."""
        self._marked.discard(name)
        self._dead.discard(name)

    def renewed(self, name: str, until: float) -> bool:
        """Note until when the agent lives.  True if the node is to be described again: the agent is back."""
        self._until[name] = until
        if name not in self._dead or not self._lives(name):
            return False
        self._dead.discard(name)
        heapq.heappush(self._looks, (until, name))
        return True

    def lost(self, name: str) -> bool:
        """The Lease is gone.  True if the node is to be described again: the agent is dead."""
        self._until.pop(name, None)
        if name not in self._marked or name in self._dead or self._now is None:
            return False
        self._dead.add(name)
        return True

    def pass_time(self, now: float) -> list[str]:
        """The nodes whose agents have died since."""
        self._now = now
        died: list[str] = []
        while self._looks and self._looks[0][0] <= now:
            _, name = heapq.heappop(self._looks)
            if name not in self._marked or name in self._dead:
                continue
            if self._lives(name):
                heapq.heappush(self._looks, (self._until[name], name))
            else:
                self._dead.add(name)
                died.append(name)
        return died

    def next_look(self) -> float | None:
        """When an agent may be found dead without an event; None if there is none."""
        return self._looks[0][0] if self._looks else None

    def death(self, name: str) -> str | None:
        """What was seen of the death of a node's agent; None if it lives, or the node is not ours."""
        if name not in self._dead:
            return None
        until = self._until.get(name)
        lease = f"Lease {mark.NAMESPACE}/{name}"
        if until is None:
            return f"agent dead: the node has the mark {mark.MARK}, and there is no {lease}; restart it on the node"
        ended = datetime.fromtimestamp(until, UTC).strftime("%H:%M:%S")
        return f"agent dead: {lease} ended at {ended} UTC; restart it on the node, and check the node's clock"

    def _lives(self, name: str) -> bool:
        until = self._until.get(name)
        return until is not None and (self._now is None or until > self._now)
