"""Keeps objects on an API server as they should be: what somebody changes or deletes is put back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from subak.admission.objects import Wanted
from tinykube.client import Client
from tinykube.reflector import Reflector
from tinykube.resource import Resource
from tinykube.status import ApiError

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Keeper:
    """Watches single objects, by kind and name; calls `on_change` when one of them has changed."""

    def __init__(self, client: Client, places: Iterable[tuple[Resource, str]], on_change: Callable[[], None]) -> None:
        self._client = client
        self._stored: dict[tuple[Resource, str], tuple[Wanted, Json]] = {}
        self._reflectors: dict[tuple[Resource, str], Reflector[Json]] = {
            (resource, name): Reflector(
                client, resource, dict, lambda *_: on_change(), on_change, fields=f"metadata.name={name}", optional=True
            )
            for resource, name in places
        }

    async def run(self) -> None:
        """Watch, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())

    def found(self, resource: Resource, name: str) -> Json | None:
        """The object as last seen."""
        return self._reflectors[resource, name].objects.get(name)

    def unknown(self) -> list[str]:
        """The objects of which the API server has not told yet whether they are there."""
        places = [place for place, reflector in self._reflectors.items() if not reflector.synced.is_set()]
        return [f"{resource} {name} is not known yet" for resource, name in places]

    async def put(self, wanted: Wanted) -> None:
        """Create or correct an object, unless it is known to be as it should be.  Raises what a client raises."""
        place = wanted.resource, wanted.name
        reflector = self._reflectors[place]
        if not reflector.synced.is_set():
            return  # what is not known yet is not judged
        seen = reflector.objects.get(wanted.name)
        if seen is not None and self._is_right(wanted, seen):
            return
        body = wanted.body()
        try:
            found = await self._client.get(wanted.resource, wanted.name)
        except ApiError as error:
            if error.code != 404:
                raise
            stored = await self._client.create(wanted.resource, body)
        else:
            if self._is_right(wanted, found):
                return  # as we left it, and the watch does not know yet
            body["metadata"] = {**body["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
            stored = await self._client.update(wanted.resource, wanted.name, "", body)
        if place in self._stored and self._stored[place][0] == wanted:
            log.warning("%s %s was not as it should be, and is put back", wanted.resource, wanted.name)
        self._stored[place] = wanted, stored

    def _is_right(self, wanted: Wanted, found: Json) -> bool:
        """Whether an object is as we want it, or as the API server stored it when we wrote that.

        A later Kubernetes may fill in fields that we do not know.
        """
        ours, stored = self._stored.get((wanted.resource, wanted.name), (None, {}))
        as_stored = ours == wanted and all(stored.get(field) == found.get(field) for field in wanted.content)
        return as_stored or wanted.holds(found)
