"""All objects, every change numbered.

One counter serves all kinds: a write raises the revision, and the object carries it as its resourceVersion.  A version
of an object is encoded once; lists and watches join those bytes.  Each kind has a log of its latest changes, from
which watches read at their own pace and earlier states are rebuilt.  A reader who asks for more than the log
remembers gets an error, and lists again.

A journal, if there is one, has the change on disk before anybody hears of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from tinykube.depth import LEVELS, too_deep
from tinykube.server import errors
from tinykube.server.kinds import KINDS, Kind

Json = dict[str, Any]

HISTORY = 8_192
HISTORY_BYTES = 64 << 20
"""Of each kind: so many changes are remembered, fewer if they are large."""
MOST_LEVELS = LEVELS + 10
"""What `managedFields` tell of an object is some levels deeper than the object itself."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Stored:
    """A version of an object, and the same as JSON that begins with kind and apiVersion."""

    object: Json
    revision: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was written.  What was deleted is in `now` too, with the revision of its deletion."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    kind: Kind
    key: str
    now: Stored
    before: Stored | None

    @property
    def revision(self) -> int:
        """Its number."""
        return self.now.revision

    @property
    def object(self) -> Json:
        """What the object is after the change."""
        return self.now.object

    @property
    def old(self) -> Json | None:
        """What the object was before."""
        return self.before.object if self.before else None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a journal has kept, by resource and key; `aside` are names of objects that it cannot read any more."""

    revision: int = 0
    objects: Mapping[tuple[str, str], Stored] = field(default_factory=dict)
    aside: Set[tuple[str, str]] = frozenset()


class Journal(Protocol):
    """Keeps what is stored for the next time.  A write is kept or raises ApiError, and then nothing has happened."""

    def put(self, resource: str, key: str, revision: int, data: bytes) -> None:
        """Keep a version of an object instead of the one before."""

    def remove(self, resource: str, key: str, revision: int) -> None:
        """Forget an object, but not the revision."""

    def load(self) -> Kept:
        """All that is kept."""


class ChangeLog:
    """The latest changes of one kind, oldest first.

    `forgotten` is the revision of the latest change that it no longer has: what happened after is all here.
    """

    def __init__(self, kind: Kind, limit: int, forgotten: int) -> None:
        self.kind = kind
        self.forgotten = forgotten
        self._limit = limit
        self._bytes = 0
        self._changes: list[Change] = []
        self._revisions: list[int] = []  # of the same changes, to search in

    def append(self, change: Change) -> None:
        """Take note of a change; drop old ones in batches, which costs less than one by one."""
        self._changes.append(change)
        self._revisions.append(change.revision)
        self._bytes += len(change.now.data)
        if 4 * len(self._changes) > 5 * self._limit or 4 * self._bytes > 5 * HISTORY_BYTES:
            self._drop()

    def _drop(self) -> None:
        """Forget the oldest changes, down to the limits."""
        dropped = 0
        while len(self._changes) - dropped > self._limit or self._bytes > HISTORY_BYTES:
            self._bytes -= len(self._changes[dropped].now.data)
            dropped += 1
        self.forgotten = self._revisions[dropped - 1]
        del self._changes[:dropped], self._revisions[:dropped]

    def since(self, revision: int) -> list[Change]:
        """Changes after a revision, which must not be before `forgotten`."""
        if not self._revisions or self._revisions[-1] <= revision:
            return []
        return self._changes[bisect_right(self._revisions, revision) :]


class Table:
    """The objects of one kind in the order of their keys, and the log of their changes."""

    def __init__(self, kind: Kind, limit: int, revision: int) -> None:
        self.kind = kind
        self.objects: dict[str, Stored] = {}
        self.keys: list[str] = []
        self.log = ChangeLog(kind, limit, revision)

    def names(self, namespace: str) -> list[str]:
        """The keys of a namespace's objects, or of all."""
        if not namespace:
            return self.keys
        # "0" is the character after "/".
        return self.keys[bisect_left(self.keys, f"{namespace}/") : bisect_left(self.keys, f"{namespace}0")]

    def take_in(self, change: Change) -> None:
        """Make the objects what they are after a change."""
        if change.type == "DELETED":
            del self.objects[change.key]
            del self.keys[bisect_left(self.keys, change.key)]
        else:
            if change.before is None:
                self.keys.insert(bisect_left(self.keys, change.key), change.key)
            self.objects[change.key] = change.now
        self.log.append(change)


class Store:
    """Objects by kind, namespace and name.  One that is stored is never changed in place: copy what you change.

    `kinds` are those that it has: Kubernetes' own and `custom` ones.  Refusals are ApiErrors as clients see them.
    Everything happens on one thread.
    """

    def __init__(self, journal: Journal | None = None, history: int = HISTORY, custom: Sequence[Kind] = ()) -> None:
        self.kinds = (*KINDS, *custom)
        self.revision = 1
        self._journal = journal
        self._subscribers: list[Callable[[Change], None]] = []
        self._unsent: deque[Change] = deque()
        self._sending = False
        kept = journal.load() if journal is not None else Kept()
        self.revision = max(self.revision, kept.revision)
        self._aside = set(kept.aside)
        self._tables = {kind: Table(kind, history, self.revision) for kind in self.kinds}
        by_resource = {kind.resource: table for kind, table in self._tables.items()}
        for (resource, key), stored in kept.objects.items():
            if resource in by_resource:  # the journal keeps others for a program that serves them
                by_resource[resource].objects[key] = stored
        for table in self._tables.values():
            table.keys = sorted(table.objects)

    # Reading

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """An object, or None."""
        found = self._tables[kind].objects.get(key_of(namespace, name))
        return found.object if found else None

    def list(self, kind: Kind, namespace: str = "") -> list[Json]:
        """The objects of a namespace, or of all namespaces, ordered by namespace and name."""
        table = self._tables[kind]
        return [table.objects[key].object for key in table.names(namespace)]

    def stored(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        """An object with its bytes, or None."""
        return self._tables[kind].objects.get(key_of(namespace, name))

    def range(self, kind: Kind, namespace: str = "", start: str = "") -> Iterator[tuple[str, Stored]]:
        """Keys and objects in order, from the key `start` on.  Read it before the next write."""
        table = self._tables[kind]
        names = table.names(namespace)
        for index in range(bisect_left(names, start) if start else 0, len(names)):
            yield names[index], table.objects[names[index]]

    def range_at(self, kind: Kind, revision: int, namespace: str = "", start: str = "") -> Iterator[tuple[str, Stored]]:
        """The same as it was at a revision, which must not be before `forgotten`."""
        table = self._tables[kind]
        earlier: dict[str, Stored | None] = {}
        for change in table.log.since(revision):
            earlier.setdefault(change.key, change.before)
        if not earlier:
            yield from self.range(kind, namespace, start)
            return
        prefix = f"{namespace}/" if namespace else ""
        gone = [
            key for key, before in earlier.items() if before and key not in table.objects and key.startswith(prefix)
        ]
        names = sorted([*table.names(namespace), *gone]) if gone else table.names(namespace)
        for key in names[bisect_left(names, start) if start else 0 :]:
            found = earlier[key] if key in earlier else table.objects[key]
            if found is not None:
                yield key, found

    def count(self, kind: Kind, namespace: str = "") -> int:
        """How many objects there are."""
        return len(self._tables[kind].names(namespace))

    def is_aside(self, kind: Kind, namespace: str, name: str) -> bool:
        """Whether an object of that name was kept and cannot be read, and there is no new one: it is not gone."""
        key = key_of(namespace, name)
        return (kind.resource, key) in self._aside and key not in self._tables[kind].objects

    def log(self, kind: Kind) -> ChangeLog:
        """The latest changes of a kind."""
        return self._tables[kind].log

    # Writing

    def create(self, kind: Kind, object: Json) -> Stored:
        """Store a new object under its namespace and name."""
        table, key = self._tables[kind], key_in(object)
        if key in table.objects:
            raise errors.already_exists(kind, object["metadata"]["name"])
        made = self._write(table, "ADDED", key, object, None)
        self._aside.discard((kind.resource, key))
        return made

    def update(self, kind: Kind, object: Json, expected: str = "") -> Stored:
        """Replace an object; if `expected` is given, only if that is its resourceVersion still."""
        table, key = self._tables[kind], key_in(object)
        return self._write(table, "MODIFIED", key, object, self._expect(table, key, expected))

    def delete(self, kind: Kind, namespace: str, name: str, expected: str = "") -> Stored:
        """Remove an object; gives it as it was, with the revision of its deletion."""
        table, key = self._tables[kind], key_of(namespace, name)
        found = self._expect(table, key, expected)
        return self._write(table, "DELETED", key, found.object, found)

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with every change, in order, from now on; the function that is returned ends that.

        A listener may write; all listeners get that change after the present one.
        """
        self._subscribers.append(listener)

        def stop() -> None:
            if listener in self._subscribers:
                self._subscribers.remove(listener)

        return stop

    def _expect(self, table: Table, key: str, expected: str) -> Stored:
        found = table.objects.get(key)
        name = key.rpartition("/")[2]
        if found is None:
            raise errors.not_found(table.kind, name)
        if expected and expected != str(found.revision):
            raise errors.conflict(table.kind, name)
        return found

    def _write(
        self, table: Table, type: Literal["ADDED", "MODIFIED", "DELETED"], key: str, object: Json, before: Stored | None
    ) -> Stored:
        kind = table.kind
        # Counted before it is on disk: if that fails half-way, the number is not given out again.
        self.revision += 1
        whole: Json = {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": {**object["metadata"], "resourceVersion": str(self.revision)},
        }
        for name, value in object.items():
            whole.setdefault(name, value)
        now = Stored(whole, self.revision, encode(whole))
        if too_deep(now.data, MOST_LEVELS):  # patches may put a deep thing into another
            raise errors.too_deep()
        if self._journal is not None:
            if type == "DELETED":
                self._journal.remove(kind.resource, key, self.revision)
            else:
                self._journal.put(kind.resource, key, self.revision, now.data)
        change = Change(type, kind, key, now, before)
        table.take_in(change)
        self._send(change)
        return now

    def _send(self, change: Change) -> None:
        self._unsent.append(change)
        if self._sending:
            return
        self._sending = True
        try:
            while self._unsent:
                change = self._unsent.popleft()
                for listener in tuple(self._subscribers):
                    listener(change)
        finally:
            self._sending = False


def key_of(namespace: str, name: str) -> str:
    """How an object is found among those of its kind."""
    return f"{namespace}/{name}" if namespace else name


def key_in(object: Json) -> str:
    """The same for an object in hand."""
    metadata = object["metadata"]
    return key_of(metadata.get("namespace", ""), metadata["name"])
