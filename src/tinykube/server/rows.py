"""Objects as rows of a database, and what is wrong with a row.

A row carries a sum of its own bytes.  What a disk, or somebody with an editor, has changed is found when it is read,
and is never taken for what was stored.  Rows of earlier versions have no sum, and are believed if they make sense.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from tinykube.server.store import Stored, decode, key_in

LAST = 1 << 53
"""No revision is higher: a million writes a second take 285 years to get there."""


class Unreadable(Exception):
    """A row that is not what was stored; the text says why."""


def checksum(resource: str, key: str, revision: int, data: bytes) -> int:
    """The sum that a row carries."""
    return zlib.crc32(data, zlib.crc32(f"{resource}\0{key}\0{revision}\0".encode(errors="surrogateescape")))


def read(resource: Any, key: Any, revision: Any, data: Any, sum: Any = None) -> Stored:
    """The object of a row.  Raises Unreadable."""
    if not (type(resource) is type(key) is str and type(revision) is int and type(data) is bytes):
        raise Unreadable("its columns are not of their types")
    if sum is not None and sum != checksum(resource, key, revision, data):
        raise Unreadable("its bytes have changed")
    if not 0 < revision <= LAST:
        raise Unreadable(f"its revision is {revision}")
    try:
        object = decode(data)
        named, version = key_in(object), object["metadata"]["resourceVersion"]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(f"it is no JSON: {error}") from None
    except (LookupError, TypeError, AttributeError):
        raise Unreadable("it is no object with a name and a version") from None
    if (named, version) != (key, str(revision)):
        raise Unreadable(f"it says that it is {named!r} at revision {version!r}")
    return Stored(object, revision, data)


def names(key: Any, data: Any) -> set[str]:
    """What an unreadable object may have been called."""
    found = {key} if isinstance(key, str) else set()
    try:
        found.add(key_in(decode(data)))
    except Exception:  # whatever is wrong with it
        return found
    return found
