"""The monitor on a real node: who waits for whom, what containers of a pod may use together, and what metrics say."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import images
from tests.e2e.agent import Agent, World, living
from tests.e2e.controller import kubectl
from tests.e2e.node import RealNode
from tinykube.resource import PODS

ONE_CARD = {"profile": "koordinator", "cards": {"count": 1}}
FOLDER = "/usr/local/vgpu"
"""A container's own directory; the node has it too."""
SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30}
MIB = 1 << 20


def figures(agent: Agent, name: str) -> dict[tuple[str, str], float]:
    """What a metric says of each pod and container, on all cards together."""
    with urllib.request.urlopen(f"{agent.address}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: Counter[tuple[str, str]] = Counter()
    for sample in (each for family in families for each in family.samples if each.name == name):
        found[sample.labels["pod"], sample.labels["container"]] += sample.value  # type: ignore[assignment]
    return dict(found)


def in_use(agent: Agent, pod: str) -> dict[str, float]:
    """What the containers of a pod use of all cards, in MiB."""
    used = figures(agent, "subak_container_memory_used_bytes")
    return {container: amount / MIB for (name, container), amount in used.items() if name == pod}


async def create(world: World, name: str, spec: dict[str, Any], labels: dict[str, str]) -> str:
    """A pod, as soon as it is ready; gives its UID."""
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"terminationGracePeriodSeconds": 0, **spec}}
    made = await world.client.create(PODS, body, "default")
    try:
        kubectl(world.cluster, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=50s")
    except AssertionError:
        print(kubectl(world.cluster, "describe", "pod", name))
        raise
    return str(made["metadata"]["uid"])


class Worker:
    """A pod whose program launches kernels while it is told to."""

    def __init__(self, node: RealNode, folder: Path) -> None:
        self._node = node
        self._folder = folder

    @classmethod
    async def start(cls, world: World, program: Path, name: str, **limits: int) -> Worker:
        wait = f"until [ -x {FOLDER}/launch ]; do sleep 0.1; done; exec {FOLDER}/launch {FOLDER}"
        resources = {"limits": {**SHARE, **{f"nvidia.com/{key}": amount for key, amount in limits.items()}}}
        container = {"name": "c", "image": images.PLAIN, "command": ["sh", "-c", wait], "resources": resources}
        uid = await create(world, name, {"schedulerName": "hami-scheduler", "containers": [container]}, {})
        folder = world.node.path(f"{FOLDER}/containers/{uid}_c")
        shutil.copy(program, folder / "launch.new")
        (folder / "launch.new").rename(folder / "launch")
        return cls(world.node, folder)

    def work(self) -> None:
        (self._folder / "work").touch()

    def rest(self) -> None:
        (self._folder / "work").unlink()

    def count(self) -> int:
        try:
            return int((self._folder / "count").read_text() or "0")
        except FileNotFoundError:
            return 0

    def until_going(self) -> None:
        """Wait until it launches something."""
        before = self.count()
        self._node.until(lambda: self.count() > before, "a program goes on")

    def until_waiting(self) -> None:
        """Wait until it has launched nothing for half a second; else it launches a hundred times in that time."""
        last, since = self.count(), time.monotonic()

        def stands() -> bool:
            nonlocal last, since
            if self.count() != last:
                last, since = self.count(), time.monotonic()
            return time.monotonic() - since > 0.5

        self._node.until(stands, "a program waits")


async def test_a_pod_of_low_priority_waits_while_the_other_works_but_not_for_a_dead_agent(
    node: RealNode, tmp_path: Path
) -> None:
    program = images.compiled("launch", tmp_path, "-ldl")
    async with living(node, ONE_CARD) as world:
        agent = world.agent
        low = await Worker.start(world, program, "low")
        high = await Worker.start(world, program, "high", priority=0)
        low.work()
        low.until_going()
        node.until(lambda: figures(agent, "subak_container_share_lifted").get(("low", "c")) == 1, "its share is lifted")
        high.work()
        node.until(lambda: figures(agent, "subak_container_blocked").get(("low", "c")) == 1, "it is blocked")
        low.until_waiting()
        high.until_going()
        agent.kill()
        low.until_going()
        agent.start()
        low.until_waiting()
        high.rest()
        low.until_going()
        assert figures(agent, "subak_container_blocked") == {("low", "c"): 0, ("high", "c"): 0}


async def test_containers_of_a_koordinator_pod_together_use_no_more_than_the_pod_has(node: RealNode) -> None:
    """They have pid namespaces of their own, and count in one region.  One of them ends and starts again."""
    async with living(node, {"profile": "koordinator"}) as world:
        holds = {"one": 2500, "two": 2000}  # of the first of two cards
        containers = [
            {
                "name": name,
                "image": images.PLAIN,
                "command": ["sh", "-c", f"allocate {mib} hold & echo $! > /tmp/pid; wait"],
                "resources": {"limits": {"koordinator.sh/gpu-core": 25, "koordinator.sh/gpu-memory-ratio": 25}},
            }
            for name, mib in holds.items()
        ]
        labels = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
        await create(world, "pair", {"schedulerName": "koord-scheduler", "containers": containers}, labels)

        def said(name: str) -> str:
            return kubectl(world.cluster, "logs", "pair", "-c", name).strip()

        node.until(
            lambda: all(said(name) == f"allocated {mib} MiB" for name, mib in holds.items()), "both have their memory"
        )
        more = kubectl(world.cluster, "exec", "pair", "-c", "two", "--", "sh", "-c", "allocate 1500 || true")
        assert more.strip() == "refused 1500 MiB: CUDA error 2", "the pod has a quarter of each card, 5,760 MiB"
        assert in_use(world.agent, "pair") == {name: pytest.approx(mib, abs=200) for name, mib in holds.items()}

        kubectl(world.cluster, "exec", "pair", "-c", "one", "--", "sh", "-c", "kill -9 $(cat /tmp/pid)")

        def restarted() -> bool:
            pod = json.loads(kubectl(world.cluster, "get", "pod", "pair", "-o", "json"))
            states = {each["name"]: each for each in pod["status"]["containerStatuses"]}
            assert states["two"]["restartCount"] == 0
            return states["one"]["restartCount"] == 1 and "running" in states["one"]["state"]

        node.until(restarted, "one runs again")
        node.until(lambda: bool(said("one")), "one has asked for memory")
        assert said("one") == "allocated 2500 MiB", "its former processes hold nothing any more"
        assert in_use(world.agent, "pair") == {name: pytest.approx(mib, abs=200) for name, mib in holds.items()}
