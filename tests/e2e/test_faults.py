"""A scheduler whose way to the API server is disturbed: it recovers by itself, nothing is lost, nothing is bound twice.

`SUBAK_E2E_LATENCY=5` makes it quicker: so many seconds of latency, where 30 are the rule.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.e2e.cluster import ADDRESS, Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.identities import PASSING_TOKEN, TOKEN, Identities
from tests.e2e.proxy import Fault, Proxy, is_watch
from tests.e2e.schedulers import Witness, create, hardware, kubeconfig, scheduler, witness
from tinykube.client import Client

LATENCY = float(os.environ.get("SUBAK_E2E_LATENCY", "30"))
NODES, PODS = 20, 20


class Stage:
    """A disturbed way, and pods that are created on the other side of it."""

    def __init__(self, client: Client, between: Proxy, seen: Witness) -> None:
        self._client = client
        self._between = between
        self._seen = seen
        self._created = 0

    async def create(self) -> None:
        """More pods."""
        names = [f"p{self._created + number}" for number in range(PODS)]
        self._created += PODS
        await create(self._client, names)

    async def disturb(self, fault: Fault, times: int, watches: bool = False) -> None:
        """Create pods while so many requests about pods (or watches) meet a fault, and wait until all are bound."""
        left = times
        self._between.disturbed = 0

        def decide(request: web.Request) -> Fault | None:
            nonlocal left
            if not left or is_watch(request) != watches or not (watches or "/pods" in request.path):
                return None
            left -= 1
            return fault

        self._between.fault = decide
        if watches:
            self._between.cut()
        await self.create()
        await self._seen.until(lambda: self._between.disturbed == times)
        await self.recovers()

    async def recovers(self) -> None:
        """Wait until all pods are bound, and look whether all is well."""
        took = await self._seen.until_placed(self._created, 60 + 4 * LATENCY)
        print(f"{self._created} pods are bound after {took:.1f} s")
        assert not self._seen.gone
        assert await self._seen.problems() == []


@asynccontextmanager
async def stage(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[Stage, Proxy]]:
    """A scheduler that works."""
    (folder / "token").write_text(TOKEN)
    async with (
        administrator(cluster) as client,
        fake_nodes(client, hardware(NODES)),
        witness(client) as seen,
        Proxy(cluster) as between,
        scheduler(kubeconfig(folder / "config", between.address, folder / "token"), folder / "log"),
    ):
        acting = Stage(client, between, seen)
        await acting.create()
        await acting.recovers()
        yield acting, between


async def test_whatever_happens_on_the_way_every_pod_is_bound_once(cluster: Cluster, tmp_path: Path) -> None:
    async with stage(cluster, tmp_path) as (acting, between):
        await acting.disturb(Fault(status=410), 4, watches=True)
        await acting.disturb(Fault(status=429, headers={"Retry-After": "1"}), 2 * PODS)
        await acting.disturb(Fault(status=429), 2 * PODS)
        await acting.disturb(Fault(status=500), 2 * PODS)
        await acting.disturb(Fault(lost=True), 2 * PODS)
        await acting.disturb(Fault(delay=LATENCY), PODS)
        await acting.create()
        assert between.cut(), "watches are cut in the middle of a burst"
        await acting.recovers()
        await between.close()
        await acting.create()
        await between.open()
        await acting.recovers()


async def test_a_server_that_comes_back_with_another_certificate_and_other_tokens_is_found_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It is killed in the middle of a burst.  The scheduler trusts one authority and has one token at a time."""
    authority, token = tmp_path / "ca.crt", tmp_path / "token"
    mine, other = cluster.certificate.read_bytes(), Identities(tmp_path / "other", "another authority")
    authority.write_bytes(mine)
    token.write_text(PASSING_TOKEN)
    async with (
        administrator(cluster) as client,
        fake_nodes(client, hardware(NODES)),
        witness(client) as seen,
        scheduler(kubeconfig(tmp_path / "config", ADDRESS, token, authority), tmp_path / "log"),
    ):
        acting = Stage(client, Proxy(cluster), seen)
        try:
            await acting.create()
            await asyncio.to_thread(cluster.replace_identity, other, "another-token")
            authority.write_bytes(other.certificate("ca").read_bytes())
            token.write_text("another-token")
            await acting.create()
            await acting.recovers()
            await acting.create()
        finally:
            await asyncio.to_thread(cluster.replace_identity, None, PASSING_TOKEN)
        authority.write_bytes(mine)
        token.write_text(PASSING_TOKEN)
        await acting.create()
        await acting.recovers()
