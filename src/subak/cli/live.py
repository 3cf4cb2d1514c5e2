"""The live cluster, read from an API server into the same form as from files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from subak.cli.cluster import Cluster
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.scheduler.configuration import in_force
from tinykube.client import Client
from tinykube.codec import T
from tinykube.endpoint import ConfigError
from tinykube.resource import NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, Resource
from tinykube.status import ApiError


@dataclass(frozen=True, slots=True)
class Picture:
    """A cluster, and all its pods by key."""

    cluster: Cluster
    pods: dict[str, manifest.Pod]


async def picture(client: Client, interpreter: Interpreter | None = None) -> Picture:
    """What decides about pods, read from the API server with the device config that the cluster publishes.

    `interpreter` is used instead if given.  Raises ConfigError if the config cannot be read.
    """
    if interpreter is None:
        try:
            interpreter = Interpreter(await in_force(client))
        except ValueError as error:
            raise ConfigError(f"{error}: correct it, or give the right one with --device-config") from None
    nodes, devices, quotas, pods, namespaces = await asyncio.gather(
        _all(client, NODES, manifest.Node),
        _all(client, manifest.DEVICES, manifest.Device),
        _all(client, RESOURCE_QUOTAS, manifest.ResourceQuota),
        _all(client, PODS, manifest.Pod),
        _all(client, NAMESPACES, manifest.Namespace),
    )
    cluster = Cluster(interpreter)
    cluster.fill(nodes, devices, quotas, pods, namespaces)
    return Picture(cluster, {pod.key: pod for pod in pods})


async def _all(client: Client, resource: Resource, type: type[T]) -> list[T]:
    """All objects of a kind; none if the server does not have the kind."""
    try:
        return (await client.list(resource, strict=False, type=type)).items
    except ApiError as error:
        if error.code == 404:
            return []
        raise
