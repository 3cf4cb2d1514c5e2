"""A real node without NRI: kubelet hands out slots, resolves variables, and asks before each container starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import World, environment, living
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl, until_pods
from tests.e2e.evidence import RECORD, Evidence
from tests.e2e.node import RealNode, missing
from tinykube.resource import PODS

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SPACE = "default"
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "5"}
HARDWARE = {"profile": "volcano"}


@pytest.fixture(scope="module")
def bare(cluster: Cluster) -> Iterator[RealNode]:
    with RealNode(cluster, nri=False) as node:
        yield node


@pytest.fixture
async def world(bare: RealNode) -> AsyncIterator[World]:
    async with living(bare, HARDWARE) as world:
        yield world


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "evidence")


def is_running(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


async def running(world: World, *pods: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Create pods at once, and wait until they run."""
    await asyncio.gather(*(world.client.create(PODS, each, SPACE) for each in pods))
    found = await until_pods(world.client, SPACE, lambda pods: all(map(is_running, pods.values())), 120)
    return {each["metadata"]["name"]: found[each["metadata"]["name"]] for each in pods}


def slots(node: RealNode) -> str:
    return kubectl(node.cluster, "get", "node", node.name, "-o", "jsonpath={.status.allocatable.subak\\.io/slot}")


async def test_a_container_gets_the_cards_of_its_record(world: World, evidence: Evidence) -> None:
    pods = await running(world, evidence.pod("one", LIMITS))
    pod = pods["one"]
    assert slots(world.node) == "256"
    assert world.agent.readiness()["injection"] == "plugin"
    inside = environment(world.cluster, "one")
    assert inside["NVIDIA_VISIBLE_DEVICES"] in pod["metadata"]["annotations"][RECORD]
    assert inside["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    world.node.until(lambda: bool(evidence.starts()), "the container has said what it got")
    assert evidence.problems({pod["metadata"]["uid"]: pod["metadata"]["annotations"][RECORD]}) == []
