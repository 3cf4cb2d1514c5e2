"""A container in which each process makes two more: its limit holds, others go on, and nothing of it is left.

The bomb is bounded by its depth too, so that this machine stands it if the limit does not hold.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.support.live import Live, live
from tests.support.storm import client_of, pod, remove, running, until, until_phase
from tinykube.client import Client
from tinykube.resource import PODS

DEPTH = 12
"""8,191 processes, if all of them come about."""
LIMIT = 4096
"""Of processes in a container."""
BOMB = 'b() { if [ "$1" -gt 0 ]; then b $(($1 - 1)) & b $(($1 - 1)) & fi; exec sleep %s; }; b %d'


@pytest.mark.long
def test_others_go_on_beside_a_fork_bomb_and_nothing_of_it_is_left() -> None:
    with live() as cluster:
        asyncio.run(storm(cluster, client_of(cluster.kubeconfig)))
        assert cluster.stop() == 0


async def storm(cluster: Live, client: Client) -> None:
    fuse, neighbour = f"86399.{os.getpid()}01", f"86399.{os.getpid()}02"
    await client.create(PODS, pod("neighbour", "sleep", neighbour), "default")
    await until_phase(client, "neighbour", "Running")
    before = running(neighbour)
    assert len(before) == 1
    await client.create(PODS, pod("bomb", "sh", "-c", BOMB % (fuse, DEPTH)), "default")
    most = await exploded(fuse)
    assert most <= LIMIT
    await client.create(PODS, pod("newcomer", "true"), "default")
    await until_phase(client, "newcomer", "Succeeded")
    assert cluster.subak("exec", "neighbour", "--", "echo", "here").stdout == "here\n"
    await remove(client, "bomb")
    assert running(fuse) == []
    assert running(neighbour) == before
    await client.close()
    print(f"a bomb of {most} processes")


async def exploded(fuse: str) -> int:
    """How many processes the bomb came to at most, once they become no more."""
    counts = [0]

    async def done() -> bool:
        counts.append(len(running(fuse)))
        return counts[-1] > LIMIT // 2 and len(set(counts[-20:])) == 1

    await until("the bomb comes to its limit", done)
    return max(counts)
