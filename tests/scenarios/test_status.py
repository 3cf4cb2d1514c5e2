"""A user writes the status of pods on a local cluster: cards are free when their containers have ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from subak.local.cluster import LocalCluster
from tests.support.live import PATIENCE
from tests.support.machines import machine
from tinykube.client import MERGE_PATCH
from tinykube.resource import PODS
from tinykube.status import ApiError

Json = dict[str, Any]

MAIN = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
ENDED: list[Json] = [
    {"phase": "Failed"},
    {"phase": "Succeeded", "containerStatuses": None},
    {"containerStatuses": [{**MAIN, "state": {"terminated": {"exitCode": 0}}}]},
]
ALIVE: list[Json] = [{"phase": "Running"}, {"phase": "Pending"}, {"phase": None}]


class Cluster:
    """A cluster with one card, and short ways to ask for it."""

    def __init__(self, local: LocalCluster) -> None:
        self.client = local.client

    async def create(self, name: str, mib: int) -> None:
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib}
        main = {"name": "main", "image": "busybox", "command": ["sleep"], "resources": {"limits": limits}}
        spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.client.create(PODS, body, "default")

    async def get(self, name: str) -> Json:
        return await self.client.get(PODS, name, "default")

    async def phase(self, name: str, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (await self.get(name))["status"]["phase"] != wanted:
                await asyncio.sleep(0.01)

    async def refuses(self, name: str, lies: list[Json]) -> None:
        for said in lies:
            with pytest.raises(ApiError) as caught:
                await self.client.patch_status(PODS, name, "default", said, kind=MERGE_PATCH)
            assert caught.value.code == 403
            assert "delete the pod" in caught.value.message

    async def goes_on(self, name: str) -> None:
        """A small pod starts: the scheduler has dealt with all that was before."""
        await self.create(name, 100)
        await self.phase(name, "Running")


async def test_no_user_frees_or_takes_a_card_by_a_status() -> None:
    async with LocalCluster([machine("shared", name="n", taints=[], cards={"count": 1})], runtime="none") as local:
        cluster = Cluster(local)
        await cluster.create("first", 20_000)
        await cluster.phase("first", "Running")
        await cluster.create("second", 20_000)
        await cluster.refuses("first", ENDED)
        await cluster.goes_on("a")
        assert "nodeName" not in (await cluster.get("second"))["spec"], "the card is in use"
        await cluster.client.patch(PODS, "first", "default", {"spec": {"activeDeadlineSeconds": 1}})
        await cluster.phase("first", "Failed")
        await cluster.phase("second", "Running")
        await cluster.refuses("first", ALIVE)
        await cluster.goes_on("b")
        assert "deletionTimestamp" not in (await cluster.get("second"))["metadata"]
        assert (await cluster.get("second"))["status"]["phase"] == "Running"


async def test_a_lie_about_a_pod_that_runs_is_put_right() -> None:
    async with LocalCluster([machine("shared", name="n", taints=[], cards={"count": 1})], runtime="none") as local:
        cluster = Cluster(local)
        await cluster.create("first", 20_000)
        await cluster.phase("first", "Running")
        lie = {"phase": "Pending", "podIP": "10.6.6.6", "podIPs": [{"ip": "10.6.6.6"}]}
        await cluster.client.patch_status(PODS, "first", "default", lie, kind=MERGE_PATCH)
        await cluster.phase("first", "Running")
        assert (await cluster.get("first"))["status"]["podIPs"] == [{"ip": "127.0.0.1"}]
