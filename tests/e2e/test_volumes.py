"""Pods with volumes on a real API server, whose own volume controller binds the claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from subak.cli.live import picture
from subak.model.volume import CLAIMS, HOSTNAME, SELECTED_NODE, VOLUMES, Claim
from subak.scheduler.service import Service
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.storage import remove
from tests.support.machines import machines
from tests.support.volumes import (
    DRIVER,
    IMMEDIATE,
    LOCAL,
    RESOURCES,
    WAITING,
    Json,
    affinity,
    claim,
    classes,
    persistent_volume,
    with_claims,
)
from tinykube.client import Client
from tinykube.reflector import DELETED, Reflector
from tinykube.resource import PODS

PATIENCE = 60.0
ONE, OTHER = "disks-1", "disks-2"
"""The two nodes."""


@pytest.fixture(autouse=True, scope="module")
def controller(cluster: Cluster) -> Iterator[None]:
    """Kubernetes' own volume controller."""
    cluster.start("volumes", "--pvclaimbinder-sync-period=1s")
    yield
    cluster.stop("volumes")


class Shop:
    """Two nodes with cards, storage objects, and a scheduler that can be killed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run a new scheduler."""
        self.task = asyncio.create_task(
            Service(self.client, serves=lambda pod: pod.spec.scheduler_name == "subak").run()
        )

    async def kill(self) -> None:
        """End it in the middle of whatever it does."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def add(self, *objects: Json) -> None:
        for each in objects:
            resource = RESOURCES[each["kind"]]
            metadata = {key: value for key, value in each["metadata"].items() if key != "uid"}
            body = {key: value for key, value in each.items() if key != "status"} | {"metadata": metadata}
            await self.client.create(resource, body, "default" if resource.namespaced else "")

    async def ask(self, name: str, *claims: str, volumes: list[Json] | None = None) -> None:
        """Create a pod with claims and a share of a card."""
        container = {"name": "c", "image": "none", "resources": {"limits": {"volcano.sh/gpu-memory": 100}}}
        spec = {
            "schedulerName": "subak",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": with_claims(*claims) if volumes is None else volumes,
        }
        await self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")

    async def until(self, name: str, true: Callable[[Json], bool]) -> Json:
        """Wait until something is true of a pod."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.client.get(PODS, name, "default")
                if true(found):
                    return found
                if self.task is not None and self.task.done():
                    self.task.result()
                await asyncio.sleep(0.05)

    async def placed(self, name: str) -> str:
        """Wait until a pod is bound; gives its node."""
        return str((await self.until(name, lambda pod: bool(pod["spec"].get("nodeName"))))["spec"]["nodeName"])

    async def provision(self, failures: int = 0) -> None:
        """Make volumes for claims whose node is selected, after so many failures; until cancelled."""
        news: asyncio.Queue[Claim] = asyncio.Queue()
        reflector = Reflector(
            self.client, CLAIMS, Claim, lambda change, each: None if change == DELETED else news.put_nowait(each)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            made: set[str] = set()
            while True:
                each = await news.get()
                node, uid = each.selected_node, each.metadata.uid
                if node is None or each.spec.volume_name or uid in made or each.class_name != WAITING:
                    continue
                if failures:
                    failures -= 1
                    removed = {"metadata": {"annotations": {SELECTED_NODE: None}}}
                    await self.client.patch(CLAIMS, each.name, "default", removed)
                    continue
                made.add(uid)
                volume = persistent_volume(f"made-{each.name}", class_name=WAITING, host=node, claim=each.name, uid=uid)
                volume["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": DRIVER}
                await self.add(volume)


@asynccontextmanager
async def shop(cluster: Cluster) -> AsyncIterator[Shop]:
    """The nodes, the classes and a running scheduler; all is removed at the end."""
    hardware = machines({"name": "disks", "profile": "volcano", "count": 2})
    async with administrator(cluster) as client, fake_nodes(client, hardware):
        opened = Shop(client)
        await opened.add(*classes())
        await opened.start()
        try:
            yield opened
        finally:
            await opened.kill()
            await remove(client)


async def test_a_pod_goes_where_its_local_volume_is(cluster: Cluster) -> None:
    async with shop(cluster) as opened:
        await opened.add(persistent_volume("disk", host=OTHER), claim("data", class_name=LOCAL))
        await opened.ask("pod", "data")
        assert await opened.placed("pod") == OTHER
        bound = await opened.client.get(CLAIMS, "data", "default")
        assert bound["spec"]["volumeName"] == "disk"
        assert bound["status"]["phase"] == "Bound", "the claim was bound before the pod"
        await opened.ask("second", "data")
        assert await opened.placed("second") == OTHER


async def test_local_volumes_go_round_once_each(cluster: Cluster) -> None:
    async with shop(cluster) as opened:
        for number in range(6):
            host = ONE if number % 2 else OTHER
            await opened.add(persistent_volume(f"disk-{number}", host=host), claim(f"data-{number}", class_name=LOCAL))
        await asyncio.gather(*(opened.ask(f"pod-{number}", f"data-{number}") for number in range(6)))
        nodes = await asyncio.gather(*(opened.placed(f"pod-{number}") for number in range(6)))
        volumes = {each["metadata"]["name"]: each for each in (await opened.client.list(VOLUMES)).items}
        held: dict[str, str] = {}
        for number, node in enumerate(nodes):
            mine = (await opened.client.get(CLAIMS, f"data-{number}", "default"))["spec"]["volumeName"]
            assert mine not in held
            held[mine] = node
            assert volumes[mine]["spec"]["nodeAffinity"] == affinity(HOSTNAME, node)


async def test_a_volume_is_made_for_the_pods_node_even_if_the_first_try_fails(cluster: Cluster) -> None:
    async with shop(cluster) as opened:
        provisioner = asyncio.create_task(opened.provision(failures=1))
        try:
            await opened.add(claim("data"))
            template: dict[str, Any] = {"spec": claim("x")["spec"]}
            scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
            await opened.ask("pod", volumes=[*with_claims("data"), scratch])
            node = await opened.placed("pod")
            for name in ("data", "pod-scratch"):
                found = await opened.client.get(CLAIMS, name, "default")
                assert found["spec"]["volumeName"] == f"made-{name}"
                made = await opened.client.get(VOLUMES, f"made-{name}")
                assert made["spec"]["nodeAffinity"] == affinity(HOSTNAME, node)
        finally:
            provisioner.cancel()
            await asyncio.gather(provisioner, return_exceptions=True)


async def test_a_pod_waits_for_a_claim_that_is_bound_without_it(cluster: Cluster) -> None:
    async with shop(cluster) as opened:
        await opened.add(claim("data", class_name=IMMEDIATE))
        await opened.ask("pod", "data")
        text = "pod has unbound immediate PersistentVolumeClaims: default/data"
        await opened.until("pod", lambda pod: text in str(pod["status"].get("conditions")))
        seen = await picture(opened.client)
        assert text in str(seen.cluster.explain(seen.pods["default/pod"])), "commands say the same"
        await opened.add(persistent_volume("disk", class_name=IMMEDIATE, host=OTHER))
        assert await opened.placed("pod") == OTHER


async def test_a_scheduler_that_is_killed_while_claims_are_being_bound_goes_on(cluster: Cluster) -> None:
    async with shop(cluster) as opened:
        await opened.add(claim("new"), claim("local", class_name=LOCAL), persistent_volume("disk", host=OTHER))
        await opened.ask("pod", "new", "local")
        async with asyncio.timeout(PATIENCE):
            while SELECTED_NODE not in str((await opened.client.get(CLAIMS, "new", "default"))["metadata"]):
                await asyncio.sleep(0.02)
        await opened.kill()
        provisioner = asyncio.create_task(opened.provision())
        try:
            await opened.start()
            assert await opened.placed("pod") == OTHER
        finally:
            provisioner.cancel()
            await asyncio.gather(provisioner, return_exceptions=True)
