"""Shows on Volcano's Queues how they stand, and sees to it that `default` and `root` are there.

While Volcano's own controllers live, they set the states and counts of queues, and we write only what a queue holds, as
Volcano's scheduler does.  Otherwise a new queue becomes Open, and a Closing one Closed when its last group is gone and
nothing is held.  An administrator closes and opens queues by `status.state`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from subak.model import manifest
from subak.model.group import QUEUES, Queue, QueueStatus
from subak.scheduler.messages import ShowQueue
from subak.scheduler.wishes import Status, StatusWriter, Wishes
from tinykube.client import Client
from tinykube.reflector import Reflector
from tinykube.status import ApiError

INTERVAL = 1.0
"""Seconds between two writes about one queue: its pods come and go by the hundred."""

OPEN, CLOSING, CLOSED = "Open", "Closing", "Closed"
PHASES = ("Pending", "Running", "Unknown", "Inqueue", "Completed")

ALWAYS: dict[str, dict[str, Any]] = {
    "root": {"weight": 1, "reclaimable": False},
    "default": {"weight": 1, "reclaimable": True},
}
"""The queues that are there in any case, with their specs, as Volcano's scheduler makes them."""


class Queues:
    """Carries out instructions about queues.  `by_volcano`: its own controllers live."""

    def __init__(self, client: Client, known: Reflector[Queue]) -> None:
        self.by_volcano = False
        self._last: dict[str, ShowQueue] = {}
        self._client = client
        self._known = known
        self._statuses = StatusWriter(client, QUEUES, Queue, known)
        self._shown: Wishes[ShowQueue] = Wishes("how a queue stands, Queue", self._show, INTERVAL)
        self._made: Wishes[str] = Wishes("Queue", self._make, INTERVAL)

    async def show(self, show: ShowQueue) -> None:
        """Write how a queue stands.  Never raises."""
        self._last[show.name] = show
        await self._shown.carry_out(show.name, show)

    async def show_again(self) -> None:
        """Write how all queues stand, after somebody else has done that.  Never raises."""
        await asyncio.gather(*map(self.show, list(self._last.values())))

    def forget(self, name: str) -> None:
        """The queue is gone."""
        self._last.pop(name, None)

    async def complete(self) -> None:
        """Create the queues that are there in any case, if the server knows queues.  Never raises."""
        if self._known.present:
            missing = [name for name in ALWAYS if name not in self._known.objects]
            await asyncio.gather(*(self._made.carry_out(name, name) for name in missing))

    async def _show(self, show: ShowQueue) -> None:
        await self._statuses.write(show.name, "", lambda queue: changes(queue, show, self.by_volcano))

    async def _make(self, name: str) -> None:
        body = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": name}, "spec": ALWAYS[name]}
        try:
            await self._client.create(QUEUES, body, type=manifest.Object)
        except ApiError as error:
            if error.code == 404 and self._known.present:
                raise ConnectionError("the server has the kind, and does not take objects of it yet") from error
            if error.code not in (404, 409):
                raise


def changes(queue: Queue, show: ShowQueue, by_volcano: bool) -> Status:
    """What must be written of a queue's status."""
    status = queue.status or QueueStatus()
    found: Status = {}
    if not by_volcano:
        counts = {phase.lower(): show.phases.get(phase, 0) for phase in PHASES}
        empty = not any(show.phases.values()) and not show.allocated  # pods by themselves are no groups, but hold cards
        wanted = {"state": state_after(status.state, empty), **counts}
        found = {name: value for name, value in wanted.items() if getattr(status, name) != value}
    held = {name: str(amount) for name, amount in (status.allocated or {}).items()}
    if held != show.allocated:
        found["allocated"] = {**dict.fromkeys(held.keys() - show.allocated.keys()), **show.allocated}
    return found


def state_after(state: str, empty: bool) -> str:
    """The state that follows; what an administrator has set stays."""
    if not state:
        return OPEN
    return CLOSED if state == CLOSING and empty else state
