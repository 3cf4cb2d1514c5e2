"""HAMi's node lock, for vendors whose agents learn from it which pod they serve.

The lock is a node annotation with the value `<RFC 3339 time>,<namespace>,<pod>`; old versions wrote only the time.  Who
schedules takes it before binding a pod, the vendor's agent removes it when the pod has its cards.  It is void after
five minutes, or when the pod that it names is gone.

    take(value)     None, ours, or void ──> the value to write   another's ──> Contention
    release(value)  ours, or old        ──> True: remove it      another's ──> False

Nothing is written here.  The caller writes with the node's resourceVersion, and on a conflict reads and takes again:
then it sees the winner's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

EXPIRY = timedelta(minutes=5)


class Contention(Exception):
    """Another pod holds the lock: try again when it is released."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Since when a pod holds a node.  `owner` is the pod's key, empty in the old form."""

    since: datetime
    owner: str = ""

    @classmethod
    def parse(cls, value: str) -> Lock:
        """The lock in an annotation.  Raises ValueError if it is malformed."""
        time, *owner = value.split(",")
        if len(owner) not in (0, 2) or not all(owner):
            raise ValueError(f"malformed node lock {value!r}: need <time>,<namespace>,<pod>")
        try:
            since = datetime.fromisoformat(time)
        except ValueError:
            raise ValueError(f"malformed node lock {value!r}: {time!r} is no RFC 3339 time") from None
        if since.tzinfo is None:
            raise ValueError(f"malformed node lock {value!r}: the time {time!r} has no zone")
        return cls(since, "/".join(owner))

    def __str__(self) -> str:
        time = self.since.isoformat(timespec="seconds")
        return ",".join((time, *self.owner.split("/"))) if self.owner else time

    def expired(self, now: datetime) -> bool:
        """Whether it has been held for too long."""
        return now - self.since > EXPIRY


def take(value: str | None, pod: str, now: datetime, owner_exists: Callable[[str], bool]) -> str:
    """The value with which `pod` (its key) holds the lock; the same if it holds it already.

    Raises Contention if another pod holds it, ValueError if the value is malformed: its writer may be at work.
    `owner_exists` is asked, with a pod's key, only if the answer depends on it.
    """
    ours = Lock(now, pod)
    if value is None:
        return str(ours)
    lock = Lock.parse(value)
    if lock.expired(now):
        return str(ours)
    if lock.owner == pod:
        return value
    if lock.owner and not owner_exists(lock.owner):
        return str(ours)
    left = int((lock.since + EXPIRY - now).total_seconds())
    raise Contention(
        f"{lock.owner or 'an unnamed pod'} holds the node lock since {lock.since.isoformat()}; "
        f"unless released, it is void in {left} s"
    )


def release(value: str | None, pod: str) -> bool:
    """Whether `pod` may remove the lock.  Raises ValueError if the value is malformed."""
    return value is not None and Lock.parse(value).owner in ("", pod)
