"""`subak controller` on a real cluster, with the rights of its manifests only."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from subak.dialects.interpreter import Interpreter
from subak.local.hardware import profiles
from tests.e2e.cluster import Cluster
from tests.e2e.controller import (
    LEASE,
    MANIFESTS,
    NAMESPACE,
    apply_manifests,
    controller,
    free_lease,
    kubectl,
    until_pods,
)
from tests.e2e.fakes import administrator, fake_nodes
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.lease import Elector, Terms
from tinykube.resource import EVENTS, LEASES, NAMESPACES, NODES, PODS

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SLICE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
ALLOCATED = "hami.io/vgpu-devices-allocated"
LOCK = "hami.io/mutex.lock"
NAMES = ("subak", "hami-scheduler", "volcano", "koord-scheduler", "default-scheduler")
"""Of the seeds' pods some name no scheduler, and no webhook sends them to us here."""


@pytest.fixture(scope="module", autouse=True)
def _manifests(cluster: Cluster) -> None:
    apply_manifests(cluster)


@asynccontextmanager
async def namespace(client: Client, name: str) -> AsyncIterator[str]:
    """A namespace of a test, whose pods go at the end; or one that is there."""
    if name != "default":
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    async with asyncio.timeout(30):  # until there is an account, pods are refused
        while b'"default"' not in (await client.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts")).body:
            await asyncio.sleep(0.05)
    try:
        yield name
    finally:
        for pod in (await client.list(PODS, name)).items:
            await client.delete(PODS, pod["metadata"]["name"], name, grace=0)


@asynccontextmanager
async def nobody_leads(cluster: Cluster) -> AsyncIterator[Client]:
    """An administrator's client, where no controller of an earlier test holds the Lease."""
    async with administrator(cluster) as client:
        await free_lease(client)
        yield client


def pod(name: str, limits: dict[str, str], scheduler: str = "subak") -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}}


def bound(pods: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, each in pods.items() if each["spec"].get("nodeName")}


async def test_a_pod_of_the_deployment_is_admitted_by_its_namespace(cluster: Cluster) -> None:
    (deployment,) = (
        each for each in yaml.safe_load_all((MANIFESTS / "controller.yaml").read_text()) if each["kind"] == "Deployment"
    )
    template = deployment["spec"]["template"]
    body = {"metadata": {"name": "controller", **template["metadata"]}, "spec": template["spec"]}
    async with administrator(cluster) as client:
        admitted = await client.create(PODS, body, NAMESPACE, dry_run=True, validation="Strict")
        assert admitted["spec"]["serviceAccountName"] == "subak-controller"


async def test_a_controller_with_the_manifests_rights_binds_a_pod_and_gives_the_lease_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    hardware = machines({"name": "gpu", "profile": "volcano", "count": 2})
    config = tmp_path / "device-config.yaml"
    config.write_text("nvidia: {resourceCountName: nvidia.com/gpu}\n")
    async with (
        nobody_leads(cluster) as client,
        fake_nodes(client, hardware),
        namespace(client, "one-pod") as space,
        controller(cluster, client, f"--device-config={config}") as running,
    ):
        await client.create(PODS, pod("a", SLICE), space)
        pods = await until_pods(client, space, lambda pods: bool(pods["a"]["spec"].get("nodeName")))
        assert pods["a"]["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"].endswith(",NVIDIA,1000,0:;")
        assert (await running.until_ready("leader"))["leader"] == "one"
        async with asyncio.timeout(30):
            while "hami-scheduler-device" not in kubectl(cluster, "get", "-n", NAMESPACE, "configmaps"):
                await asyncio.sleep(0.1)
        assert await running.end(signal.SIGTERM) == 0
        assert not [line for line in running.lines() if line["level"] in ("error", "warning")], running.log


SEEDS = {
    "volcano": ("volcano/gpu-pod1.yaml", "volcano/gpu-pod2.yaml"),
    "default": ("koordinator/pod.yaml",),  # which names its namespace
    "iluvatar": ("iluvatar/pod.yaml", "iluvatar/bi-v150.yaml"),
    "moore-threads": ("moore-threads/pod.yaml",),
    "metax-sgpu": ("metax/sgpu/pod.yaml",),
    "metax-gpu": ("metax/gpu/pod.yaml",),
}
UUID = "GPU-[-0-9a-f]{36}"
RECORDS = {
    "volcano/gpu-pod1": ("gtx1080ti", "volcano.sh/gpu-index", "0"),
    "volcano/gpu-pod2": ("gtx1080ti", "volcano.sh/gpu-index", "0"),
    "default/pod-example": (
        "p40",
        "scheduling.koordinator.sh/device-allocated",
        r'{"gpu":\[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"11520Mi",'
        rf'"koordinator.sh/gpu-memory-ratio":"50"}},"id":"{UUID}"}}\]}}',
    ),
    "iluvatar/poddemo": ("mr-v100", "iluvatar.ai/predicate-gpu-idx-0", "0"),
    "iluvatar/bi-v150-poddemo": (
        "bi-v150",
        "hami.io/BI-V150-devices-to-allocate",
        f"{UUID},BI-V150,16384,50:;",
    ),
    "moore-threads/gpushare-pod-default": ("s4000", "mthreads.com/gpu-index", "0"),
    "metax-sgpu/gpu-pod1": (
        "c500-sgpu",
        "metax-tech.com/gpu-devices-allocated",
        rf'\[\[{{"uuid":"{UUID}","compute":60,"vRam":4096}}\]\]',
    ),
    "metax-gpu/gpu-pod1": ("c500", "hami.io/metax-gpu-devices-to-allocate", "c500-metax-0,Metax-GPU,65536,100:;"),
}
"""Of each pod: its node, and the annotation that the agent there reads, with what it must say."""


async def test_every_pod_of_the_seeds_is_bound_with_the_record_that_its_agent_reads(cluster: Cluster) -> None:
    found: dict[str, Any] = {}
    async with (
        nobody_leads(cluster) as client,
        fake_nodes(client, profiles.default(Interpreter()), marked=False),
        controller(cluster, client, *(f"--scheduler-name={name}" for name in NAMES)) as running,
    ):
        await running.until_ready("leader")
        for space, files in SEEDS.items():
            async with namespace(client, space):
                for file in files:
                    kubectl(cluster, "create", "-n", space, "-f", str(EXAMPLES / file))
                pods = await until_pods(client, space, lambda pods: bound(pods) == set(pods))
                found |= {f"{space}/{name}": each for name, each in pods.items()}
        locks = {
            node["metadata"]["name"]: node["metadata"]["annotations"][LOCK].rpartition(",")[2]
            for node in (await client.list(NODES)).items
            if LOCK in node["metadata"].get("annotations", {})
        }
        assert await running.end(signal.SIGTERM) == 0
        assert not [line for line in running.lines() if line["level"] == "error"], running.log
    assert found.keys() == RECORDS.keys()
    for key, (node, annotation, pattern) in RECORDS.items():
        assert found[key]["spec"]["nodeName"] == node
        assert re.fullmatch(pattern, found[key]["metadata"]["annotations"][annotation]), found[key]["metadata"]
    # Nobody plays the agents, which would take the locks away as soon as they have served the pod.
    assert locks == {"bi-v150": "bi-v150-poddemo", "c500-sgpu": "gpu-pod1"}


async def test_the_standby_takes_over_when_the_leader_is_killed_and_every_pod_is_bound_once(cluster: Cluster) -> None:
    hardware = machines({"name": "gpu", "profile": "volcano", "count": 3, "cpu": 64, "memory": "256Gi"})
    names = [f"p{number}" for number in range(60)]
    async with (
        nobody_leads(cluster) as client,
        fake_nodes(client, hardware),
        namespace(client, "failover") as space,
        controller(cluster, client, name="one") as one,
    ):
        await one.until_ready("leader")
        async with controller(cluster, client, name="two", port=9441) as two:
            assert (await two.until_ready("standby"))["leader"] == "one"
            await asyncio.gather(*(client.create(PODS, pod(name, SLICE), space) for name in names[:40]))
            await until_pods(client, space, lambda pods: bool(bound(pods)))
            assert await one.end(signal.SIGKILL) == -signal.SIGKILL
            await asyncio.gather(*(client.create(PODS, pod(name, SLICE), space) for name in names[40:]))
            pods = await until_pods(client, space, lambda pods: bound(pods) == set(names), 60)
            assert (await two.until_ready("leader"))["leader"] == "two"
            assert most_taken(pods) <= 11178
            listing = await client.list(EVENTS, space, fields="reason=Scheduled")
            assert max(Counter(each["involvedObject"]["name"] for each in listing.items).values()) == 1
            _, text = await two.get("/metrics")
            assert "subak_leader 1.0" in text
            # A leader that is asked to end gives the Lease back, so that the next one need not wait.
            async with controller(cluster, client, name="three", port=9440) as three:
                await three.until_ready("standby")
                assert await two.end(signal.SIGTERM) == 0
                assert (await client.get(LEASES, LEASE, NAMESPACE))["spec"]["holderIdentity"] in ("", "three")
                await three.until_ready("leader")
        lease = (await client.get(LEASES, LEASE, NAMESPACE))["spec"]
        assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("three", 2)


def most_taken(pods: dict[str, dict[str, Any]]) -> int:
    """MiB that are taken of the card of which most is taken."""
    taken: Counter[str] = Counter()
    for each in pods.values():
        card, _, mib, _ = each["metadata"]["annotations"][ALLOCATED].rstrip(":;").split(",")
        taken[card] += int(mib)
    return max(taken.values())


async def test_a_name_whose_own_scheduler_lives_is_not_served_and_readyz_says_so(cluster: Cluster) -> None:
    hardware = machines({"name": "gpu", "profile": "volcano"})
    async with nobody_leads(cluster) as client, fake_nodes(client, hardware), namespace(client, "rivals") as space:
        # An elector on a real server, as HAMi's scheduler has one.
        hami = Elector(client, "kube-system", "hami-scheduler", "hami-pod", Terms())
        await hami.acquire()
        keeping = asyncio.create_task(hami.keep())
        async with controller(cluster, client) as running:
            said = await running.until_ready("leader")
            why = "its own scheduler holds lease kube-system/hami-scheduler (hami-pod)"
            assert said["not_served"] == {"hami-scheduler": why}
            await client.create(PODS, pod("theirs", SLICE, "hami-scheduler"), space)
            await client.create(PODS, pod("ours", SLICE), space)
            pods = await until_pods(client, space, lambda pods: "ours" in bound(pods))
            assert bound(pods) == {"ours"}
            _, text = await running.get(f"/pods/{space}/theirs")
            assert json.loads(text)["state"] == "aside"
            keeping.cancel()
            await hami.release()
            await until_pods(client, space, lambda pods: "theirs" in bound(pods))
            assert (await running.readiness())["not_served"] == {}
            warnings = [line["event"] for line in running.lines() if line["level"] == "warning"]
            assert warnings == [
                f"pods of scheduler hami-scheduler are left alone: {why}",
                "pods of scheduler hami-scheduler are served now: no other scheduler holds a live lease",
            ]
        await client.delete(LEASES, "hami-scheduler", "kube-system")


async def test_a_controller_whose_lease_is_taken_ends_with_1(cluster: Cluster) -> None:
    async with nobody_leads(cluster) as client, controller(cluster, client) as running:
        await running.until_ready("leader")
        await client.patch(LEASES, LEASE, NAMESPACE, {"spec": {"holderIdentity": "thief"}})
        async with asyncio.timeout(30):
            assert await running.process.wait() == 1
        assert "lease subak-system/subak-controller is lost; it is held by thief" in running.lines()[-1]["event"]


async def test_a_right_that_is_missing_is_named_and_its_return_is_noticed(cluster: Cluster) -> None:
    async with nobody_leads(cluster) as client:
        kubectl(cluster, "delete", "clusterrolebinding/subak-controller")
        try:
            async with controller(cluster, client) as running, asyncio.timeout(30):
                while not any("forbids to list pods" in line["event"] for line in running.lines()):
                    await asyncio.sleep(0.05)
                assert (await running.get("/healthz"))[0] == 200
                assert not (await running.readiness())["ready"]
                apply_manifests(cluster)
                await running.until_ready("leader")
                (told,) = (line for line in running.lines() if "forbids to list pods" in line["event"])
                assert "the ClusterRole or Role subak-controller lacks that right" in told["event"]
                assert await running.end(signal.SIGTERM) == 0
        finally:
            apply_manifests(cluster)
