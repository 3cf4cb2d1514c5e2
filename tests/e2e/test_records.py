"""The guard of records as a webhook of a real API server: it stands at all doors, and no door is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given

from subak.admission.records import guard
from tests.contracts.client import Client as Plain
from tests.contracts.client import eventually
from tests.e2e.cluster import ADDRESS, Cluster
from tests.e2e.identities import TOKEN
from tests.e2e.webhook import serving
from tests.support.doors import (
    HELD,
    OWNED,
    TENANT,
    WRITERS,
    Asked,
    World,
    forge_everywhere,
    sequences,
    write_all,
)
from tests.support.fuzz import examples
from tests.support.talk import PODS, Talk, pod
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load
from tinykube.transport import Request, Response

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Impersonating:
    """A way to a real server for whoever may speak in the name of others."""

    def __init__(self, cluster: Cluster) -> None:
        self._transport = HttpTransport(load(cluster.kubeconfig))

    async def send(self, request: Request) -> Response:
        headers = {"content-type": "application/json", **request.headers}
        if request.user is not None:
            headers |= {"impersonate-user": request.user.name, "impersonate-group": request.user.groups[0]}
        return await self._transport.send(replace(request, headers=headers))

    async def close(self) -> None:
        await self._transport.close()


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real cluster with our webhook."""
    plain = Plain(ADDRESS, Path(cluster.certificate).read_text(), TOKEN)
    forged = {**pod("forged"), "metadata": {"name": "forged", "annotations": HELD}}
    with serving(tmp_path_factory.mktemp("webhook"), partial(guard, OWNED, WRITERS)) as configuration:
        plain.send("POST", CONFIGURATIONS, configuration).must(201)
        # The server takes a moment to learn of it.
        eventually(lambda: plain.send("POST", PODS, forged, query={"dryRun": "All"}).code == 403)
        yield cluster
        plain.send("DELETE", f"{CONFIGURATIONS}/subak").must(200)
    eventually(lambda: plain.send("POST", PODS, forged, query={"dryRun": "All"}).code == 201)
    plain.close()


@asynccontextmanager
async def opened(cluster: Cluster) -> AsyncIterator[World]:
    talk = Talk()
    talk.way = Impersonating(cluster)
    try:
        yield await World(talk).open()
    finally:
        await talk.send("DELETE", PODS, gracePeriodSeconds=0)
        await talk.way.close()


@pytest.mark.parametrize("key", [*HELD, "hami.io/bind-phase"])
async def test_a_forged_record_is_refused_at_every_door(guarded: Cluster, key: str) -> None:
    async with opened(guarded) as world:
        await forge_everywhere(world, key)


@examples(40, 100)
@given(sequence=sequences)
def test_no_write_of_a_user_changes_a_record_and_all_others_are_answered_as_ever(
    guarded: Cluster, sequence: list[Asked]
) -> None:
    async def story() -> None:
        async with opened(guarded) as world:
            await write_all(world, sequence)

    asyncio.run(story())


async def test_the_other_subresources_take_no_annotations(guarded: Cluster) -> None:
    """Those that the embedded server does not have: a record that is sent there is dropped."""
    async with opened(guarded) as world:
        before = await world.records()
        for door in ("ephemeralcontainers", "resize"):
            whole = await world.talk.get(f"{PODS}/p")
            whole["metadata"]["annotations"] = {"volcano.sh/gpu-index": "7"}
            change = {"metadata": {"annotations": whole["metadata"]["annotations"]}}
            for answer in (
                await world.talk.send("PUT", f"{PODS}/p/{door}", whole, user=TENANT),
                await world.talk.send("PATCH", f"{PODS}/p/{door}", change, patch="merge", user=TENANT),
            ):
                assert answer.code == 200, answer.body
                assert await world.records() == before
