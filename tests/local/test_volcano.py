"""`subak up` brings Volcano's scheduler configuration, and leaves alone what somebody has made of it."""

from __future__ import annotations

import pytest

from subak.local.volcano import prepare
from subak.scheduler.batch_configuration import KEY, NAME, NAMESPACE
from tests.batch.test_cases_q import SEED
from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS, NAMESPACES
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError


@pytest.fixture
def client() -> Client:
    return Client(Server(Store()))


async def test_it_is_there_as_the_guide_prints_it(client: Client) -> None:
    await prepare(client)
    assert (await client.get(CONFIG_MAPS, NAME, NAMESPACE))["data"] == {KEY: SEED}


async def test_an_edit_survives_the_next_start(client: Client) -> None:
    await prepare(client)
    await client.patch(CONFIG_MAPS, NAME, NAMESPACE, {"data": {KEY: "actions: allocate"}})
    await prepare(client)
    assert (await client.get(CONFIG_MAPS, NAME, NAMESPACE))["data"] == {KEY: "actions: allocate"}


async def test_the_namespace_may_be_there_already(client: Client) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await prepare(client)
    assert (await client.get(CONFIG_MAPS, NAME, NAMESPACE))["data"] == {KEY: SEED}


async def test_other_refusals_are_passed_on(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ApiError(500, "InternalError", "out of order")

    monkeypatch.setattr(client, "get", refuse)
    with pytest.raises(ApiError, match="out of order"):
        await prepare(client)
