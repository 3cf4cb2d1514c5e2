"""Two schedulers without a lease: what they overcommit is found, and both choose the same pods to go."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.identities import TOKEN
from tests.e2e.proxy import Proxy
from tests.e2e.schedulers import PATIENCE, PER_CARD, create, hardware, kubeconfig, scheduler, witness
from tinykube.client import Client
from tinykube.resource import EVENTS

NODES, CARDS = 4, 2
FULL = NODES * CARDS * PER_CARD


def mentions(name: str, line: bytes) -> bool:
    """Whether a line of a watch is about one of these pods."""
    return f'"name":"{name}-'.encode() in line


async def named(client: Client) -> set[str]:
    """The pods of which events say that their card was overcommitted."""
    events = await client.list(EVENTS, "default", fields="reason=Overcommitted")
    return {each["involvedObject"]["name"] for each in events.items}


async def test_what_two_schedulers_overcommit_is_repaired_by_both_alike(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    async with (
        administrator(cluster) as client,
        fake_nodes(client, hardware(NODES, CARDS)),
        witness(client) as seen,
        AsyncExitStack() as stack,
    ):
        proxies = []
        for name, other in ("ab", "ba"):
            between = await stack.enter_async_context(Proxy(cluster))
            between.hold = partial(mentions, other)  # neither hears of the other's pods, so both fill the same cards
            config = kubeconfig(tmp_path / name, between.address, tmp_path / "token")
            await stack.enter_async_context(scheduler(config, tmp_path / f"{name}.log"))
            proxies.append(between)
        await seen.until(lambda: all("/api/v1/pods" in each.watched for each in proxies))
        await create(client, [f"{name}-{number}" for name in "ab" for number in range(FULL)])
        await seen.until_placed(2 * FULL)
        assert len(await seen.problems()) == NODES * CARDS, "every card is overcommitted"
        for between in proxies:
            between.release()
        took = await seen.until(lambda: len(seen.gone) >= FULL)
        print(f"{NODES * CARDS} overcommitted cards repaired in {took:.1f} s")
        assert await seen.problems() == []
        assert len(seen.placed) == FULL, "whoever fits stays"
        async with asyncio.timeout(PATIENCE):
            while seen.gone != await named(client):
                await asyncio.sleep(0.1)
