"""Pods start and stop on a real node while its kubelet, its containerd and our agent are ended in turn, most by force.

`SUBAK_E2E_NODE_PODS=200` is the full size.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from functools import partial
from pathlib import Path

from tests.e2e.agent import World, living
from tests.e2e.evidence import Evidence
from tests.e2e.lives import SPACE, Witness, witness
from tests.e2e.node import RealNode
from tinykube.resource import PODS

COUNT = int(os.environ.get("SUBAK_E2E_NODE_PODS", "30"))
TURNS = max(6, COUNT // 6)
STAYING, CARDS = 6, 8
AT_ONCE = max(6, COUNT // 12)
"""Of many pods that are caught while they start, kubelet looks for the containers, for seconds each."""
PATIENCE = 180.0
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "5"}
WHOLE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "11178", "nvidia.com/gpucores": "100"}


async def create(world: World, evidence: Evidence, names: list[str], limits: dict[str, str] = LIMITS) -> None:
    await asyncio.gather(*(world.client.create(PODS, evidence.pod(each, limits), SPACE) for each in names))


async def come_and_go(world: World, seen: Witness, evidence: Evidence, pods: dict[str, bool]) -> None:
    """Let pods live, some at once: each is deleted as soon as it runs, or while it starts if it is hasty."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def live(name: str, hasty: bool) -> None:
        async with slots:
            await create(world, evidence, [name])
            if not hasty:
                await seen.until(lambda: name in seen.ran, f"{name} runs", PATIENCE)
            await world.client.delete(PODS, name, SPACE)
            await seen.until(lambda: seen.is_gone(name), f"{name} is gone", PATIENCE)

    await asyncio.gather(*(live(name, hasty) for name, hasty in pods.items()))


def disturb(world: World, turn: int) -> None:
    """End one of the parts, and start it again."""
    node, agent = world.node, world.agent
    match turn % 6:
        case 0:
            agent.kill()
            agent.start()
        case 1:
            node.restart("kubelet")
        case 2:
            node.restart("containerd")
        case 3:  # the resources are gone when kubelet looks at its running pods anew
            assert agent.stop() == 0
            node.restart("kubelet")
            agent.start()
        case 4:
            node.stop("containerd")
            node.start("containerd")
        case 5:
            node.stop("kubelet")
            node.start("kubelet")


async def disturb_in_turn(world: World, seen: Witness, patient: set[str]) -> None:
    """End one part after the other, while ever more of the pods come to run."""
    for turn in range(TURNS):
        some = len(patient) * turn // TURNS
        await seen.until(partial(have_run, seen, patient, some), f"{some} pods have run", PATIENCE)
        await asyncio.to_thread(disturb, world, turn)


def have_run(seen: Witness, names: set[str], count: int) -> bool:
    return len(seen.ran & names) >= count


async def test_nothing_is_lost_and_nothing_runs_unlimited_while_parts_end_and_come_back(
    node: RealNode, tmp_path: Path
) -> None:
    evidence = Evidence(tmp_path / "evidence")
    async with living(node, {"profile": "volcano"}) as world, witness(world.client) as seen:
        staying = [f"staying-{number}" for number in range(STAYING)]
        await create(world, evidence, staying)
        await seen.until(lambda: all(map(seen.runs, staying)), "the tenants that stay run", PATIENCE)
        before = seen.started(staying)

        chance = random.Random(1)
        pods = {f"passing-{number}": chance.random() < 0.2 for number in range(COUNT)}
        patient = {name for name, hasty in pods.items() if not hasty}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(come_and_go(world, seen, evidence, pods))
            tasks.create_task(disturb_in_turn(world, seen, patient))

        assert seen.started(staying) == before, "tenants that run are left alone"
        await capacity_is_back(world, seen, evidence, staying)
        assert seen.problems == []
        assert evidence.problems(seen.records) == []


async def capacity_is_back(world: World, seen: Witness, evidence: Evidence, staying: list[str]) -> None:
    """When all are gone, every card can be had as a whole."""
    for name in staying:
        await world.client.delete(PODS, name, SPACE)
    await seen.until(lambda: all(map(seen.is_gone, staying)), "all tenants are gone", PATIENCE)
    whole = [f"whole-{number}" for number in range(CARDS)]
    await create(world, evidence, whole, WHOLE)
    await seen.until(lambda: all(map(seen.runs, whole)), "every card is given as a whole", PATIENCE)


async def test_an_agent_that_dies_inside_create_container_lets_nothing_start_unlimited(
    node: RealNode, tmp_path: Path
) -> None:
    evidence = Evidence(tmp_path / "evidence")
    async with living(node, {"profile": "volcano"}) as world, witness(world.client) as seen:
        for name in ("orphan-0", "orphan-1"):
            await kill_while_starting(world, seen, evidence, name)
        assert seen.problems == []
        assert evidence.problems(seen.records) == []


async def kill_while_starting(world: World, seen: Witness, evidence: Evidence, name: str) -> None:
    """Kill the agent while the runtime asks it about a container; the pod runs when there is an agent again."""
    world.agent.send(signal.SIGSTOP)  # it takes the runtime's question, and does not answer
    await create(world, evidence, [name])
    await seen.until(lambda: has_sandbox(seen, name), f"{name} is about to start", PATIENCE)
    world.agent.kill()
    await seen.until(lambda: bool(seen.waiting(name)), f"{name} is refused", PATIENCE)
    assert not seen.container(name).get("containerID"), "nobody gave it its limits"
    await asyncio.to_thread(world.agent.start)
    await seen.until(lambda: seen.runs(name), f"{name} runs", PATIENCE)


def has_sandbox(seen: Witness, name: str) -> bool:
    """Whether a pod has all but its containers."""
    conditions = (seen.pod(name) or {"status": {}})["status"].get("conditions", [])
    return any(each["type"] == "PodReadyToStartContainers" and each["status"] == "True" for each in conditions)
