"""A real containerd asks `subak agent` about each container: what it injects, and that nothing starts without it.

No controller runs here, and so no webhook and no policy: pods come with a node and a record that the tests write, as
whoever gets around both might do.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import images, settings
from tests.e2e.agent import Agent, agent, environment, prepared
from tests.e2e.controller import kubectl
from tests.e2e.node import RealNode
from tinykube.client import Client
from tinykube.resource import PODS

HARDWARE = {"profile": "shared", "taints": []}
RECORD = "hami.io/vgpu-devices-allocated"
REQUIRED = {"required-plugins.noderesource.dev": '["subak"]'}
SHOWN = "NVIDIA_VISIBLE_DEVICES"


class Scene:
    """An agent on a node, and pods that are bound to it by hand."""

    def __init__(self, client: Client, running: Agent) -> None:
        self.client, self.agent, self.node = client, running, running.node
        (card,) = running.readiness()["cards"]
        self.card = str(card["id"])

    async def create(
        self,
        name: str,
        *memory_mib: int | None,
        required: bool = True,
        record: str = "",
        image: str = images.CUDA,
        **spec: Any,
    ) -> None:
        """A pod with a container for each amount of memory; None is one that asks for no card."""
        containers = [self._container(f"c{number}", each, image) for number, each in enumerate(memory_mib)]
        entries = [f"{self.card},NVIDIA,{each},0:" if each else "" for each in memory_mib]
        annotations = {RECORD: record or "".join(f"{each};" for each in entries)} if any(memory_mib) else {}
        body = {
            "metadata": {"name": name, "annotations": annotations | (REQUIRED if required else {})},
            "spec": {
                "nodeName": self.node.name,
                "terminationGracePeriodSeconds": 0,
                "containers": containers,
                **spec,
            },
        }
        await self.client.create(PODS, body, "default")

    def _container(self, name: str, memory_mib: int | None, image: str) -> dict[str, Any]:
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib)} if memory_mib else {}
        command = ["sleep", "600"]
        return {
            "name": name,
            "image": image,
            "imagePullPolicy": "Never",
            "command": command,
            "resources": {"limits": limits},
        }

    def runs(self, name: str) -> None:
        """Wait until the pod runs."""
        kubectl(self.node.cluster, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def waits(self, name: str, why: str) -> None:
        """Wait until a container of the pod is kept from starting for this reason."""
        form = "jsonpath={.status.containerStatuses[*].state.waiting.message}"
        said = ""

        def is_told() -> bool:
            nonlocal said
            said = kubectl(self.node.cluster, "get", "pod", name, "-o", form)
            return why in said

        self.node.until(is_told, f"pod {name} waits because of: {why}")

    def told(self, name: str, reason: str) -> str:
        """What the agent's events on the pod say."""
        found = json.loads(kubectl(self.node.cluster, "get", "events", "-o", "json"))["items"]
        about = [each for each in found if each["involvedObject"]["name"] == name and each["reason"] == reason]
        return "\n".join(each["message"] for each in about)


@asynccontextmanager
async def scene(node: RealNode) -> AsyncIterator[Scene]:
    async with prepared(node) as client:
        with agent(node, HARDWARE) as running:
            yield Scene(client, running)


async def test_each_container_gets_its_own_limits_and_the_others_see_no_card(node: RealNode) -> None:
    async with scene(node) as here:
        await here.create("two", 3000, 4000, None)
        here.runs("two")
        for container, limit in (("c0", "3000m"), ("c1", "4000m")):
            env = environment(node.cluster, "two", container)
            assert (env[SHOWN], env["CUDA_DEVICE_MEMORY_LIMIT_0"]) == (here.card, limit)
            preload = kubectl(node.cluster, "exec", "two", "-c", container, "--", "cat", "/etc/ld.so.preload")
            assert preload == "/usr/local/vgpu/libvgpu.so\n"
            limits = kubectl(node.cluster, "exec", "two", "-c", container, "--", "cat", "/etc/subak/limits")
            assert f"CUDA_DEVICE_MEMORY_LIMIT_0={int(limit[:-1]) << 20}" in limits.splitlines()
        assert environment(node.cluster, "two", "c2")[SHOWN] == "void"
        await here.create("plain", None, required=False)
        here.runs("plain")
        assert environment(node.cluster, "plain")[SHOWN] == "void"


async def test_who_would_overcommit_the_card_is_refused_and_told_until_there_is_room(node: RealNode) -> None:
    async with scene(node) as here:
        await here.create("first", 20000)
        here.runs("first")
        before = kubectl(node.cluster, "get", "pod", "first", "-o", "jsonpath={.status.containerStatuses[0]}")
        await here.create("second", 20000)
        here.waits("second", "which would overcommit the card")
        node.until(lambda: "default/first hold the rest" in here.told("second", "CardsRefused"), "an event says it")
        await here.create("forged", 1000, record=f"{here.card},NVIDIA,1000,0:{here.card},NVIDIA,1000,0:;")
        here.waits("forged", "it asks for 1")
        await here.create("bare", 1000, record=";")
        here.waits("bare", "no annotation of the pod records any")
        after = kubectl(node.cluster, "get", "pod", "first", "-o", "jsonpath={.status.containerStatuses[0]}")
        assert after == before, "who runs is untouched"
        kubectl(node.cluster, "delete", "pod", "first")
        here.runs("second")


async def test_a_pod_that_was_deleted_by_force_holds_its_card_until_its_program_has_ended(node: RealNode) -> None:
    async with scene(node) as here:
        await here.create("stubborn", 20000)
        here.runs("stubborn")
        kubectl(node.cluster, "delete", "pod", "stubborn", "--force", "--grace-period=0")
        await here.create("next", 20000)
        here.runs("next")
        listed = json.loads(kubectl(node.cluster, "get", "pods", "-o", "json"))["items"]
        assert [each["metadata"]["name"] for each in listed] == ["next"]


async def test_without_the_agent_nothing_with_cards_starts_and_with_it_everything_goes_on(node: RealNode) -> None:
    async with scene(node) as here:
        here.agent.kill()
        await here.create("gone", 3000)
        here.waits("gone", '"subak"')
        here.agent.start()
        here.runs("gone")
        assert environment(node.cluster, "gone")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


@pytest.mark.parametrize("killed", [False, True], ids=["hangs", "killed"])
async def test_an_agent_that_hangs_or_dies_inside_a_creation_lets_nothing_start(node: RealNode, killed: bool) -> None:
    """containerd drops it and goes on without its adjustment; but it was a validator too, and a dead one refuses."""
    async with scene(node) as here:
        log = node.log("containerd")
        before = log.stat().st_size

        def says(words: str) -> bool:
            return words in log.read_bytes()[before:].decode(errors="replace")

        here.agent.send(signal.SIGSTOP)
        await here.create("hung", 3000)
        if killed:
            node.until(lambda: says("CreateContainer within sandbox"), "containerd asks")
            here.agent.kill()
        # A container of an earlier test that is removed just now may be what the agent was asked about first.
        refusals = ("validator plugin 10-subak failed", "not present")
        node.until(lambda: any(map(says, refusals)), "the container is refused")
        if killed:
            here.agent.start()
        else:
            here.agent.send(signal.SIGCONT)
        here.runs("hung")
        assert environment(node.cluster, "hung")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


async def test_what_started_without_limits_while_the_agent_was_away_is_removed(node: RealNode) -> None:
    async with scene(node) as here:
        await here.create("held", 3000)
        here.runs("held")
        here.agent.kill()
        await here.create("loose", 3000, required=False)
        await here.create("plain", None, required=False)
        for name in ("loose", "plain"):
            here.runs(name)
        assert environment(node.cluster, "loose")[SHOWN] == "all"
        here.agent.start()
        names = "jsonpath={.items[*].metadata.name}"
        node.until(lambda: "loose" not in kubectl(node.cluster, "get", "pods", "-o", names), "the pod is removed")
        node.until(lambda: "so that no limit holds" in here.told("loose", "CardsNotLimited"), "an event says why")
        for name in ("held", "plain"):
            assert kubectl(node.cluster, "get", "pod", name, "-o", "jsonpath={.status.phase}") == "Running"
        node.until(lambda: "sees cards without asking" in here.told("plain", "CardsNotAsDecided"), "its user is told")


async def test_after_containerd_restarts_the_agent_is_asked_again_and_knows_who_runs(node: RealNode) -> None:
    async with scene(node) as here:
        await here.create("old", 20000)
        here.runs("old")
        node.restart("containerd")
        await here.create("new", 3000)
        here.runs("new")
        assert environment(node.cluster, "new")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
        await here.create("large", 20000)
        here.waits("large", "default/new, default/old hold the rest")
        kubectl(node.cluster, "delete", "pod", "old")
        here.runs("large")


async def test_a_static_pod_runs_and_sees_no_card(node: RealNode) -> None:
    """The runtime knows it by the hash of its file, which is no UID of any pod in the API server."""
    async with scene(node):
        command = ["sleep", "600"]
        container = {"name": "c", "image": images.CUDA, "imagePullPolicy": "Never", "command": command}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fixed"}, "spec": {"containers": [container]}}
        manifest = node.directory / "static" / "fixed.json"
        mirror = f"fixed-{node.name}"
        manifest.write_text(json.dumps(body))
        try:
            form = "jsonpath={.status.phase}"
            node.until(
                lambda: kubectl(node.cluster, "get", "pod", mirror, "--ignore-not-found", "-o", form) == "Running",
                "the static pod runs",
            )
            assert environment(node.cluster, mirror)[SHOWN] == "void"
        finally:
            manifest.unlink()
            node.until(
                lambda: not kubectl(node.cluster, "get", "pod", mirror, "--ignore-not-found"), "the static pod is gone"
            )


async def test_where_the_host_describes_the_card_containerd_brings_what_the_description_says(node: RealNode) -> None:
    async with scene(node) as here:
        edits = {"env": ["BROUGHT_BY=cdi"], "deviceNodes": [{"path": "/dev/card", "hostPath": "/dev/null"}]}
        device = {"name": here.card, "containerEdits": edits}
        described = node.path("/etc/cdi/nvidia.json")
        described.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [device]}))
        try:
            await here.create("described", 3000)
            here.runs("described")
            env = environment(node.cluster, "described")
            assert (env["BROUGHT_BY"], env[SHOWN], env["CUDA_DEVICE_MEMORY_LIMIT_0"]) == ("cdi", "void", "3000m")
            assert "/dev/card" in kubectl(node.cluster, "exec", "described", "--", "ls", "/dev/card")
        finally:
            described.unlink()


MEDDLER = """
import asyncio, sys
from pathlib import Path
from subak.node.nri import plugin
from subak.node.nri.messages import Adjustment, Mount

plugin.NAME, plugin.INDEX = "meddler", "20"

class Meddler:
    def configure(self, runtime): pass
    def synchronize(self, sandboxes, containers): print("meddling", flush=True)
    async def create(self, sandbox, container):
        taken, given = Mount("-/etc/subak/limits"), Mount("/etc/subak/limits", "bind", "/dev/null", ("bind",))
        return Adjustment(mounts=(taken, given))
    def validate(self, sandbox, container, adjustment): return ""
    def stop(self, sandbox, container): pass

asyncio.run(plugin.Plugin(Meddler(), Path(sys.argv[1])).run())
"""


@contextmanager
def meddler(node: RealNode) -> Iterator[None]:
    """Another plugin, which takes the limits away that ours gives."""
    program = node.directory / "meddler.py"
    program.write_text(MEDDLER)
    waiting = node.spawn([sys.executable, str(program), settings.NRI_SOCKET], "meddler", _path())
    try:
        node.until(lambda: "meddling" in node.log("meddler").read_text(), "the other plugin is connected")
        yield
    finally:
        node.send(waiting, signal.SIGKILL)
        waiting.wait()


def _path() -> Mapping[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}


async def test_what_another_plugin_overrides_is_rejected(node: RealNode) -> None:
    async with scene(node) as here:
        with meddler(node):
            await here.create("meddled", 3000)
            here.waits("meddled", "would not be those that the node gives")
            node.until(
                lambda: "another NRI plugin is in the way" in here.told("meddled", "CardsRefused"), "an event says it"
            )
        here.runs("meddled")
        assert environment(node.cluster, "meddled")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
