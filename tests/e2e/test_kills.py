"""A scheduler that is killed in the middle of a burst of pods, again and again.

`SUBAK_E2E_PODS=5000 SUBAK_E2E_NODES=1000` is the full size.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.schedulers import create, hardware, scheduler, witness

PODS = int(os.environ.get("SUBAK_E2E_PODS", "600"))
NODES = int(os.environ.get("SUBAK_E2E_NODES", "60"))
KILLS = 10


async def test_killed_ten_times_in_a_burst_every_pod_is_bound_once(cluster: Cluster, tmp_path: Path) -> None:
    async with (
        administrator(cluster) as client,
        fake_nodes(client, hardware(NODES)),
        witness(client) as seen,
        scheduler(cluster.kubeconfig, tmp_path / "log") as running,
    ):
        creating = asyncio.create_task(create(client, (f"p{number}" for number in range(PODS))))
        for kill in range(KILLS):
            await seen.until_placed(PODS * (kill + 1) // (KILLS + 2), seconds=PODS)
            running.kill()
            running.start()
        await creating
        await seen.until_placed(PODS, seconds=PODS)
        assert not seen.gone
        assert await seen.problems() == []
