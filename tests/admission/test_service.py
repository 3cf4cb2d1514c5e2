"""All of admission on an embedded server: what is written, by whom, and what is told when something is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from subak.admission import objects, policy
from subak.admission.certificates import read
from subak.admission.service import NAMESPACE, Admission, Options
from subak.dialects.interpreter import Interpreter
from tinykube.client import Client
from tinykube.resource import NAMESPACES, SECRETS, Resource
from tinykube.server import crds
from tinykube.server.kinds import Kind
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError

OPTIONS = Options(("subak",), url="https://127.0.0.1:1", host="127.0.0.1", port=0, settling=timedelta(milliseconds=20))
PLACES = [
    (objects.MUTATING, objects.NAME),
    (objects.VALIDATING, objects.NAME),
    (policy.POLICIES, policy.NAME),
    (policy.POLICY_BINDINGS, policy.NAME),
]


def kind(resource: Resource) -> Kind:
    """A kind of which the server knows little: it fills in nothing, and takes everything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "webhooks": {"type": "array", "items": anything}}}
    version = {"name": "v1", "storage": True, "served": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": resource.kind, "plural": resource.plural}
    return crds.kind({"spec": {"group": resource.group, "scope": "Cluster", "names": names, "versions": [version]}})


class World:
    """A server, replicas on it, and an administrator."""

    def __init__(self, kinds: list[Resource]) -> None:
        self.server = Server(Store(custom=tuple(kind(each) for each in kinds)))
        self.client = Client(self.server)
        self.moved = timedelta()
        self.replicas: list[Admission] = []

    def now(self) -> datetime:
        return datetime.now(UTC) + self.moved

    def add(self, options: Options = OPTIONS) -> Admission:
        self.replicas.append(Admission(self.client, Interpreter(), options, self.now))
        return self.replicas[-1]

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Any:
        try:
            return await self.client.get(resource, name, namespace)
        except ApiError:
            return None

    async def all(self) -> bool:
        return None not in [await self.get(*place) for place in PLACES]

    async def bundles(self) -> list[str]:
        return [objects.authorities(await self.get(*place)) for place in PLACES[:2]]


@asynccontextmanager
async def running(*kinds: Resource, replicas: int = 1, options: Options = OPTIONS) -> AsyncIterator[World]:
    world = World([*kinds])
    await world.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    tasks = [asyncio.create_task(world.add(options).run()) for _ in range(replicas)]
    try:
        yield world
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


KINDS = [resource for resource, _ in PLACES]


async def until(condition: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.005)


async def test_every_replica_serves_and_only_the_leader_writes() -> None:
    async with running(*KINDS, replicas=2) as world:
        one, other = world.replicas
        await until(lambda: one.serving.is_set() and other.serving.is_set())
        assert not await world.all()
        other.lead()
        await until(world.all)
        await until(lambda: (one.trouble, other.trouble) == ("", ""))
        (known,) = read((await world.get(SECRETS, "subak-webhook", NAMESPACE))["data"])
        assert await world.bundles() == [known.authority] * 2
        assert known.names >= {"subak-webhook.subak-system.svc", "127.0.0.1"}


async def test_old_and_new_authority_are_trusted_while_certificates_change() -> None:
    async with running(*KINDS, replicas=2) as world:
        world.moved = timedelta(days=-61)
        for each in world.replicas:
            each.lead()
        await until(world.all)
        (old,) = read((await world.get(SECRETS, "subak-webhook", NAMESPACE))["data"])
        world.moved = timedelta()

        async def renewed() -> bool:
            return len(read((await world.get(SECRETS, "subak-webhook", NAMESPACE))["data"])) == 2

        await until(renewed)
        _, new = read((await world.get(SECRETS, "subak-webhook", NAMESPACE))["data"])
        await until(lambda: all(each.presented == new for each in world.replicas))
        assert await world.bundles() == [old.authority + new.authority] * 2


async def test_what_somebody_changes_or_deletes_is_put_back() -> None:
    async with running(*KINDS) as world:
        world.replicas[0].lead()
        await until(world.all)
        wanted = {place: await world.get(*place) for place in PLACES}
        await world.client.patch(*PLACES[2], "", {"spec": {"failurePolicy": "Ignore", "variables": None}})
        await world.client.patch(*PLACES[1], "", {"webhooks": []})
        await world.client.delete(*PLACES[0])
        await world.client.delete(SECRETS, "subak-webhook", NAMESPACE)

        async def restored() -> bool:
            found = {place: await world.get(*place) for place in PLACES}
            if None in found.values() or found[PLACES[2]]["spec"] != wanted[PLACES[2]]["spec"]:
                return False
            secret = await world.get(SECRETS, "subak-webhook", NAMESPACE)
            return secret is not None and await world.bundles() == [read(secret["data"])[-1].authority] * 2

        await until(restored)


async def test_a_name_that_is_served_no_more_leaves_the_conditions() -> None:
    served = {"subak", "volcano"}
    async with running(*KINDS, options=replace(OPTIONS, schedulers=served)) as world:
        (replica,) = world.replicas
        replica.lead()
        await until(world.all)

        async def conditions() -> str:
            return "".join([str((await world.get(*place))["webhooks"][0]["matchConditions"]) for place in PLACES[:2]])

        assert (await conditions()).count('"volcano"') == 2
        served.discard("volcano")
        replica.names_changed()

        async def gone() -> bool:
            return '"volcano"' not in await conditions()

        await until(gone)


async def test_records_are_guarded_even_if_the_webhook_cannot_be_served(caplog: pytest.LogCaptureFixture) -> None:
    async with running(*KINDS) as world:
        taken = {"metadata": {"name": "subak-webhook"}, "data": {"password": "eA=="}}
        await world.client.create(SECRETS, taken, NAMESPACE)
        (replica,) = world.replicas
        replica.lead()

        async def only_policies() -> bool:
            return [await world.get(*place) is not None for place in PLACES] == [False, False, True, True]

        await until(only_policies)
        await until(lambda: "secret subak-system/subak-webhook is not ours" in replica.trouble)
        assert await only_policies()
        await world.client.delete(SECRETS, "subak-webhook", NAMESPACE)
        await until(world.all)
        await until(lambda: replica.trouble == "")
    assert "is not ours" in caplog.text


async def test_an_old_api_server_without_policies_is_told_and_served() -> None:
    async with running(objects.MUTATING, objects.VALIDATING) as world:
        (replica,) = world.replicas
        replica.lead()
        await until(
            lambda: "validatingadmissionpolicies.admissionregistration.k8s.io subak-records cannot" in replica.trouble
        )
        assert None not in [await world.get(*place) for place in PLACES[:2]]


def test_the_certificate_is_good_for_the_service_and_the_url() -> None:
    service = {"subak-webhook.subak-system.svc", "subak-webhook.subak-system.svc.cluster.local"}
    assert replace(OPTIONS, url="").names() == service
    assert replace(OPTIONS, url="https://Web.Example:9443").names() == service | {"web.example"}
    assert replace(OPTIONS, url="https://[FD00::1]:9443").names() == service | {"fd00::1"}
