"""Waiting for an object to be as one wants it, as `kubectl wait` does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any, cast

from tinykube.client import Client
from tinykube.codec import WatchEvent
from tinykube.resource import Resource
from tinykube.status import ApiError

Check = Callable[[dict[str, Any]], bool]


async def until(client: Client, resource: Resource, name: str, namespace: str, check: Check) -> dict[str, Any]:
    """The object as soon as `check` is true of it.  Raises ApiError 404 if it is not there, or goes meanwhile."""
    only = f"metadata.name={name}"
    while True:
        listing = await client.list(resource, namespace, fields=only)
        if not listing.items:
            raise ApiError(404, "NotFound", f'{resource} "{name}" not found')
        found: dict[str, Any] = listing.items[0]
        if check(found):
            return found
        events = await client.watch(resource, namespace, revision=listing.revision, fields=only)
        async with aclosing(cast("Any", events)):
            async for event in events:
                if not isinstance(event, WatchEvent):
                    continue
                if event.type == "DELETED":
                    raise ApiError(404, "NotFound", f'{resource} "{name}" was deleted')
                if check(event.object):
                    return event.object


async def gone(client: Client, resource: Resource, name: str, namespace: str, uid: str = "") -> None:
    """Wait until the object is gone, or another one has its name: with a UID, it is that object that is meant."""
    only = f"metadata.name={name}"
    while True:
        listing = await client.list(resource, namespace, fields=only)
        if not any(each["metadata"]["uid"] == uid or not uid for each in listing.items):
            return
        events = await client.watch(resource, namespace, revision=listing.revision, fields=only, timeout=60)
        async with aclosing(cast("Any", events)):
            async for event in events:
                if isinstance(event, WatchEvent) and event.type == "DELETED":
                    return


def condition(type: str, status: str = "True") -> Check:
    """Whether an object says so of itself in its status; upper and lower case are the same, as for kubectl."""
    wanted = (type.lower(), status.lower())

    def check(object: dict[str, Any]) -> bool:
        conditions = (object.get("status") or {}).get("conditions") or ()
        return any((each.get("type", "").lower(), each.get("status", "").lower()) == wanted for each in conditions)

    return check
