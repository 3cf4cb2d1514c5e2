"""Whole stories, with the real API server, scheduler and kubelet: from a pod's creation to the free card."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from subak.local.cluster import SCHEDULER, LocalCluster
from subak.local.hardware import profiles
from subak.local.runtime import capability
from subak.model import manifest
from subak.model.device import MIB
from subak.node.machine import Machine
from tests.support.machines import INTERPRETER, machine, machines
from tinykube.client import Client
from tinykube.resource import NODES, PODS

EXAMPLES = Path(__file__).parents[3] / "examples"

Pod = dict[str, Any]


@asynccontextmanager
async def cluster(*described: Machine, **options: Any) -> AsyncIterator[Client]:
    async with LocalCluster(described, INTERPRETER, **{"runtime": "none", **options}) as running:
        yield running.client


def pod(name: str, limits: dict[str, Any], **spec: Any) -> Pod:
    container = {"name": "c", "image": "i", "resources": {"limits": {key: str(each) for key, each in limits.items()}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


async def create(client: Client, *pods: Pod) -> None:
    for each in pods:
        await client.create(PODS, each, "default")


async def until(client: Client, name: str, condition: Callable[[Pod], bool], seconds: float = 20) -> Pod:
    async with asyncio.timeout(seconds):
        while True:
            found = await client.get(PODS, name, "default")
            if condition(found):
                return found
            await asyncio.sleep(0.005)


def phase(wanted: str) -> Callable[[Pod], bool]:
    return lambda pod: bool(pod["status"].get("phase") == wanted)


def has_a_reason(pod: Pod) -> bool:
    return any(each["type"] == "PodScheduled" and each.get("message") for each in pod["status"].get("conditions", ()))


def seeds() -> dict[str, Pod]:
    """The documents' pods; one of each folder, by its file."""
    found = {}
    for file in NODES_OF_SEEDS:
        content = yaml.safe_load((EXAMPLES / f"{file}.yaml").read_text(encoding="utf-8"))
        content["metadata"] = {**content["metadata"], "name": file.replace("/", "-"), "namespace": "default"}
        found[file] = content
    return found


NODES_OF_SEEDS = {
    "volcano/gpu-pod1": "gtx1080ti",
    "volcano/gpu-pod2": "gtx1080ti",
    "koordinator/pod": "p40",
    "moore-threads/pod": "s4000",
    "iluvatar/pod": "mr-v100",
    "iluvatar/bi-v150": "bi-v150",
    "metax/sgpu/pod": "c500-sgpu",
    "metax/gpu/pod": "c500",
}
MARKS = {
    "volcano/gpu-pod1": {"volcano.sh/gpu-assigned": "true", "volcano.sh/gpu-index": "0"},
    "volcano/gpu-pod2": {"volcano.sh/gpu-assigned": "true", "volcano.sh/gpu-index": "0"},
    "koordinator/pod": {},
    "moore-threads/pod": {"hami.io/bind-phase": "success"},
    "iluvatar/pod": {"hami.io/bind-phase": "success", "iluvatar.ai/gpu-assigned": "true"},
    "iluvatar/bi-v150": {"hami.io/bind-phase": "success", "iluvatar.ai/gpu-assigned": "true"},
    "metax/sgpu/pod": {"hami.io/bind-phase": "success"},
    "metax/gpu/pod": {"hami.io/bind-phase": "success"},
}


async def test_all_documents_pods_run_where_their_documents_say_and_are_marked() -> None:
    async with cluster(*profiles.default(INTERPRETER)) as client:
        pods = seeds()
        await create(client, *pods.values())
        for file, each in pods.items():
            running = await until(client, each["metadata"]["name"], phase("Running"))
            assert running["spec"]["nodeName"] == NODES_OF_SEEDS[file]
            assert running["metadata"]["annotations"].items() >= MARKS[file].items()
        for node in (await client.list(NODES)).items:
            assert "hami.io/mutex.lock" not in (node["metadata"].get("annotations") or {})


async def test_a_waiting_pod_runs_at_once_when_the_card_is_given_back() -> None:
    big = {"volcano.sh/gpu-memory": 20000}
    async with cluster(machine("shared", taints=[])) as client:
        await create(client, pod("first", big))
        await until(client, "first", phase("Running"))
        await create(client, pod("second", big))
        waiting = await until(client, "second", has_a_reason)
        assert "3,028 MiB" in waiting["status"]["conditions"][0]["message"]
        began = time.perf_counter()
        await client.delete(PODS, "first", "default")
        await until(client, "second", phase("Running"))
        assert time.perf_counter() - began < 30  # far more than it takes, for busy machines


async def test_pods_that_need_the_node_lock_come_one_after_the_other() -> None:
    async with cluster(machine("metax-sgpu")) as client:
        names = [f"p{number}" for number in range(20)]
        limits = {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 10, "metax-tech.com/vmemory": 4}
        await create(client, *(pod(name, limits) for name in names))
        for name in names:
            await until(client, name, phase("Running"))
        node = await client.get(NODES, "c500-sgpu")
        assert "hami.io/mutex.lock" not in node["metadata"]["annotations"]


async def test_a_pod_that_another_scheduler_bound_without_choosing_a_card_fails_with_a_reason() -> None:
    async with cluster(machine("koordinator")) as client:
        await create(client, pod("p", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 30000}))
        await until(client, "p", has_a_reason)
        await client.bind("p", "default", "p40")
        failed = await until(client, "p", phase("Failed"))
        assert "asks for cards (hami-nvidia), but no annotation" in failed["status"]["message"]
        await create(client, pod("next", {"nvidia.com/gpu": 1}))
        await until(client, "next", phase("Running"))


async def test_a_card_is_never_overcommitted_by_another_scheduler() -> None:
    async with LocalCluster([machine("shared", taints=[])], INTERPRETER, runtime="none") as running:
        client = running.client
        await create(client, pod("first", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 20000}))
        await until(client, "first", phase("Running"))
        await create(client, pod("greedy", {"volcano.sh/gpu-memory": 3029}))
        await until(client, "greedy", has_a_reason)
        await running.client_of(SCHEDULER).bind("greedy", "default", "a10", annotations={"volcano.sh/gpu-index": "0"})
        failed = await until(client, "greedy", phase("Failed"))
        assert "has 3,028 MiB" in failed["status"]["message"]
        assert "default/first hold" in failed["status"]["message"]


async def test_a_restart_from_the_same_state_keeps_all_cards_with_their_pods(tmp_path: Path) -> None:
    half = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 11000, "nvidia.com/gpucores": 50}
    described = machine("shared", taints=[])
    async with cluster(described, state=tmp_path) as client:
        await create(client, pod("one", half), pod("two", half))
        before = [await until(client, name, phase("Running")) for name in ("one", "two")]
    async with cluster(described, state=tmp_path) as client:
        for earlier in before:
            again = await until(client, earlier["metadata"]["name"], phase("Running"))
            assert again["metadata"]["annotations"] == earlier["metadata"]["annotations"]
        await create(client, pod("three", half))
        await until(client, "three", has_a_reason)
        await client.delete(PODS, "one", "default")
        await until(client, "three", phase("Running"))


async def test_the_commands_of_iluvatars_document_find_the_vendors_libraries() -> None:
    """With real processes: the document's pod copies libraries and goes on only if that works."""
    obstacle = await capability.obstacle()
    if obstacle:
        pytest.skip(obstacle)
    content = seeds()["iluvatar/pod"]
    script = content["spec"]["containers"][0]["args"][1]
    content["spec"]["containers"][0]["args"][1] = script.replace("sleep 360000", "ls /usr/local/corex/lib64")
    async with cluster(machine("iluvatar-mr-v100"), runtime="process") as client:
        await create(client, content)
        await until(client, "iluvatar-pod", phase("Succeeded"))
        logs = await client.logs("iluvatar-pod", "default")
        text = b"".join([chunk async for chunk in logs]).decode()
        assert {"libcuda.so", "libcuda.so.1", "libixml.so"} <= set(text.split())


async def test_programs_in_a_container_run_with_the_library_preloaded(libsubak: Path) -> None:
    """With real processes: nothing is heard of the library that limits programs."""
    obstacle = await capability.obstacle()
    if obstacle:
        pytest.skip(obstacle)
    each = pod("p", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}, restartPolicy="Never")
    each["spec"]["containers"][0]["command"] = [
        "sh",
        "-c",
        "cat /etc/ld.so.preload; wc -c < /usr/local/vgpu/libvgpu.so",
    ]
    async with cluster(machine("koordinator"), runtime="process") as client:
        await create(client, each)
        await until(client, "p", phase("Succeeded"))
        text = b"".join([chunk async for chunk in await client.logs("p", "default")]).decode()
        assert "cannot be preloaded" not in text
        assert text.splitlines() == ["/usr/local/vgpu/libvgpu.so", str(libsubak.stat().st_size)]


async def test_many_pods_on_many_nodes_overcommit_nothing() -> None:
    described = machines({"profile": "shared", "count": 20, "taints": []})
    async with cluster(*described) as client:
        kinds = [
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5000, "nvidia.com/gpucores": 20},
            {"volcano.sh/gpu-memory": 5000},
            {"koordinator.sh/gpu-core": 20, "koordinator.sh/gpu-memory-ratio": 20},
        ]
        names = [f"p{number}" for number in range(80)]
        await create(client, *(pod(name, kinds[number % 3]) for number, name in enumerate(names)))
        held: Counter[str] = Counter()
        nodes = {each.name: each.digest(INTERPRETER)[0] for each in described}
        for name in names:
            running = msgspec.convert(await until(client, name, phase("Running"), 60), manifest.Pod)
            placement = INTERPRETER.placement(running, nodes[running.spec.node_name])
            held.update({share.id: share.memory_bytes for grant in placement.grants for share in grant.shares})
    assert sum(held.values()) > 80 * 4600 * MIB
    assert max(held.values()) <= 23028 * MIB
