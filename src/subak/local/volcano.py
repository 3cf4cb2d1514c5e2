"""The namespace `volcano-system` with the scheduler configuration in its ConfigMap, as Volcano's users expect it."""

from __future__ import annotations

from pathlib import Path

from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS, NAMESPACES
from tinykube.status import ApiError
from tinykube.yaml import read

CONFIG_MAP = Path(__file__).with_name("volcano-scheduler-configmap.yaml")
"""As Volcano's guide to GPU sharing prints it."""

MANAGER = "subak-apply"
"""As if `subak apply` had written it, so that `subak apply` may change it."""


async def prepare(client: Client) -> None:
    """Create what is not there; what somebody has changed stays."""
    wanted = read(CONFIG_MAP.read_text()).content
    name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
    try:
        await client.get(CONFIG_MAPS, name, namespace)
        return
    except ApiError as error:
        if error.code != 404:
            raise
    try:
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    except ApiError as error:
        if error.code != 409:
            raise
    await client.apply(CONFIG_MAPS, name, namespace, wanted, manager=MANAGER)
