"""Storage objects on a real API server: how to get rid of them."""

from __future__ import annotations

from tests.support.volumes import RESOURCES
from tinykube.client import Client
from tinykube.resource import PODS, Resource
from tinykube.status import ApiError


async def remove(client: Client, *more: Resource) -> None:
    """Remove all pods, storage objects and more, even those that somebody protects."""
    for resource in (PODS, *more, *RESOURCES.values()):
        for each in (await client.list(resource)).items:
            name, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
            try:
                if each["metadata"].get("finalizers"):
                    await client.patch(resource, name, namespace, {"metadata": {"finalizers": None}})
                if not each["metadata"].get("deletionTimestamp"):
                    await client.delete(resource, name, namespace, grace=0)
            except ApiError as error:
                if error.code != 404:  # the garbage collector was faster
                    raise
