"""What the storms share: pods to send, a client to send them with, and what the machine itself says of processes.

A storm claims only what it has counted, and asks the machine (`/proc`, files) rather than the cluster where it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.live import PATIENCE
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.resource import PODS
from tinykube.status import ApiError

Json = dict[str, Any]
MIB = 1 << 20


def client_of(file: Path) -> Client:
    """A client as others outside the cluster have it."""
    return Client(HttpTransport(kubeconfig.load(file)))


def pod(name: str, *command: str, limits: Json | None = None, **spec: Any) -> Json:
    """A pod of one container that runs once and is given a second to end."""
    container = {"name": "c", "image": "busybox", "command": list(command), "resources": {"limits": limits or {}}}
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in spec.get("volumes", ())]
    usual = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    spec = {**usual, "containers": [container | {"volumeMounts": mounts}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def until(what: str, check: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that must happen."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not await check():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"it never happened: {what}") from None


async def until_phase(client: Client, name: str, *phases: str) -> Json:
    """The pod, once it is in one of these phases."""
    found: Json = {}

    async def check() -> bool:
        found.update(await client.get(PODS, name, "default"))
        return found["status"].get("phase") in phases

    try:
        await until(f"pod {name} is {' or '.join(phases)}", check)
    except AssertionError as error:
        raise AssertionError(f"{error}: {found['status']}") from None
    return found


async def remove(client: Client, *names: str) -> None:
    """Delete these pods, and wait until the API server no longer has them."""
    for name in names:
        await client.delete(PODS, name, "default")

    async def check() -> bool:
        return not {each["metadata"]["name"] for each in (await client.list(PODS)).items} & set(names)

    await until(f"these pods are gone: {', '.join(names)}", check)


async def refused(request: Awaitable[Any]) -> str:
    """Why the API server refuses a request; nothing if it does not."""
    try:
        await request
    except ApiError as error:
        return error.message
    return ""


def running(mark: str) -> list[int]:
    """Processes of this machine that have this word in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended meanwhile
        if mark.encode() in words:
            found.append(int(folder.name))
    return found


def peak(process: int) -> int:
    """The most memory, in bytes, that a process has had since it began or since `forget_peak`."""
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def forget_peak(process: int) -> int:
    """Count the peak from now on; gives what the process has at this moment."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return peak(process)
