"""The live cluster, read from an API server into the same form as from files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from subak.cli.cluster import Cluster
from subak.cli.connection import Blind
from subak.cli.files import KINDS
from subak.dialects.interpreter import Interpreter
from subak.model import manifest, volume
from subak.scheduler.configuration import in_force
from tinykube.client import Client
from tinykube.endpoint import ConfigError
from tinykube.resource import NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, Resource
from tinykube.status import ApiError

RESOURCES = (NODES, manifest.DEVICES, RESOURCE_QUOTAS, NAMESPACES, *volume.RESOURCES, PODS)
"""All that decides about pods."""

VIEWER = "subak-viewer"
"""The ClusterRole (deploy/manifests) with which a user may see all nodes and pods."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A cluster, and all its pods by key."""

    cluster: Cluster
    pods: dict[str, manifest.Pod]


async def picture(client: Client, interpreter: Interpreter | None = None) -> Picture:
    """What decides about pods, read from the API server with the device config that the cluster publishes.

    `interpreter` is used instead if given.  Raises ConfigError if the config cannot be read, Blind if the user may not
    see all of that.
    """
    interpreter = interpreter or await speaking(client)
    listed = await asyncio.gather(*[all_of(client, each, KINDS[each.kind]) for each in RESOURCES])
    cluster = Cluster(interpreter)
    cluster.fill({each.kind: objects for each, objects in zip(RESOURCES, listed, strict=True)})
    return Picture(cluster, {pod.key: pod for pod in listed[RESOURCES.index(PODS)]})


async def speaking(client: Client) -> Interpreter:
    """All dialects with the device config that the cluster publishes.  Raises ConfigError if it cannot be read."""
    try:
        return Interpreter(await in_force(client))
    except ValueError as error:
        raise ConfigError(f"{error}: correct it, or give the right one with --device-config") from None


async def all_of(client: Client, resource: Resource, type: type[Any]) -> list[Any]:
    """All objects of a kind; none if the server does not have the kind.  Raises Blind if the user may not see them."""
    try:
        return (await client.list(resource, strict=False, type=type)).items
    except ApiError as error:
        if error.code == 404:
            return []
        if error.code == 403:
            remedy = f"an administrator can allow it: kubectl create clusterrolebinding NAME --clusterrole={VIEWER} ..."
            raise Blind(f"{error.message}; {remedy}") from None
        raise
