"""Waiting for an object, on the embedded server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError
from tinykube.wait import condition, until


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


@pytest.fixture
async def client() -> Client:
    return Client(Server(Store()))


async def test_what_is_so_already_is_not_waited_for(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map(x="1"), "default")
    found = await until(client, CONFIG_MAPS, "a", "default", lambda each: each["data"]["x"] == "1")
    assert found["metadata"]["name"] == "a"


async def test_a_later_version_is_waited_for(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map(x="1"), "default")
    waiting = asyncio.create_task(until(client, CONFIG_MAPS, "a", "default", lambda each: each["data"]["x"] == "3"))
    for value in ("2", "3"):
        await client.patch(CONFIG_MAPS, "a", "default", {"data": {"x": value}})
    assert (await waiting)["data"] == {"x": "3"}


async def test_an_object_that_is_not_there_or_goes(client: Client) -> None:
    with pytest.raises(ApiError, match='configmaps "a" not found'):
        await until(client, CONFIG_MAPS, "a", "default", bool)
    await client.create(CONFIG_MAPS, config_map(), "default")
    waiting = asyncio.create_task(until(client, CONFIG_MAPS, "a", "default", lambda each: False))
    await asyncio.sleep(0)
    await client.delete(CONFIG_MAPS, "a", "default")
    with pytest.raises(ApiError):
        await waiting


def test_conditions() -> None:
    pod = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert condition("Ready", "False")(pod)
    assert not condition("Ready")(pod)
    assert not condition("Ready")({})
