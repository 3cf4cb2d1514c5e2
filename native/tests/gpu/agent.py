"""The agent of a node on a real card: it finds the card, answers a container runtime, and tells what containers use.

    PYTHONPATH=src:. python3 native/tests/gpu/agent.py [ROOT...]       (build libsubak first)

ROOT is where the driver is installed, as for `subak agent --driver-root`; if it is not there, the loader finds it.

No container runtime is needed: the program plays its part towards the agent, over a socket as containerd does, and runs
what the agent answers as processes of Subak's own runtime.  The API server and the scheduler are those of `subak up`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import table
from table import row

from subak.dialects.interpreter import Interpreter
from subak.local.cluster import AGENTS, SCHEDULER, LocalCluster
from subak.local.runtime import machine as machine_view
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec
from subak.model.device import MIB
from subak.model.mount import Mount
from subak.node.agent import Agent, Settings
from subak.node.driver import ROOTS, Nvidia, load
from subak.node.host import Host
from subak.node.injection import ByRuntime
from subak.node.monitor.attach import attach
from subak.node.nri.messages import Adjustment
from tests.support import nri
from tinykube.client import Client
from tinykube.resource import NODES, PODS

NODE, PATIENCE = "card-node", 30.0
KEPT = ("LD_LIBRARY_PATH", "MOCK_MACHINE")
"""Variables by which programs find the driver where the loader does not."""

ISOLATED = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
ASKS: Mapping[str, tuple[dict[str, int], dict[str, str]]] = {
    "hami": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1024, "nvidia.com/gpucores": 30}, {}),
    "volcano": ({"volcano.sh/gpu-memory": 1536}, {}),
    "koordinator": ({"koordinator.sh/gpu-core": 25, "koordinator.sh/gpu-memory-ratio": 25}, ISOLATED),
}

TENANT = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
for began in (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)):
    if began:
        sys.exit(f"error {began}")
free, total = ctypes.c_size_t(), ctypes.c_size_t()
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
def take(mib): return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(mib << 20))
print(total.value >> 20, take(total.value >> 20), take(256), flush=True)
time.sleep(600)
"""
"""Prints the memory of its card in MiB, and CUDA's answers to a request for all of it and for 256 MiB; then waits."""

TAKEN, OUT_OF_MEMORY = 0, 2


class Story:
    """The agent on the card, with the cluster and the runtime around it."""

    def __init__(self, cluster: LocalCluster, agent: Agent, link: nri.Link, folder: Path) -> None:
        self.cluster, self.agent, self.link, self.folder = cluster, agent, link, folder
        self.runtime = Namespaces()

    async def bound(self, name: str, limits: Mapping[str, int], labels: Mapping[str, str]) -> dict[str, Any]:
        """A new pod, bound by the scheduler."""
        container = {"name": "c", "image": "any", "resources": {"limits": dict(limits)}}
        body = {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"containers": [container]}}
        await self.cluster.client.create(PODS, body, "default")
        return await self.until(partial(self.cluster.client.get, PODS, name, "default"), _is_bound)

    async def play_kubelet(self) -> None:
        """Copy the node's capacity to what can be allocated, and take the taint of new nodes away."""
        node = await self.cluster.client.get(NODES, NODE)
        status = {"status": {"allocatable": node["status"]["capacity"]}}
        await self.cluster.client.patch(NODES, NODE, "", status, subresource="status")
        await self.cluster.client.patch(NODES, NODE, "", {"spec": {"taints": None}})

    async def until(self, ask: Any, true: Any) -> Any:
        """The first answer of which it is true."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not true(found := await ask()):
            if asyncio.get_running_loop().time() > deadline:
                sys.exit(f"this did not become true within {PATIENCE:.0f} s: {found}\n{self.agent.readiness()}")
            await asyncio.sleep(0.05)
        return found

    async def start(self, pod: Mapping[str, Any], name: str = "c") -> tuple[Adjustment, Path]:
        """Create a container as containerd would, and run it with what the agent answered."""
        uid, log = pod["metadata"]["uid"], self.folder / f"{pod['metadata']['name']}.log"
        sandbox = nri.pod(uid, pod["metadata"]["name"], annotations=pod["metadata"].get("annotations"))
        content = nri.container(name, uid)
        got = await self.link.create(sandbox, content)
        if why := await self.link.validate(sandbox, content, got):
            raise nri.Failure(2, why)
        env = {"PATH": machine_view.search_path(), **{key: os.environ[key] for key in KEPT if key in os.environ}}
        mounts = [Mount(each.destination, each.source, "ro" in each.options) for each in got.mounts]
        mounts += [Mount(path, path, true_ids=True) for path in self.seen]
        devices = [each.path for each in got.devices]
        spec = Spec(pod["metadata"]["name"], self.tenant, env | dict(got.env), mounts=mounts, devices=devices, log=log)
        await self.runtime.start(spec)
        return got, log

    @property
    def seen(self) -> list[str]:
        """Folders that containers see although they are not public."""
        return [folder for each in KEPT if (name := os.environ.get(each)) for folder in _folders(Path(name))]

    @property
    def tenant(self) -> tuple[str, ...]:
        return (sys.executable, "-c", TENANT)

    async def metrics(self) -> str:
        """What the agent's window shows."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.agent.window.port}/metrics") as answer,
        ):
            return await answer.text()


def _folders(path: Path) -> list[str]:
    folder = path if path.is_dir() else path.parent
    return [] if str(folder).startswith(("/usr", "/lib")) else [str(folder)]


def _is_bound(pod: Mapping[str, Any]) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def _bare_node() -> dict[str, Any]:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": NODE}, "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}


@asynccontextmanager
async def on_card(roots: Sequence[str]) -> AsyncIterator[Story]:
    """Everything started, until the agent says that it is ready."""
    languages, stopped = Interpreter(), asyncio.Event()
    with tempfile.TemporaryDirectory(prefix="subak-agent-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        async with LocalCluster([], languages, runtime="none") as cluster, nri.runtime(folder) as fake:
            await cluster.client.create(NODES, _bare_node())
            pynvml = partial(load, tuple(map(Path, roots)))
            agent = Agent(
                cluster.client_of(AGENTS),
                Settings(NODE, host="127.0.0.1", port=0),
                languages,
                Nvidia(NODE, languages, pynvml),
                Host.on_node(folder / "host"),
                partial(ByRuntime, socket=fake.socket),
            )
            attach(agent, NODE, pynvml)
            running = asyncio.create_task(agent.run(stopped))
            link = await fake.link()
            await link.begin(nri.NEW)
            story = Story(cluster, agent, link, folder)
            try:
                await story.until(_said(agent), bool)
                yield story
            finally:
                await story.runtime.close()
                stopped.set()
                await running


def _said(agent: Agent) -> Any:
    async def ready() -> bool:
        return bool(agent.readiness()["ready"])

    return ready


async def look(story: Story) -> None:
    """What the agent says of the card."""
    node = await story.cluster.client.get(NODES, NODE)
    (card,) = story.agent.arbiter.machine.devices
    capacity, register = node["status"]["capacity"], node["metadata"]["annotations"]["hami.io/node-nvidia-register"]
    told = f"{card.model}, {card.memory_bytes // MIB} MiB, NUMA {card.numa}, minor {card.minor}, {card.pcie}"
    row("discovery", "", told, "UUID and size in the register", f"{card.id}" in register and card.healthy)
    volcano = capacity.get("volcano.sh/gpu-memory", "")
    row("capacity", "", f"volcano.sh/gpu-memory {volcano}", "all of the card", bool(volcano))


async def share(story: Story) -> None:
    """Containers of three dialects on the card, each held to its part."""
    (card,) = story.agent.arbiter.machine.devices
    sizes = {"hami": 1024, "volcano": 1536, "koordinator": card.memory_bytes // 4 // MIB}
    for name, (limits, labels) in ASKS.items():
        got, log = await story.start(await story.bound(name, limits, labels))
        said = await story.until(partial(asyncio.to_thread, log.read_text), bool)
        total, all_of_it, a_part = (int(word) for word in said.split()[-3:])
        good = (abs(total - sizes[name]) <= 1, all_of_it, a_part) == (True, OUT_OF_MEMORY, TAKEN)
        answer = f"sees {total} MiB, all: {all_of_it}, 256 MiB: {a_part}; {len(got.devices)} device nodes"
        row(f"container of {name}", f"{sizes[name]} MiB", answer, "sees its part, all: 2, 256 MiB: 0", good)


async def tell(story: Story) -> None:
    """What containers use, in the agent's metrics, beside what the driver says of the whole card."""
    container = r'subak_container_memory_used_bytes\{.*pod="hami".*\} ([0-9.e+]+)'
    card = r"subak_card_memory_used_bytes\{.*\} ([0-9.e+]+)"
    busy = "subak_card_time_used_ratio{"  # the driver alone tells it
    least = len(ASKS) * 256
    text = await story.until(
        story.metrics,
        lambda found: busy in found and _of(container, found) > 256 * MIB and _of(card, found) >= least * MIB,
    )
    used, of_card = _of(container, text) / MIB, _of(card, text) / MIB
    row("metrics: memory of the container", "1024 MiB", f"{used:.0f} MiB", "256 MiB and its context", 256 < used < 1024)
    watts = _of(r"subak_card_power_watts\{.*\} ([0-9.e+]+)", text)
    told = f"{of_card:.0f} MiB in use, {watts:.0f} W"
    row("metrics: the card", "", told, "no less than its containers", of_card >= least)


def _of(pattern: str, text: str) -> float:
    """The figure in a line of metrics, 0 if there is none."""
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0


async def refuse(story: Story) -> None:
    """A record that would overcommit the card, whoever wrote it."""
    (card,) = story.agent.arbiter.machine.devices
    everything = card.memory_bytes // MIB
    container = {"name": "c", "image": "any", "resources": {"limits": {"volcano.sh/gpu-memory": everything}}}
    writer: Client = story.cluster.client_of(SCHEDULER)
    body = {"metadata": {"name": "greedy"}, "spec": {"schedulerName": "nobody", "containers": [container]}}
    made = await story.cluster.client.create(PODS, body, "default")
    record = {"volcano.sh/gpu-index": "0", "volcano.sh/predicate-time": "1"}
    await writer.bind("greedy", "default", NODE, uid=made["metadata"]["uid"], annotations=record)
    try:
        await story.start(await story.cluster.client.get(PODS, "greedy", "default"))
        row("a record that overcommits", f"{everything} MiB", "started", "refused", False)
    except nri.Failure as failure:
        row(
            "a record that overcommits",
            f"{everything} MiB",
            str(failure)[:160],
            "refused",
            "overcommit" in str(failure),
        )


async def main(roots: Sequence[str]) -> None:
    async with on_card(roots) as story:
        await story.play_kubelet()
        for act in (look, share, tell, refuse):
            await act(story)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ROOTS))
    sys.exit(bool(table.missed))
