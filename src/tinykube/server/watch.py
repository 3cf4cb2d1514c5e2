"""Watches: the changes of a kind's objects as they happen.

A watch has no queue.  It reads the kind's log at its own pace and knows only how far it has come, so that a slow reader
costs nothing and holds up no other.  One that falls so far behind that the log has forgotten its place gets an error
(410) and must list again.

An object that starts to match the selectors is ADDED to the watcher's world, one that stops is DELETED from it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any

from tinykube.server import errors, schema, selectors
from tinykube.server.kinds import Kind
from tinykube.server.options import ListOptions, revision
from tinykube.server.paging import too_large
from tinykube.server.rules.decoding import zero
from tinykube.server.store import Change, ChangeLog, Store, Stored, encode
from tinykube.status import ApiError

Json = dict[str, Any]
Shape = Callable[[Stored], bytes]
"""How a watcher wants to see objects, as JSON."""

BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
SHORTEST_SECONDS = 1800.0
CHUNK_BYTES = 262_144
INITIAL_END = {"k8s.io/initial-events-end": "true"}


class ChangeSignal:
    """Wakes watches when an object of their kind changes."""

    def __init__(self, store: Store) -> None:
        self._waiting: dict[Kind, set[asyncio.Future[None]]] = {kind: set() for kind in store.kinds}
        self._silence = store.subscribe(self._changed)
        self.closed = False

    def _changed(self, change: Change) -> None:
        self._wake(self._waiting[change.kind])

    @staticmethod
    def _wake(waiting: set[asyncio.Future[None]]) -> None:
        while waiting:
            future = waiting.pop()
            if not future.done():
                future.set_result(None)

    async def wait(self, kind: Kind, until: float) -> None:
        """Come back when something has happened, or at a time of the loop."""
        if self.closed:
            return
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        waiting = self._waiting[kind]
        waiting.add(future)
        alarm = loop.call_at(until, self._wake, {future})
        try:
            await future
        finally:
            alarm.cancel()
            waiting.discard(future)

    def close(self) -> None:
        """End all watches."""
        self.closed = True
        self._silence()
        for waiting in self._waiting.values():
            self._wake(waiting)


class Watch:
    """One watcher's view.  `stream` is what it reads: a line of JSON for each event."""

    def __init__(
        self,
        store: Store,
        signal: ChangeSignal,
        kind: Kind,
        namespace: str,
        options: ListOptions,
        shape: Shape | None = None,
    ) -> None:
        self._store = store
        self._signal = signal
        self._kind = kind
        self._namespace = namespace
        self._options = options
        self._shape = shape or (lambda stored: stored.data)
        self._matches = selectors.test(kind, options.labels, options.fields)
        self._position = revision(options.version, 500)
        if options.initial is False and not self._position:
            self._position = store.revision  # from now on, not from the first read

    async def stream(self) -> AsyncIterator[bytes]:
        """Events, several at a time if there are many.  Ends when its time is over."""
        loop = asyncio.get_running_loop()
        seconds = float(self._options.timeout) or SHORTEST_SECONDS * (1 + random.random())
        ends = loop.time() + seconds
        try:
            for chunk in self._chunks(self._initial()):
                yield chunk
            bookmark = self._next_bookmark(loop.time(), ends)
            while not self._signal.closed:
                sent = False
                for chunk in self._chunks(self._news(self._store.log(self._kind))):
                    yield chunk
                    sent = True
                now = loop.time()
                if now >= ends:
                    return
                if now >= bookmark:
                    yield self._bookmark()
                    bookmark = self._next_bookmark(now, ends)
                    sent = True
                if not sent:  # more may have happened while the watcher read, and the signal was given before
                    await self._signal.wait(self._kind, min(ends, bookmark))
        except ApiError as error:
            yield _line(b"ERROR", encode(error.status()))

    def _next_bookmark(self, now: float, ends: float) -> float:
        if not self._options.bookmarks:
            return ends + 1
        late = ends - LAST_BOOKMARK_SECONDS
        return min(now + BOOKMARK_SECONDS, late) if now < late else ends + 1

    @staticmethod
    def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
        chunk, size = list[bytes](), 0
        for line in lines:
            chunk.append(line)
            size += len(line)
            if size >= CHUNK_BYTES:
                yield b"".join(chunk)
                chunk, size = [], 0
        if chunk:
            yield b"".join(chunk)

    def _initial(self) -> Iterator[bytes]:
        """The present state, if it is wanted; sets the place from which news follow."""
        store, options = self._store, self._options
        if not options.initial:
            return
        if self._position > store.revision:
            raise too_large(self._position, store.revision)
        self._position = store.revision
        present = [each for _, each in store.range(self._kind, self._namespace)]
        for stored in present:
            if self._matches is None or self._matches(stored.object):
                yield _line(b"ADDED", self._shape(stored))
        if options.bookmarks:
            yield self._bookmark(INITIAL_END)

    def _news(self, log: ChangeLog) -> Iterator[bytes]:
        if self._position < log.forgotten:
            raise errors.expired(f"too old resource version: {self._position} ({log.forgotten})")
        prefix = f"{self._namespace}/" if self._namespace else ""
        for change in log.since(self._position):
            self._position = change.revision
            if change.key.startswith(prefix):
                line = self._news_line(change)
                if line is not None:
                    yield line

    def _news_line(self, change: Change) -> bytes | None:
        matches = self._matches
        if matches is None:
            return _line(change.type.encode(), self._shape(change.now))
        is_in = change.type != "DELETED" and matches(change.now.object)
        was_in = change.before is not None and matches(change.before.object)
        if is_in:
            return _line(b"MODIFIED" if was_in else b"ADDED", self._shape(change.now))
        if not was_in or change.before is None:
            return None
        last = change.now if change.type == "DELETED" else _renumbered(change.before, change.revision)
        return _line(b"DELETED", self._shape(last))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        """Tell how far the watcher has come.  What happened to other kinds is no reason to stay behind."""
        if not self._store.log(self._kind).since(self._position):
            self._position = max(self._position, self._store.revision)
        metadata: Json = {"resourceVersion": str(self._position)}
        if annotations:
            metadata["annotations"] = annotations
        empty = {**_empty(self._kind), "metadata": metadata}
        return _line(b"BOOKMARK", self._shape(Stored(empty, self._position, encode(empty))))


def _line(type: bytes, object: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type, object)


def _renumbered(stored: Stored, number: int) -> Stored:
    metadata = {**stored.object["metadata"], "resourceVersion": str(number)}
    object = {**stored.object, "metadata": metadata}
    return Stored(object, number, encode(object))


@cache
def _empty(kind: Kind) -> Json:
    """An object of a kind in which nothing is set."""
    named: Json = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}}
    return named if kind.custom else {**zero(schema.of(kind)), **named}
