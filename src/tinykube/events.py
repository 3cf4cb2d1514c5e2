"""Events: what users read in `kubectl describe` about what happened to an object.

`Recorder.record` never waits and never fails; another task writes.  The same event again raises the count of the
one that is there, or of the one that still waits to be written.  If more waits than is reasonable, the oldest is lost
and counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from tinykube.client import Client
from tinykube.resource import EVENTS, Resource
from tinykube.status import ApiError, is_temporary

NORMAL, WARNING = "Normal", "Warning"
LONGEST_MESSAGE = 1024
"""The API server refuses longer ones."""
MOST_WAITING = 10_000
MOST_REMEMBERED = 4_096
SAME_FOR = 600.0
"""For so many seconds after the last time, the same event is counted and not written anew."""
WRITERS = 4
PAUSES = (0.2, 1.0, 5.0)

log = logging.getLogger(__name__)


class ObjectMetadata(Protocol):
    """What a reference says about an object."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...


class AnyObject(Protocol):
    """Any object that has metadata."""

    @property
    def metadata(self) -> ObjectMetadata: ...


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field_path: str = ""

    @classmethod
    def to(cls, resource: Resource, object: AnyObject, field_path: str = "") -> Reference:
        """The reference to an object."""
        metadata = object.metadata
        return cls(resource.api_version, resource.kind, metadata.name, metadata.namespace, metadata.uid, field_path)

    def content(self) -> dict[str, str]:
        """As `involvedObject` has it."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "fieldPath": self.field_path,
        }
        return {name: value for name, value in fields.items() if value}


Key = tuple[Reference, str, str, str]


@dataclass(slots=True)
class Occurrence:
    """An event that waits to be written, and how often it has happened meanwhile."""

    first: datetime
    last: datetime
    count: int = 1


@dataclass(slots=True)
class Written:
    """An event that the server has."""

    name: str
    count: int
    at: float


@dataclass(slots=True)
class Recorder:
    """Writes events as `component`.  `run` must be running for anything to be written."""

    client: Client
    component: str
    host: str = ""
    lost: int = 0
    _waiting: OrderedDict[Key, Occurrence] = field(default_factory=OrderedDict)
    _written: OrderedDict[Key, Written] = field(default_factory=OrderedDict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _busy: int = 0
    _names: int = 0

    def record(self, about: Reference, type: str, reason: str, message: str) -> None:
        """Note that something happened."""
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 4] + " ..."
        message = message.encode(errors="replace").decode()  # bytes of others may be in it that are no text
        key, now = (about, type, reason, message), datetime.now(UTC)
        known = self._waiting.get(key)
        if known is not None:
            known.count += 1
            known.last = now
            return
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popitem(last=False)
            self.lost += 1
        self._waiting[key] = Occurrence(now, now)
        self._news.set()

    async def run(self) -> None:
        """Write what is recorded, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write_all())

    async def flush(self, patience: float = 2.0) -> None:
        """Wait until everything is written, or for so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self._waiting or self._busy:
                    await asyncio.sleep(0.005)

    async def _write_all(self) -> None:
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            key, occurrence = self._waiting.popitem(last=False)
            self._busy += 1
            try:
                await self._write(key, occurrence)
            finally:
                self._busy -= 1

    async def _write(self, key: Key, occurrence: Occurrence) -> None:
        """Try a few times; an event that cannot be written is not worth more."""
        for pause in (*PAUSES, None):
            try:
                if not await self._count(key, occurrence):
                    await self._create(key, occurrence)
                return
            except (ApiError, OSError, TimeoutError) as error:
                if pause is None or not is_temporary(error):
                    log.warning("event %s about %s is lost: %s", key[2], key[0].name, error)
                    self.lost += 1
                    return
                await asyncio.sleep(pause)

    async def _count(self, key: Key, occurrence: Occurrence) -> bool:
        """Raise the count of the event that is there; False if none is."""
        written = self._written.get(key)
        if written is None or time.monotonic() - written.at > SAME_FOR:
            return False
        count = written.count + occurrence.count
        body = {"count": count, "lastTimestamp": _stamp(occurrence.last)}
        try:
            await self.client.patch(EVENTS, written.name, _namespace(key[0]), body)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        self._remember(key, written.name, count)
        return True

    async def _create(self, key: Key, occurrence: Occurrence) -> None:
        about, type, reason, message = key
        self._names += 1
        name = f"{about.name}.{time.time_ns():x}{self._names % 4096:03x}"
        source = {"component": self.component, **({"host": self.host} if self.host else {})}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _namespace(about)},
            "involvedObject": about.content(),
            "type": type,
            "reason": reason,
            "message": message,
            "count": occurrence.count,
            "firstTimestamp": _stamp(occurrence.first),
            "lastTimestamp": _stamp(occurrence.last),
            "source": source,
            "reportingComponent": self.component,
            "reportingInstance": self.host,
        }
        await self.client.create(EVENTS, body, _namespace(about))
        self._remember(key, name, occurrence.count)

    def _remember(self, key: Key, name: str, count: int) -> None:
        self._written[key] = Written(name, count, time.monotonic())
        self._written.move_to_end(key)
        if len(self._written) > MOST_REMEMBERED:
            self._written.popitem(last=False)


def _namespace(about: Reference) -> str:
    """Events about objects without a namespace are kept in `default`."""
    return about.namespace or "default"


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
