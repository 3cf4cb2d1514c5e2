"""A picture of all objects of a kind that stays true: a list, then a watch from the list's revision, for ever.

    list ── revision ──> watch ── events ──> objects, on_event
     ^                   │   ^
     │ 410 or refused    │   │ ended, cut or silent: again from the last revision
     └───────────────────┘   └── (nothing happened twice, nothing is left out)

`refresh` makes sure that everything has come that had happened before, as a new leader needs.

After a list that follows a gap, what changed in the meantime comes as events too, so that listeners need no second
way of learning.  An object that comes back under the same name with another UID comes as deleted and added.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Generic

from tinykube.client import Client
from tinykube.codec import ADDED, DELETED, MODIFIED, Bookmark, T, Unreadable, WatchEvent, codec
from tinykube.resource import Resource
from tinykube.status import ApiError

__all__ = ["ADDED", "DELETED", "MODIFIED", "Reflector"]

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
SILENCE = 180.0
"""A server sends a bookmark about every minute: after this many seconds without a word the connection is dead."""
LIFETIME = (300, 600)
"""A watch asks the server to end it after so many seconds, so that watches spread over the servers again."""
SHORT = 1.0
ABSENT_PAUSE = 10.0
"""A kind that the server does not have is looked for again after about so many seconds."""
STUCK = 2 * SILENCE
"""A reflector that has neither heard nor tried anything for so many seconds does not work."""
CATCH_UP = 1.0
"""Where much happens, a watch catches up within this time; elsewhere a new list is quicker than its next bookmark."""

log = logging.getLogger(__name__)


def ignore() -> None:
    """Nothing to do once the list is complete."""


class Reflector(Generic[T]):
    """Keeps `objects`, by `namespace/name` (or `name`), as they are on the server, and tells of every change.

    `on_event` gets ADDED, MODIFIED or DELETED and the object as it is now, or was last.  `on_synced` is called after
    each complete list.  If `optional`, a kind that the server does not have counts as one without objects; it may come
    later, and `present` says whether it is there.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        type: type[T],
        on_event: Callable[[str, T], None],
        on_synced: Callable[[], None] = ignore,
        *,
        namespace: str = "",
        labels: str | None = None,
        fields: str | None = None,
        optional: bool = False,
        silence: float = SILENCE,
    ) -> None:
        self.objects: dict[str, T] = {}
        self.synced = asyncio.Event()
        self.present = False
        self.failures = 0
        self._client = client
        self._resource = resource
        self._type = type
        self._metadata = codec(type).metadata
        self._on_event = on_event
        self._on_synced = on_synced
        self._where: dict[str, Any] = {"namespace": namespace, "labels": labels, "fields": fields}
        self._optional = optional
        self._silence = silence
        self._revision = ""
        self._listed_at, self._lively_at = -math.inf, math.inf  # before it runs, it is not stuck
        self._moved = asyncio.Event()
        self._deadline: asyncio.Timeout | None = None
        self._again = False

    def __str__(self) -> str:
        return str(self._resource)

    @property
    def stuck(self) -> bool:
        """Whether it has stopped working, which a server that is away does not do to it."""
        return _now() - self._lively_at > STUCK

    async def refresh(self, since: float) -> None:
        """Return when all has come that had happened by `since`, a time of the event loop.

        The server is asked for its latest revision.  If the watch does not reach it soon, a new list is made.
        """
        await self.synced.wait()
        if self._listed_at >= since:
            return
        try:
            async with asyncio.timeout(CATCH_UP):
                wanted = int(await self._client.latest(self._resource, self._where["namespace"]))
                await self._until(lambda: int(self._revision or 0) >= wanted)
        except (ApiError, OSError, TimeoutError, ValueError):
            self._list_again()
            await self._until(lambda: self._listed_at >= since)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._moved.clear()
            await self._moved.wait()

    def _list_again(self) -> None:
        """End the watch, and go on with a list."""
        self._again = True
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(_now())

    async def run(self) -> None:
        """Keep the picture true until cancelled."""
        while True:
            self._lively_at = _now()
            try:
                if self._revision and not self._again:
                    await self._watch()
                else:
                    await self._list()
            except (ApiError, OSError, TimeoutError) as error:
                if not (self._again and isinstance(error, TimeoutError)):  # else it is we who ended the watch
                    await self._recover(error)
            finally:
                self._deadline = None

    async def _list(self) -> None:
        """Take in a complete list, as the events that lead to it."""
        began = _now()
        try:
            async with asyncio.timeout(self._silence):
                listing = await self._client.list(self._resource, **self._where, strict=False, type=self._type)
        except ApiError as error:
            if not (self._optional and error.code == 404):
                raise
            self._listed_at, self._again, self.present = began, False, False
            self._replace([], set())
            await asyncio.sleep(ABSENT_PAUSE * random.uniform(0.5, 1.5))
            return
        for problem in listing.unreadable:
            self._report_unreadable(problem)
        self._listed_at, self._again, self.present = began, False, True
        self._replace(listing.items, {problem.key for problem in listing.unreadable})
        self._revision = listing.revision

    def _replace(self, items: list[T], unreadable: set[str]) -> None:
        """The events that lead from what is known to `items`.  Of what cannot be read, the last picture is kept."""
        fresh = {self._key(item): item for item in items}
        for key in [key for key in self.objects if key not in fresh and key not in unreadable]:
            self._on_event(DELETED, self.objects.pop(key))
        for key, item in fresh.items():
            self._take(key, item)
        self.synced.set()
        self._moved.set()
        self._on_synced()

    async def _watch(self) -> None:
        """Follow one watch to its end."""
        loop = asyncio.get_running_loop()
        began = heard = loop.time()
        last = self._revision
        async with asyncio.timeout(self._silence) as deadline:
            self._deadline = deadline
            events = await self._client.watch(
                self._resource, **self._where, revision=last, timeout=random.randint(*LIFETIME), type=self._type
            )
            async with aclosing(events):
                async for event in events:
                    self._handle(event)
                    now = loop.time()
                    if now - heard > self._silence / 10 and not self._again:  # to move it costs more than an event
                        deadline.reschedule(now + self._silence)
                        heard = self._lively_at = now
        if self._revision == last and loop.time() - began < SHORT:
            raise ConnectionError("the server ended the watch as soon as it began")

    def _handle(self, event: WatchEvent[T] | Bookmark | Unreadable) -> None:
        self.failures = 0
        self._moved.set()
        if not isinstance(event, WatchEvent):
            if isinstance(event, Unreadable):
                self._report_unreadable(event)
            self._revision = event.revision
            return
        item = event.object
        if event.type == DELETED:
            self.objects.pop(self._key(item), None)
            self._on_event(DELETED, item)
        else:
            self._take(self._key(item), item)
        self._revision = self._metadata(item).resource_version

    def _take(self, key: str, item: T) -> None:
        """An object as it is now; the same revision again is no news."""
        known = self.objects.get(key)
        self.objects[key] = item
        if known is None:
            self._on_event(ADDED, item)
            return
        old, new = self._metadata(known), self._metadata(item)
        if old.uid != new.uid:
            self._on_event(DELETED, known)
            self._on_event(ADDED, item)
        elif old.resource_version != new.resource_version:
            self._on_event(MODIFIED, item)

    def _key(self, item: T) -> str:
        metadata = self._metadata(item)
        return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else str(metadata.name)

    def _report_unreadable(self, problem: Unreadable) -> None:
        log.warning("%s %s cannot be read and is left as it was", self._resource, problem)

    async def _recover(self, error: Exception) -> None:
        """Wait before the next try.  A server that refuses a revision is asked for a new list."""
        if isinstance(error, ApiError) and error.code != 429:
            self._revision = ""
        if isinstance(error, ApiError) and error.code == 410 and not self.failures:
            self.failures += 1
            return  # to be behind is nothing unusual, and a list at once is the cure
        pause = min(FIRST_PAUSE * 2 ** min(self.failures, 10), LONGEST_PAUSE) * random.uniform(0.5, 1.5)
        self.failures += 1
        log.warning("%s: %s; next try in %.1f s", self._resource, str(error) or "no word from the server", pause)
        await asyncio.sleep(pause)


def _now() -> float:
    return asyncio.get_running_loop().time()
