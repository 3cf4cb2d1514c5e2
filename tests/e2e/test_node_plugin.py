"""A real node without NRI: kubelet hands out slots, resolves variables, and asks before each container starts."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from subak.admission.slots import slotted
from subak.dialects.interpreter import Interpreter
from tests.e2e import images
from tests.e2e.agent import World, agent, environment, living, prepared
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl, until_pods
from tests.e2e.evidence import RECORD, Evidence
from tests.e2e.node import RealNode, missing
from tests.e2e.programs import greeter
from tinykube.client import Client
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


async def test_restarts_leave_running_containers_alone_and_new_ones_get_what_is_their_own(
    world: World, evidence: Evidence
) -> None:
    """Kubelet, then the agent; and each time a container starts again within its pod."""
    records: dict[str, str] = {}
    before: dict[str, str] = {}
    for number, part in enumerate(("nothing", "kubelet", "agent")):
        if part == "kubelet":
            world.node.restart("kubelet")
        if part == "agent":
            world.agent.kill()
            world.agent.start()
        world.node.until(lambda: slots(world.node) == "256", "kubelet counts slots again")
        name = f"after-{number}"
        pod = (await running(world, evidence.pod(name, LIMITS)))[name]
        records[pod["metadata"]["uid"]] = pod["metadata"]["annotations"][RECORD]
        assert {each: container(world.cluster, each) for each in before} == before
        id = container(world.cluster, "after-0").removeprefix("containerd://")
        world.node.ctr("tasks", "kill", "--signal=SIGKILL", id)
        world.node.until(partial(has_restarted, world.cluster, "after-0", number + 1), "it starts again")
        before = {f"after-{n}": container(world.cluster, f"after-{n}") for n in range(number + 1)}
    world.node.until(lambda: sum(map(len, evidence.starts().values())) == 3 + 3, "all starts have said what they got")
    assert evidence.problems(records) == []
    reasons = kubectl(world.cluster, "get", "pods", "-o", "jsonpath={.items[*].status.reason}")
    assert reasons.split() == [], "no UnexpectedAdmissionError"


@pytest.mark.parametrize("part", ["kubelet", "agent"])
async def test_no_pod_is_lost_that_is_bound_while_a_part_is_restarted(
    part: str, world: World, evidence: Evidence
) -> None:
    """Kubelet fails a pod for good (UnexpectedAdmissionError) if nobody answers when it is admitted."""
    made = [evidence.pod(f"{part}-{number}", LIMITS) for number in range(16)]
    started = asyncio.create_task(running(world, *made))
    await until_pods(world.client, SPACE, lambda pods: any(pod["spec"].get("nodeName") for pod in pods.values()))
    if part == "kubelet":
        await asyncio.to_thread(world.node.restart, "kubelet")
    else:
        assert await asyncio.to_thread(world.agent.stop) == 0
        await asyncio.to_thread(world.agent.start)
    pods = await started
    records = {pod["metadata"]["uid"]: pod["metadata"]["annotations"][RECORD] for pod in pods.values()}
    world.node.until(lambda: len(evidence.starts()) == 16, "all containers have said what they got")
    assert evidence.problems(records) == []


def container(cluster: Cluster, pod: str) -> str:
    return kubectl(cluster, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")


def has_restarted(cluster: Cluster, pod: str, times: int) -> bool:
    form = "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state.running}"
    count, _, state = kubectl(cluster, "get", "pod", pod, "-o", form).partition(" ")
    return bool(state) and int(count) == times


async def test_a_record_that_would_overcommit_a_card_is_refused_and_running_tenants_stay(bare: RealNode) -> None:
    """With neither webhook nor policy nor scheduler around: slots, variables and records are written by hand."""
    async with prepared(bare) as client:
        with agent(bare, HARDWARE) as started:
            card = started.readiness()["cards"][0]["id"]
            await bind_by_hand(client, bare, "tenant", card)
            kubectl(bare.cluster, "wait", "--for=condition=Ready", "pod/tenant", "--timeout=50s")
            before = container(bare.cluster, "tenant")
            await bind_by_hand(client, bare, "greedy", card)
            until_said(bare, "greedy", "would overcommit the card")
            assert container(bare.cluster, "tenant") == before
            assert not container(bare.cluster, "greedy")
            kubectl(bare.cluster, "delete", "pod", "tenant")
            kubectl(bare.cluster, "wait", "--for=condition=Ready", "pod/greedy", "--timeout=55s")
            assert environment(bare.cluster, "greedy")["NVIDIA_VISIBLE_DEVICES"] == card


async def test_a_pod_without_a_slot_is_found_and_removed(bare: RealNode) -> None:
    async with prepared(bare) as client:
        with agent(bare, HARDWARE) as started:
            card = started.readiness()["cards"][0]["id"]
            await bind_by_hand(client, bare, "unlimited", card, slot=False)
            bare.until(lambda: not names(bare.cluster), "it is removed")
            chosen = "--field-selector=involvedObject.name=unlimited,reason=CardsNotLimited"
            said = kubectl(bare.cluster, "get", "events", chosen, "-o", "jsonpath={.items[*].message}")
            assert "runs without subak.io/slot, so that no limit holds" in said


def names(cluster: Cluster) -> list[str]:
    return kubectl(cluster, "get", "pods", "-n", SPACE, "-o", "name").split()


def until_said(node: RealNode, name: str, words: str) -> None:
    """Wait until the container's state and an event say why it does not start."""
    waiting = "jsonpath={.status.containerStatuses[0].state.waiting.message}"
    chosen = f"--field-selector=involvedObject.name={name},reason=CardsRefused"
    node.until(lambda: words in kubectl(node.cluster, "get", "pod", name, "-o", waiting), f"{name} waits: {words}")
    events = ("get", "events", chosen, "-o", "jsonpath={.items[*].message}")
    node.until(lambda: words in kubectl(node.cluster, *events), f"an event of {name} says {words}")


async def bind_by_hand(client: Client, node: RealNode, name: str, card: str, slot: bool = True) -> None:
    """Bind a pod of 6000 MiB of a card to the node, whoever else has it."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "6000", "nvidia.com/gpucores": "10"}
    main = {"name": "main", "image": images.PLAIN, "command": ["sleep", "10000"], "resources": {"limits": limits}}
    spec = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0, "containers": [main]}
    pod: dict[str, Any] = {"metadata": {"name": name}, "spec": spec}
    created = await client.create(PODS, slotted(Interpreter(), pod) if slot else pod, SPACE)
    uid = created["metadata"]["uid"]
    variables = {
        "NVIDIA_VISIBLE_DEVICES": card,
        "CUDA_DEVICE_MEMORY_LIMIT_0": "6000m",
        "CUDA_DEVICE_SM_LIMIT": "10",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"/usr/local/vgpu/{uid}_main.cache",
    }
    annotations = {f"subak.io/env.0.{key}": value for key, value in variables.items()}
    await client.bind(name, SPACE, node.name, uid=uid, annotations={RECORD: f"{card},NVIDIA,6000,10:;", **annotations})


def test_a_pods_own_variable_wins_over_that_of_a_device_plugin(bare: RealNode) -> None:
    """All ways of injection rest on this order: a device plugin's variables, the pod's own, and last those of NRI."""
    waiting = bare.spawn([sys.executable, greeter.__file__], "greeter")
    path = r"jsonpath={.status.allocatable.example\.com/greeting}"
    bare.until(lambda: kubectl(bare.cluster, "get", "node", bare.name, "-o", path) == "1", "kubelet counts it")
    main = {
        "name": "main",
        "image": images.PLAIN,
        "command": ["sleep", "10000"],
        "env": [{"name": "OF_BOTH", "value": "the pod"}],
        "resources": {"limits": {greeter.RESOURCE: "1"}},
    }
    spec = {"nodeName": bare.name, "containers": [main], "terminationGracePeriodSeconds": 0}
    options = [f"--image={images.PLAIN}", f"--overrides={json.dumps({'spec': spec})}"]
    kubectl(bare.cluster, "run", "greeted", *options)
    kubectl(bare.cluster, "wait", "--for=condition=Ready", "pod/greeted", "--timeout=50s")
    inside = environment(bare.cluster, "greeted")
    assert (inside["OF_BOTH"], inside["OF_THE_PLUGIN"]) == ("the pod", "the plugin")
    kubectl(bare.cluster, "delete", "pod", "greeted")
    bare.send(waiting, signal.SIGKILL)
