"""The device config in force: told in the cluster, kept true, and read back by everybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from subak.dialects.config import FILE, Config, Nvidia, Volcano
from subak.scheduler.configuration import NAME, NAMESPACE, Published, in_force, parse, written
from tests.support.bombs import BOMB
from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS, NAMESPACES
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError

OURS = Config(nvidia=Nvidia(resource_count_name="lab/gpu", default_memory=5_000), volcano=Volcano(gpu_memory_factor=10))
DEADLINE = 20.0


@pytest.fixture
def client() -> Client:
    return Client(Server(Store()))


@asynccontextmanager
async def kept(client: Client, config: Config = OURS) -> AsyncIterator[None]:
    told = Published(client, config)
    await told.start()
    task = asyncio.create_task(told.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until_told(client: Client) -> None:
    async with asyncio.timeout(DEADLINE):
        while await in_force(client) != OURS:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("config", [Config(), OURS])
def test_what_is_written_reads_back(config: Config) -> None:
    assert parse(written(config), "here") == config


async def test_a_cluster_that_tells_nothing_has_the_defaults(client: Client) -> None:
    assert await in_force(client) == Config()


async def test_everybody_learns_the_config_from_the_cluster(client: Client) -> None:
    async with kept(client):
        assert await in_force(client) == OURS


async def test_the_config_of_the_next_start_takes_the_place_of_the_one_before(client: Client) -> None:
    await Published(client, Config()).start()
    frozen = {"immutable": True}
    await client.patch(CONFIG_MAPS, NAME, NAMESPACE, frozen)
    await Published(client, OURS).start()
    assert await in_force(client) == OURS


async def test_it_is_put_back_whatever_others_do_to_it(client: Client) -> None:
    async with kept(client):
        lie: dict[str, Any] = {"data": {FILE: "nvidia: {resourceCountName: lie/gpu}"}}
        await client.patch(CONFIG_MAPS, NAME, NAMESPACE, lie)
        await until_told(client)
        await client.delete(CONFIG_MAPS, NAME, NAMESPACE)
        await until_told(client)
        await client.delete(NAMESPACES, NAMESPACE)
        await until_told(client)


async def test_where_hami_runs_its_own_config_counts(client: Client) -> None:
    text = "nvidia:\n  resourceCountName: lab/gpu\ncambricon:\n  resourceCountName: x/mlu\n"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {FILE: text}}
    await client.create(CONFIG_MAPS, body, "kube-system")
    assert (await in_force(client)).nvidia.resource_count_name == "lab/gpu"
    await Published(client, Config()).start()
    assert await in_force(client) == Config()


@pytest.mark.parametrize("text", ["nvidia: 7", "a: b: c", BOMB])
async def test_what_cannot_be_read_is_told_with_its_place(client: Client, text: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {FILE: text}}
    await client.create(CONFIG_MAPS, body, "kube-system")
    with pytest.raises(ValueError, match=f"configmap kube-system/{NAME}: {FILE}: "):
        await in_force(client)


async def test_other_refusals_are_passed_on(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ApiError(500, "InternalError", "out of order")

    monkeypatch.setattr(client, "get", refuse)
    with pytest.raises(ApiError, match="out of order"):
        await in_force(client)
