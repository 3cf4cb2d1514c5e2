"""Koordinator's Device object of the node: made, kept true, and taken away with the agent.

One that somebody else wrote, as Koordinator's own agent does, is left alone.  So is a cluster that does not know the
kind: then its users cannot ask for it either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from subak.dialects import mark
from subak.model import manifest
from subak.model.manifest import DEVICES
from tinykube.client import Client
from tinykube.reflector import DELETED, Reflector
from tinykube.status import ApiError


class DeviceObject:
    """The Device object of one node; `found` is the one that is there."""

    def __init__(self, client: Client, name: str, on_change: Callable[[], None]) -> None:
        self.found: manifest.Device | None = None
        self._client = client
        self._name = name
        self._on_change = on_change
        self.reflector = Reflector(
            client,
            DEVICES,
            manifest.Device,
            self._on_event,
            on_change,
            fields=f"metadata.name={name}",
            optional=True,
        )

    def _on_event(self, type: str, device: manifest.Device) -> None:
        self.found = None if type == DELETED else device
        self._on_change()

    async def look(self) -> None:
        """See what is there now."""
        try:
            self.found = await self._client.get(DEVICES, self._name, type=manifest.Device)
        except ApiError as error:
            if error.code != 404:
                raise
            self.found = None

    async def put(self, wanted: Mapping[str, Any] | None, node: manifest.Node) -> None:
        """Make it what it is to be; None means that there is to be none of ours."""
        found = self.found
        if found is not None and mark.MARK not in found.annotations:
            return
        try:
            if wanted is None and found is not None:
                await self._client.delete(DEVICES, self._name, uid=found.metadata.uid)
                self.found = None
            elif wanted is not None and found is None:
                self.found = await self._client.create(DEVICES, _owned(wanted, node), type=manifest.Device)
            elif wanted is not None and found is not None and not _says(found, wanted):
                body = _owned(wanted, node)
                body["metadata"]["resourceVersion"] = found.metadata.resource_version
                self.found = await self._client.update(DEVICES, self._name, "", body, type=manifest.Device)
        except ApiError as error:
            if error.code != 404:  # the kind is not known, or the object is gone: the watch will tell
                raise


def _owned(device: Mapping[str, Any], node: manifest.Node) -> dict[str, Any]:
    """A Device object that goes with its node."""
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node.name,
        "uid": node.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**device, "metadata": {**device["metadata"], "ownerReferences": [owner]}}


def _says(found: manifest.Device, wanted: Mapping[str, Any]) -> bool:
    """Whether a Device object says all that it is to say, as far as anybody reads it."""
    asked = msgspec.convert(wanted, manifest.Device)
    return (
        found.spec == asked.spec
        and asked.labels.items() <= found.labels.items()
        and asked.annotations.items() <= found.annotations.items()
    )
