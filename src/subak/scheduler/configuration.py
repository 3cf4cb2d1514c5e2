"""The device config in force, published in a ConfigMap of the cluster.

The scheduler writes the ConfigMap and keeps it true.  So all other programs read pods and nodes with the names and
defaults by which they were placed.  Name and key are those of HAMi's own ConfigMap, which its users know.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import msgspec
import yaml

from subak.dialects.config import FILE, Config
from subak.model.manifest import Lean, Metadata
from tinykube.client import Client
from tinykube.reflector import Reflector
from tinykube.resource import CONFIG_MAPS, NAMESPACES
from tinykube.status import ApiError
from tinykube.yaml import read

NAMESPACE = "subak-system"
NAME = "hami-scheduler-device"
PLACES = (NAMESPACE, "kube-system")
"""Namespaces to look in: our own, then the usual one of HAMi's chart."""

PAUSE, LONGEST_PAUSE = 1.0, 30.0

log = logging.getLogger(__name__)


class BadConfig(Exception):
    """The device config of the cluster cannot be read; the message says where and why."""


class ConfigMap(Lean, frozen=True, kw_only=True):
    """A ConfigMap, as far as we read it."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None


def written(config: Config) -> str:
    """A configuration as a `device-config.yaml`, with all defaults."""
    return yaml.safe_dump(msgspec.to_builtins(config), sort_keys=False)


def parse(text: str, place: str) -> Config:
    """The configuration in a `device-config.yaml`.  Raises ValueError that names the place."""
    try:
        return Config.of(read(text).content)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{place}: {' '.join(str(error).split())}") from None


async def in_force(client: Client) -> Config:
    """The configuration that a cluster publishes; the defaults if there is none, or we may not read it.

    Raises ValueError if it is malformed.
    """
    for namespace in PLACES:
        try:
            found = await client.get(CONFIG_MAPS, NAME, namespace, type=ConfigMap)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            continue
        text = (found.data or {}).get(FILE)
        if text is not None:
            return parse(text, f"configmap {namespace}/{NAME}: {FILE}")
    return Config()


async def awaited(client: Client) -> Config:
    """The configuration of the cluster, as soon as the API server gives it.  Raises BadConfig."""
    pause = PAUSE
    while True:
        try:
            return await in_force(client)
        except (ApiError, OSError, TimeoutError) as error:
            log.warning("the API server does not tell the device config: %s; next try in %.0f s", error, pause)
        except ValueError as error:
            raise BadConfig(str(error)) from None
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, LONGEST_PAUSE)


class Published:
    """A configuration in a cluster's ConfigMap, restored whenever somebody changes it."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._data = {FILE: written(config)}

    async def start(self) -> None:
        """Publish it now."""
        await self._put()

    async def run(self) -> None:
        """Restore it when somebody changes it, until cancelled."""
        changed = asyncio.Event()
        watched = Reflector(
            self._client,
            CONFIG_MAPS,
            ConfigMap,
            lambda *_: changed.set(),
            changed.set,
            namespace=NAMESPACE,
            fields=f"metadata.name={NAME}",
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(watched.run())
            while True:
                await changed.wait()
                changed.clear()
                try:
                    if await self._put():
                        text = "configmap %s/%s tells what is in force, and is put back: only a restart changes that"
                        log.warning(text, NAMESPACE, NAME)
                except (ApiError, OSError, TimeoutError) as error:
                    log.warning("configmap %s/%s cannot be written: %s", NAMESPACE, NAME, error)
                    await asyncio.sleep(PAUSE)
                    changed.set()

    async def _put(self) -> bool:
        """Create or correct the ConfigMap; True if that was necessary."""
        wanted: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME},
            "data": self._data,
        }
        try:
            found = await self._client.get(CONFIG_MAPS, NAME, NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            await self._create(wanted)
            return True
        if found.get("data") == self._data:
            return False
        if found.get("immutable"):
            await self._client.delete(CONFIG_MAPS, NAME, NAMESPACE)
            await self._client.create(CONFIG_MAPS, wanted, NAMESPACE)
        else:
            wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            await self._client.update(CONFIG_MAPS, NAME, NAMESPACE, wanted)
        return True

    async def _create(self, wanted: dict[str, Any]) -> None:
        """Create the ConfigMap; its namespace too, if there is none, which a controller of a cluster may not do."""
        try:
            await self._client.create(CONFIG_MAPS, wanted, NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            await self._client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            await self._client.create(CONFIG_MAPS, wanted, NAMESPACE)
