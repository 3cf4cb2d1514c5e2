"""Writes that show people something, and that nothing waits for.

    wish ──> Wishes ── one write at a time for each object, the latest wish ──> StatusWriter ──> merge patch of `status`
               ^                                                                     │
               └── later: the server is away, busy or in trouble ────────────────────┘

One object whose write is slow or fails holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from subak.model import manifest
from tinykube.client import MERGE_PATCH, Client
from tinykube.reflector import Reflector
from tinykube.resource import Resource
from tinykube.status import ApiError, is_temporary

AT_ONCE = 16
PATIENCE = 10.0
"""Seconds that a write may take until others get its turn."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
TRIES = 4

Wish = TypeVar("Wish")
Kind = TypeVar("Kind", bound=manifest.Object)
Status = dict[str, Any]

log = logging.getLogger(__name__)


class Wishes(Generic[Wish]):
    """Carries out wishes with `write`; `interval` are the least seconds between two writes about one object."""

    def __init__(self, what: str, write: Callable[[Wish], Awaitable[None]], interval: float = 0.0) -> None:
        self._what = what
        self._write = write
        self._interval = interval
        self._latest: dict[str, Wish] = {}
        self._busy: set[str] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def carry_out(self, key: str, wish: Wish) -> None:
        """Write, or leave it to the task that writes about this object already.  Never raises; logs a failure."""
        self._latest[key] = wish
        if key in self._busy:
            return
        self._busy.add(key)
        try:
            while key in self._latest:
                await self._insist(key)
                await asyncio.sleep(self._interval)
        finally:
            self._busy.discard(key)

    async def _insist(self, key: str) -> None:
        """Write the latest wish, sooner or later; give up if the server refuses it."""
        failures = 0
        while True:
            wish = self._latest[key]
            try:
                async with self._turns, asyncio.timeout(PATIENCE):
                    await self._write(wish)
                break
            except (ApiError, OSError, TimeoutError) as error:
                later = is_temporary(error) or (isinstance(error, ApiError) and error.code == 409)
                if not failures:
                    why, then = str(error) or "no word from the server", "; it is tried again" if later else ""
                    log.warning("%s %s could not be written: %s%s", self._what, key, why, then)
                if not later:
                    break
            await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(failures, 10), LONGEST_PAUSE))
            failures += 1
        if self._latest.get(key) is wish:
            del self._latest[key]


class StatusWriter(Generic[Kind]):
    """Changes the status of objects of one kind, never over a newer one: the object is read again, and looked at anew.

    `subresource` is empty for kinds whose status is a part of the object; `patch` is how the server merges.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        type: type[Kind],
        known: Reflector[Kind],
        subresource: str = "status",
        patch: str = MERGE_PATCH,
    ) -> None:
        self._client = client
        self._resource = resource
        self._type = type
        self._known = known
        self._subresource = subresource
        self._kind = patch

    async def write(self, key: str, uid: str, changes: Callable[[Kind], Status]) -> Status:
        """Write what `changes` says, unless it is nothing or the object is another one; gives what was written."""
        found = self._known.objects.get(key)
        for tries_left in reversed(range(TRIES)):
            if found is None or (uid and found.metadata.uid != uid):
                return {}
            status = changes(found)
            if not status:
                return {}
            try:
                await self._patch(found.metadata, status)
                return status
            except ApiError as error:
                if error.code == 404:
                    return {}
                if error.code != 409 or not tries_left:
                    raise
            found = await self._read(found.metadata)
        return {}

    async def _patch(self, metadata: manifest.Metadata, status: Status) -> None:
        body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": status}
        await self._client.patch(
            self._resource,
            metadata.name,
            metadata.namespace,
            body,
            kind=self._kind,
            subresource=self._subresource,
            type=manifest.Object,
        )

    async def _read(self, metadata: manifest.Metadata) -> Kind | None:
        try:
            return await self._client.get(self._resource, metadata.name, metadata.namespace, type=self._type)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
