"""Lists: which objects, of which moment, and how many at a time.

A list that is read in pages shows one moment: the token to continue with names the revision of the first page and the
key to go on from.  Once that moment is longer ago than the log remembers, the answer is 410, with a token to go on
with what is there now.
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tinykube.server import errors, selectors
from tinykube.server.kinds import Kind
from tinykube.server.options import ListOptions, revision
from tinykube.server.store import Store, Stored
from tinykube.status import ApiError, Cause

TOO_OLD = "The resourceVersion for the provided list is too old."
CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Objects, and how to get the next ones.  `remaining` is None if they were not counted."""

    items: list[Stored]
    revision: int
    continued: str = ""
    remaining: int | None = None

    def metadata(self, custom: bool = False) -> dict[str, Any]:
        """The `metadata` of the list.  Lists of custom kinds say even that there is no more."""
        found: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continued or custom:
            found["continue"] = self.continued
        if self.remaining is not None:
            found["remainingItemCount"] = self.remaining
        return found


class _Token(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


def page(store: Store, kind: Kind, namespace: str, options: ListOptions) -> Page:
    """The objects that a list asks for."""
    start, at = _position(store, kind, options)
    if at is None:
        at, found = store.revision, store.range(kind, namespace, start)
    else:
        found = store.range_at(kind, at, namespace, start)
    test = selectors.test(kind, options.labels, options.fields)
    name = selectors.exact(kind, options.fields, "metadata.name")
    if name is not None and at == store.revision:
        found = _single(store, kind, namespace, name, found)
    limit = 0 if options.version == "0" else options.limit
    if limit <= 0:
        return Page([each for _, each in found if test is None or test(each.object)], at)
    return _limited(list(found), test, limit, at)


def _single(
    store: Store, kind: Kind, namespace: str, name: str, all: Iterator[tuple[str, Stored]]
) -> Iterator[tuple[str, Stored]]:
    """Spare the search where the selector says which object it is."""
    if kind.namespaced and not namespace:
        return all
    found = store.stored(kind, namespace, name)
    return iter([(name, found)] if found else [])


def _limited(found: list[tuple[str, Stored]], test: selectors.Test | None, limit: int, at: int) -> Page:
    items: list[Stored] = []
    for index, (key, each) in enumerate(found):
        if test is None or test(each.object):
            items.append(each)
        if len(items) >= limit:
            more = index < len(found) - 1
            left = len(found) - limit if more and test is None else None
            return Page(items, at, _encoded(at, key + "\0") if more else "", left)
    return Page(items, at)


def _position(store: Store, kind: Kind, options: ListOptions) -> tuple[str, int | None]:
    """The key to start from, and the moment that is asked for: None for now."""
    if options.continued:
        start, at = _decoded(options.continued)
        if options.version not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        if at < 0:
            return start, None
        if at < store.log(kind).forgotten:
            raise _ContinueExpired(_encoded(-1, start))
        return start, at
    asked = revision(options.version)
    if asked > store.revision:
        raise too_large(asked, store.revision)
    exact = options.match == "Exact" or (not options.match and options.limit > 0 and asked > 0)
    if not exact:
        return "", None
    if asked < store.log(kind).forgotten:
        raise errors.expired(TOO_OLD)
    return "", asked


def too_large(asked: int, current: int) -> ApiError:
    """A revision that is not reached yet."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [Cause("ResourceVersionTooLarge", "Too large resource version")]
    return ApiError(504, "Timeout", message, {"retryAfterSeconds": 1}, causes)


class _ContinueExpired(ApiError):
    """The refusal that tells how to go on nevertheless."""

    def __init__(self, token: str) -> None:
        super().__init__(410, "Expired", CONTINUE_TOO_OLD)
        self._token = token

    def status(self) -> dict[str, Any]:
        return super().status() | {"metadata": {"continue": self._token}}


def _encoded(at: int, start: str) -> str:
    token = msgspec.json.encode(_Token("meta.k8s.io/v1", at, start))
    return urlsafe_b64encode(token).decode().rstrip("=")


def _stray(text: str) -> int:
    """Where text ceases to be base64."""
    found = re.search("[^-_0-9A-Za-z]", text)
    return found.start() if found else len(text)


def _decoded(text: str) -> tuple[str, int]:
    wrong = "invalid continue token: continue key is not valid"
    try:
        data = b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        raise errors.bad_request(f"{wrong}: illegal base64 data at input byte {_stray(text)}") from None
    try:
        token = msgspec.json.decode(data, type=_Token)
    except (msgspec.DecodeError, ValueError) as error:
        raise errors.bad_request(f"{wrong}: {error}") from None
    if token.v != "meta.k8s.io/v1":
        message = f"{wrong}: server does not recognize this encoded version {token.v}"
        raise errors.bad_request(message)
    if token.rv == 0:
        message = f"{wrong}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        raise errors.bad_request(message)
    if not token.start:
        raise errors.bad_request(f"{wrong}: encoded start key empty (version meta.k8s.io/v1)")
    if ".." in token.start.split("/") or "//" in token.start:
        raise errors.bad_request(f"{wrong}: {token.start}")
    return token.start, token.rv
