"""`subak controller` as a process of its own, with the rights that `deploy/manifests` gives it and no others.

apply_manifests(cluster)
async with controller(cluster, client) as running:
    await running.until_ready()
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e import PARTS
from tests.e2e.cluster import ADDRESS, Cluster
from tinykube.client import Client
from tinykube.resource import LEASES, PODS, SERVICE_ACCOUNTS
from tinykube.status import ApiError

MANIFESTS = Path(__file__).parent.parent.parent / "deploy" / "manifests"
NAMESPACE, ACCOUNT, LEASE = "subak-system", "subak-controller", "subak-controller"
PATIENCE = 30.0


def kubectl(cluster: Cluster, *arguments: str) -> str:
    """Run kubectl as the administrator; gives what it printed.  A failure is an error with its message."""
    command = [str(Path(os.environ[PARTS]) / "kubectl"), f"--kubeconfig={cluster.kubeconfig}", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, f"kubectl {' '.join(arguments)}: {ran.stderr}"
    return ran.stdout


def apply_manifests(cluster: Cluster) -> None:
    """Apply `deploy/manifests`, but for the agents, which would become pods on every node.

    The Deployment goes again: there is no image, and the tests are its pods.
    """
    chosen = [each for each in sorted(MANIFESTS.glob("*.yaml")) if each.name != "agent.yaml"]
    kubectl(cluster, "apply", *(f"--filename={each}" for each in chosen))
    kubectl(cluster, "delete", "-n", NAMESPACE, "deployment/subak-controller", "--cascade=orphan")


class Running:
    """A controller that was started; `name` is its identity in the Lease."""

    def __init__(self, name: str, port: int, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.address = f"http://127.0.0.1:{port}"
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def lines(self) -> list[dict[str, Any]]:
        """The lines of its log that are JSON."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    async def get(self, path: str) -> tuple[int, str]:
        """The code and the text that it answers; code 0 while it does not listen."""
        try:
            async with aiohttp.ClientSession() as session, session.get(self.address + path) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def readiness(self) -> dict[str, Any]:
        """What `/readyz` says; empty while it does not listen."""
        _, text = await self.get("/readyz")
        return dict(json.loads(text)) if text else {}

    async def until_ready(self, role: str = "") -> dict[str, Any]:
        """Wait until it is ready and has this role (`leader`, `standby`; any if empty); gives what it says."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.readiness()
                if found.get("ready") and found["role"] in (role, role or found["role"]):
                    return found
                assert self.process.returncode is None, f"{self.name} has ended:\n{self.log}"
                await asyncio.sleep(0.05)

    async def until(self, field: str, value: object) -> None:
        """Wait until it is ready and leads, and `/readyz` has this value in a field."""
        await self.until_ready("leader")
        async with asyncio.timeout(PATIENCE):
            while (await self.readiness()).get(field) != value:
                await asyncio.sleep(0.05)

    async def end(self, number: signal.Signals) -> int:
        """Send it a signal, and give its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()


@asynccontextmanager
async def controller(
    cluster: Cluster, client: Client, *options: str, name: str = "one", port: int = 9440, server: str = ADDRESS
) -> AsyncIterator[Running]:
    """Start a controller with these options beside the usual ones; it is killed at the end.

    `server` is its way to the API server.  If the test fails meanwhile, the end of its log is printed.
    """
    with tempfile.TemporaryDirectory(prefix="subak-controller-") as directory:
        log = Path(directory) / "log"
        config = await _kubeconfig(cluster, client, Path(directory), server)
        command = ["controller", f"--kubeconfig={config}", f"--listen=127.0.0.1:{port}", f"--identity={name}", *options]
        with log.open("wb") as output:
            # setpriv: if this process is killed, the kernel ends the controller too.
            process = await asyncio.create_subprocess_exec(
                *["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "subak.cli", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"], "HOME": directory},
            )
        running = Running(name, port, process, log)
        try:
            yield running
        except BaseException:
            print(f"The log of controller {name} ends with:", *running.log.splitlines()[-40:], sep="\n")
            raise
        finally:
            await running.end(signal.SIGKILL)


async def free_lease(client: Client) -> None:
    """Remove the Lease of a controller that was killed, so that the next one need not wait until it expires."""
    try:
        await client.delete(LEASES, LEASE, NAMESPACE)
    except ApiError as error:
        if error.code != 404:
            raise


async def until_pods(
    client: Client, namespace: str, condition: Callable[[dict[str, dict[str, Any]]], bool], seconds: float = PATIENCE
) -> dict[str, dict[str, Any]]:
    """Wait until something is true of a namespace's pods, by name; gives them."""
    pods: dict[str, dict[str, Any]] = {}
    try:
        async with asyncio.timeout(seconds):
            while True:
                listing = await client.list(PODS, namespace)
                pods = {pod["metadata"]["name"]: pod for pod in listing.items}
                if condition(pods):
                    return pods
                await asyncio.sleep(0.05)
    except TimeoutError:
        state = {name: (pod["spec"].get("nodeName"), pod.get("status")) for name, pod in pods.items()}
        raise AssertionError(f"after {seconds:.0f} s the pods are still: {state}") from None


async def _kubeconfig(cluster: Cluster, client: Client, directory: Path, server: str) -> Path:
    """A kubeconfig with a token of the controller's ServiceAccount, as its pod would have one."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await client.create(SERVICE_ACCOUNTS, request, NAMESPACE, name=ACCOUNT, subresource="token")
    (directory / "token").write_text(answer["status"]["token"])
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": str(cluster.certificate)}}],
        "users": [{"name": "u", "user": {"tokenFile": str(directory / "token")}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(content))
    return path
