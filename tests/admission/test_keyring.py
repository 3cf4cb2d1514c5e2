"""The Secret of the certificates: replicas agree, and what is not ours is left alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from subak.admission.certificates import BadSecret
from subak.admission.keyring import Keyring
from subak.admission.objects import LABELS
from tinykube.client import Client
from tinykube.resource import NAMESPACES, SECRETS
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.transport import Request, Response

NAMESPACE, NAME = "subak-system", "subak-webhook"
NAMES = frozenset({"subak-webhook.subak-system.svc"})
LIFE = timedelta(days=90)


class Slow:
    """A way to a server on which others act between any two requests."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(0)
        return await self._server.send(request)

    async def close(self) -> None:
        pass


class Replicas:
    """Some replicas with one clock, and an administrator."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, tzinfo=UTC)
        self._server = Server(Store())
        self.client = Client(self._server)

    async def open(self) -> Replicas:
        await self.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        return self

    def keyring(self, names: frozenset[str] = NAMES) -> Keyring:
        return Keyring(Client(Slow(self._server)), NAMESPACE, NAME, names, LIFE, lambda: self.now)

    async def secret(self) -> Any:
        return await self.client.get(SECRETS, NAME, NAMESPACE)

    async def put(self, labels: dict[str, str], data: dict[str, str]) -> None:
        body = {"metadata": {"name": NAME, "labels": labels}, "data": data}
        await self.client.create(SECRETS, body, NAMESPACE)


async def test_replicas_that_start_together_have_one_certificate() -> None:
    world = await Replicas().open()
    rings = [world.keyring() for _ in range(5)]
    assert all(each.due() for each in rings)
    await asyncio.gather(*(each.refresh() for each in rings))
    assert {tuple(each.known) for each in rings} == {tuple(rings[0].known)}
    assert len(rings[0].known) == 1
    assert not any(each.due() for each in rings)


async def test_replicas_that_renew_together_have_one_new_certificate() -> None:
    world = await Replicas().open()
    rings = [world.keyring() for _ in range(5)]
    await asyncio.gather(*(each.refresh() for each in rings))
    (old,) = rings[0].known
    world.now += timedelta(days=61)
    assert all(each.due() for each in rings)
    await asyncio.gather(*(each.refresh() for each in rings))
    assert {tuple(each.known) for each in rings} == {tuple(rings[0].known)}
    assert [old, rings[0].known[-1]] == rings[0].known
    assert len((await world.secret())["data"]) == 6


async def test_another_address_needs_another_certificate() -> None:
    world = await Replicas().open()
    await world.keyring().refresh()
    moved = world.keyring(frozenset({"10.0.0.1"}))
    await moved.refresh()
    assert moved.known[-1].names == NAMES | {"10.0.0.1"}
    assert not moved.due()


async def test_a_secret_of_ours_that_is_damaged_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    world = await Replicas().open()
    await world.put(LABELS, {"1.tls.crt": "eA=="})
    ring = world.keyring()
    await ring.refresh()
    assert len(ring.known) == 1
    assert "secret subak-system/subak-webhook is written anew: its data are 1.tls.crt" in caplog.text
    assert len((await world.secret())["data"]) == 3


async def test_a_secret_of_somebody_else_is_left_alone() -> None:
    world = await Replicas().open()
    await world.put({"app": "other"}, {"tls.crt": "eA=="})
    before = await world.secret()
    with pytest.raises(BadSecret, match="secret subak-system/subak-webhook is not ours: its data are tls.crt"):
        await world.keyring().refresh()
    assert await world.secret() == before


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_secret_that_was_deleted_or_damaged_comes_back_as_it_was(damaged: bool) -> None:
    """Otherwise the API server would not trust what replicas present, until it has learnt of a new authority."""
    world = await Replicas().open()
    ring = world.keyring()
    await ring.refresh()
    before = await world.secret()
    await world.client.delete(SECRETS, NAME, NAMESPACE)
    if damaged:
        await world.put(LABELS, {"1.tls.crt": "eA=="})
    await ring.refresh()
    after = await world.secret()
    assert (after["data"], after["metadata"]["labels"]) == (before["data"], LABELS)
