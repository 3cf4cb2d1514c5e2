"""Bytes and objects: what is sent to an API server and what comes back.

An object is a plain dict, or a lean struct that holds only the fields that are read.  One object of a list or of a
watch that does not fit its struct is `Unreadable`; the others are read all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from tinykube.status import ApiError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
CHANGES = frozenset({ADDED, MODIFIED, DELETED})

RAW = cast("type[Any]", dict)
"""The type of objects that are read as they come."""

Body = dict[str, Any] | list[Any] | msgspec.Struct | bytes
"""What can be sent; bytes are sent as they are."""


class BadAnswer(ConnectionError):
    """An answer that cannot be read: as good as none."""


class Unreadable(Exception):
    """An object whose fields have other types than they should."""

    def __init__(self, key: str, revision: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.revision = revision


class Metadata(msgspec.Struct, rename="camel"):
    """What names an object, and of which revision it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class Header(msgspec.Struct):
    """The part that all objects and lists have."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class WatchEvent(msgspec.Struct, Generic[T]):
    """One line of a watch: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: T


class Bookmark(msgspec.Struct):
    """How far a watch has come."""

    revision: str


class ListPage(msgspec.Struct, Generic[T]):
    """A list, or a part of one."""

    metadata: Metadata
    items: list[T] | None = None


def encode(body: Body) -> bytes:
    """The bytes to send."""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def decode(type: type[T], data: bytes) -> T:
    """One object.  Raises BadAnswer if it is none."""
    try:
        return cast("T", _decoder(cast("Any", type)).decode(data))
    except msgspec.DecodeError as error:
        raise BadAnswer(f"the answer of the API server cannot be read: {error}: {data[:200]!r}") from None


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


class Codec(Generic[T]):
    """Reads lists and watches of one type of objects."""

    def __init__(self, type: type[T]) -> None:
        self._item = msgspec.json.Decoder(type)
        self._page = msgspec.json.Decoder(ListPage[type])  # type: ignore[valid-type]
        self._event = msgspec.json.Decoder(WatchEvent[type])  # type: ignore[valid-type]
        self.metadata: Callable[[T], Any] = _metadata_of_dict if type is dict else _metadata_of_struct

    def page(self, data: bytes) -> tuple[ListPage[T], list[Unreadable]]:
        """A page, and which of its objects could not be read.  Raises BadAnswer."""
        try:
            return self._page.decode(data), []
        except msgspec.DecodeError:
            page = decode(ListPage[msgspec.Raw], data)
        items: list[T] = []
        unreadable = []
        for raw in page.items or ():
            try:
                items.append(self._item.decode(raw))
            except msgspec.ValidationError as error:
                unreadable.append(_unreadable(raw, str(error)))
        return ListPage(page.metadata, items), unreadable

    def event(self, line: bytes) -> WatchEvent[T] | Bookmark:
        """A line of a watch.  Raises Unreadable, BadAnswer, or the ApiError that the server sends in it."""
        try:
            event = self._event.decode(line)
            if event.type in CHANGES:
                return event
            problem = f"an event of type {event.type!r}"
        except msgspec.DecodeError as error:
            problem = str(error)
        raw = decode(WatchEvent[msgspec.Raw], line)
        if raw.type == "BOOKMARK":
            # Its object need not be a valid one: a pod's has `containers: null`.
            return Bookmark(_header(raw.object).resource_version)
        if raw.type == "ERROR":
            raise ApiError.from_status(decode(dict[str, Any], bytes(raw.object)))
        raise _unreadable(raw.object, problem)


def codec(type: type[T]) -> Codec[T]:
    """The codec of a type, made once."""
    return cast("Codec[T]", _codec(cast("Any", type)))


@cache
def _codec(type: Any) -> Codec[Any]:
    return Codec(type)


def _unreadable(raw: msgspec.Raw, problem: str) -> Unreadable:
    metadata = _header(raw)
    key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return Unreadable(key, metadata.resource_version, problem)


def _header(raw: msgspec.Raw) -> Metadata:
    return decode(Header, bytes(raw)).metadata


def _metadata_of_struct(object: Any) -> Any:
    return object.metadata


def _metadata_of_dict(object: Any) -> Any:
    return msgspec.convert(object["metadata"], Metadata)
