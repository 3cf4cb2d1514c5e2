"""A card passes from one pod to the next, with real processes: no pod fails because the other is still ending."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from subak.dialects.interpreter import Interpreter
from subak.local.cluster import LocalCluster
from subak.local.hardware import profiles
from tinykube.resource import PODS
from tinykube.wait import condition, until

PATIENCE = 60.0


def pod(name: str, command: str) -> dict[str, Any]:
    resources = {"limits": {"volcano.sh/gpu-memory": 11_178}}
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", command], "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def settled(found: dict[str, Any]) -> bool:
    return condition("Ready")(found) or found["status"]["phase"] in ("Failed", "Succeeded")


@pytest.mark.parametrize(
    "grace", [pytest.param(None, id="asked to end", marks=pytest.mark.long), pytest.param(0, id="deleted by force")]
)
async def test_the_next_pod_runs_when_the_first_is_deleted(grace: int | None) -> None:
    interpreter = Interpreter()
    content = {"nodes": [{"profile": "volcano", "cards": {"count": 1}}]}
    async with (
        asyncio.timeout(PATIENCE),
        LocalCluster(profiles.machines(content, "test", interpreter), interpreter) as cluster,
    ):
        client = cluster.client
        stubborn = "trap 'sleep 0.3; exit' TERM; while :; do sleep 0.01; done"  # it ends slowly
        await client.create(PODS, pod("p0", stubborn), "default")
        await until(client, PODS, "p0", "default", condition("Ready"))
        for number in range(1, 4):
            await client.create(PODS, pod(f"p{number}", stubborn), "default")
            await until(client, PODS, f"p{number}", "default", condition("PodScheduled", "False"))
            await client.delete(PODS, f"p{number - 1}", "default", grace=grace)
            found = await until(client, PODS, f"p{number}", "default", settled)
            assert found["status"]["phase"] == "Running", found["status"]
