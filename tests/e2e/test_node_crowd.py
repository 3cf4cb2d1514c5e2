"""Fifty equal pods at once on one real node: whoever guesses which pod it serves would mix up their cards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import living
from tests.e2e.cluster import Cluster
from tests.e2e.controller import until_pods
from tests.e2e.evidence import RECORD, Evidence, held
from tests.e2e.node import RealNode, missing
from tinykube.resource import PODS

PODS_AT_ONCE = 50
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "5"}
SPREAD = {"hami.io/gpu-scheduler-policy": "spread"}
SPACE = "default"

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def is_running(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


@pytest.mark.parametrize("nri", [True, False], ids=["with NRI", "without NRI"])
async def test_each_of_fifty_equal_pods_gets_the_cards_of_its_own_record(
    nri: bool, cluster: Cluster, tmp_path: Path
) -> None:
    evidence = Evidence(tmp_path / "evidence")
    with RealNode(cluster, nri=nri) as node:
        async with living(node, {"profile": "volcano"}) as world:
            names = [f"equal-{number}" for number in range(PODS_AT_ONCE)]
            made = [evidence.pod(name, LIMITS, annotations=SPREAD) for name in names]
            await asyncio.gather(*(world.client.create(PODS, each, SPACE) for each in made))
            pods = await until_pods(world.client, SPACE, lambda pods: all(map(is_running, pods.values())), 120)
            assert sorted(pods) == sorted(names), "none has failed and been made anew"
            records = {pod["metadata"]["uid"]: pod["metadata"]["annotations"][RECORD] for pod in pods.values()}
            node.until(lambda: len(evidence.starts()) == PODS_AT_ONCE, "all containers have said what they got")
            assert evidence.problems(records) == []
            assert evidence.problems(dict.fromkeys(records, next(iter(records.values())))), "a mix-up would be noticed"
            assert len({held(record)[0][0] for record in records.values()}) == 8, "they are spread over all cards"
            assert {len(starts) for starts in evidence.starts().values()} == {1}, "none was started twice"
