"""`subak agent` on a real node, with simulated cards and the rights that `deploy/manifests` gives it and no others.

async with living(node, {"profile": "volcano"}) as world:
    kubectl(world.cluster, "apply", "-f", "examples/volcano")
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.e2e import namespace, settings
from tests.e2e.admission import eventually, refused, remove
from tests.e2e.admission import plain_pod as asking
from tests.e2e.cluster import ADDRESS, Cluster
from tests.e2e.controller import NAMESPACE, PATIENCE, Running, apply_manifests, controller, free_lease, kubectl
from tests.e2e.fakes import administrator, define_devices
from tests.e2e.node import RealNode
from tests.e2e.schedulers import kubeconfig
from tinykube.client import Client

ACCOUNT = "subak-agent"
PORT = 9394


class Agent:
    """An agent that can be killed and started again.  `hardware` is a node's entry in the YAML of `subak up`."""

    def __init__(self, node: RealNode, directory: Path, hardware: Mapping[str, Any], *options: str) -> None:
        self.node = node
        self._description = directory / "hardware.yaml"
        self.describe(hardware)
        self._kubeconfig = self._identified(directory)
        self._options = options
        self._waiting: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it serves /readyz, /metrics and so on."""
        return f"http://{self.node.address}:{PORT}"

    def describe(self, hardware: Mapping[str, Any]) -> None:
        """Give it other cards; one that runs reads the description again."""
        begun = self._description.with_suffix(".new")
        begun.write_text(json.dumps({"nodes": [{**hardware, "name": self.node.name}]}))
        begun.replace(self._description)

    def start(self, ready: bool = True) -> None:
        """Start it, and wait until it is ready."""
        command = [
            *[sys.executable, "-m", "subak.cli", "agent"],
            f"--node-name={self.node.name}",
            f"--kubeconfig={self._kubeconfig}",
            f"--simulate={self._description}",
            f"--listen={self.node.address}:{PORT}",
            f"--nri-socket={settings.NRI_SOCKET}",
            *self._options,
        ]
        self._waiting = self.node.spawn(command, "agent")
        if ready:
            self.until_ready()

    def until_ready(self) -> None:
        """Wait until it says that it is ready."""
        self.node.until(self._is_ready, "the agent is ready")

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to leave; gives its exit code."""
        return self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._waiting is not None, "it was not started"
        self.node.send(self._waiting, number)

    def readiness(self) -> dict[str, Any]:
        """What `/readyz` says; empty while it does not listen."""
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=5) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            return {}

    def _is_ready(self) -> bool:
        assert self._waiting is not None
        code = self._waiting.poll()
        assert code is None, f"the agent ended with {code}.\n{self.node.story('agent')}"
        return bool(self.readiness().get("ready"))

    def _end(self, number: signal.Signals) -> int:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return 0
        if waiting.poll() is None:
            self.node.send(waiting, number)
        return waiting.wait(PATIENCE)

    def _identified(self, directory: Path) -> Path:
        """A kubeconfig with a token of its ServiceAccount that is bound to the node, as a pod on the node has one."""
        bound = ["--bound-object-kind=Node", f"--bound-object-name={self.node.name}"]
        token = kubectl(self.node.cluster, "create", "token", ACCOUNT, "-n", NAMESPACE, *bound)
        (directory / "token").write_text(token)
        return kubeconfig(directory / "kubeconfig", ADDRESS, directory / "token", self.node.cluster.certificate)


@contextmanager
def agent(node: RealNode, hardware: Mapping[str, Any], *options: str) -> Iterator[Agent]:
    """An agent on a node; it is asked to leave at the end.  The manifests must have been applied."""
    with tempfile.TemporaryDirectory(prefix="subak-agent-") as directory:
        running = Agent(node, Path(directory), hardware, *options)
        try:
            running.start()
            yield running
            assert running.stop() == 0, node.story("agent")
        except BaseException:
            print(node.story("agent", 60))
            raise
        finally:
            running.kill()


class World:
    """A cluster with a controller, and an agent on a real node."""

    def __init__(self, client: Client, running: Running, agent: Agent) -> None:
        self.client = client
        self.controller = running
        self.agent = agent
        self.node = agent.node
        self.cluster = agent.node.cluster


@asynccontextmanager
async def living(node: RealNode, hardware: Mapping[str, Any], *options: str) -> AsyncIterator[World]:
    """A controller that reviews and places pods, and an agent on the node; the node's pods are removed at the end."""
    async with prepared(node) as client:
        url = f"https://{namespace.ADDRESS}:9443"
        try:
            async with controller(node.cluster, client, f"--webhook-url={url}") as running:
                with agent(node, hardware, *options) as started:
                    await running.until("trouble", [])
                    await eventually(lambda: _reviewed(client))
                    yield World(client, running, started)
                    delete_pods(node)
        finally:
            await remove(client)
            await free_lease(client)


@asynccontextmanager
async def prepared(node: RealNode) -> AsyncIterator[Client]:
    """A cluster with the manifests and Koordinator's kind; the node's pods are removed at the end."""
    apply_manifests(node.cluster)
    async with administrator(node.cluster) as client:
        await define_devices(client)
        try:
            yield client
        finally:
            delete_pods(node, "--force")


def delete_pods(node: RealNode, *options: str) -> None:
    """Delete the node's pods, and wait until they are gone."""
    of_node = f"--field-selector=spec.nodeName={node.name}"
    kubectl(node.cluster, "delete", "pods", "-A", of_node, "--grace-period=0", *options)


def environment(cluster: Cluster, pod: str, container: str = "", space: str = "default") -> dict[str, str]:
    """The environment of a program that is started in a container."""
    chosen = ["-c", container] if container else []
    printed = kubectl(cluster, "exec", "-n", space, pod, *chosen, "--", "env")
    return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)


async def _reviewed(client: Client) -> bool:
    """Whether the API server asks the controller about new pods: it takes a moment to read a new webhook."""
    privileged = asking({"nvidia.com/gpu": "1"})
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    return await refused(client, privileged, "is privileged")
