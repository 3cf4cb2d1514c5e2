"""Our feasible nodes are those of the real kube-scheduler: see `tests.e2e.differential`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.differential import FIRST, WORLDS, Outcome, clean, compare, prepare
from tests.e2e.fakes import administrator
from tests.e2e.feasible import configure, extending
from tests.e2e.worlds import world

USUAL = 25
"""Worlds of a usual run: about 600 pods."""


async def test_our_feasible_nodes_are_those_of_kube_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    first, outcome = int(os.environ.get(FIRST, "1")), Outcome()
    async with administrator(cluster) as client, extending() as (extender, address):
        await prepare(client)
        configure(tmp_path / "scheduler.yaml", cluster.kubeconfig, address)
        cluster.start("kube-scheduler", f"--config={tmp_path / 'scheduler.yaml'}")
        try:
            for seed in range(first, first + int(os.environ.get(WORLDS, USUAL))):
                await compare(client, extender, world(seed), outcome)
        finally:
            cluster.stop("kube-scheduler")
            await clean(client)
    print(
        f"{outcome.pods:,} pods, {outcome.fitting:,} with some nodes and not all of them; {outcome.unready:,} may go to"
        f" nodes that are not ready by kube-scheduler, {outcome.misread:,} with a namespace selector that it misreads"
    )
    assert not outcome.differences, "\n".join(outcome.differences)
    assert outcome.fitting > outcome.pods / 4, "most pods fit everywhere or nowhere: the comparison says little"
