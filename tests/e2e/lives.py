"""A witness of the lives of pods on a real node: what is recorded for them, and whether any has failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.evidence import RECORD
from tinykube.client import Client
from tinykube.codec import RAW
from tinykube.reflector import Reflector
from tinykube.resource import PODS

SPACE = "default"


class Witness:
    """Sees every change of every pod.  `records` are by UID, `ran` those that ever ran."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.reflector: Reflector[dict[str, Any]] = Reflector(client, PODS, RAW, self._see, namespace=SPACE)
        self.records: dict[str, str] = {}
        self.ran: set[str] = set()
        self.problems: list[str] = []

    def pod(self, name: str) -> dict[str, Any] | None:
        """A pod as it is now."""
        return self.reflector.objects.get(f"{SPACE}/{name}")

    def runs(self, name: str) -> bool:
        """Whether a pod is there and runs."""
        pod = self.pod(name)
        return pod is not None and pod["status"].get("phase") == "Running"

    def is_gone(self, name: str) -> bool:
        """Whether a pod is not there any more."""
        return self.pod(name) is None

    def container(self, name: str) -> dict[str, Any]:
        """The status of the pod's first container; empty as long as it has none."""
        statuses = (self.pod(name) or {"status": {}})["status"].get("containerStatuses") or [{}]
        return dict(statuses[0])

    def waiting(self, name: str) -> str:
        """Why the pod's first container waits; empty if it does not."""
        return str(self.container(name).get("state", {}).get("waiting", {}).get("message", ""))

    def started(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """What would change if the pods' containers were started again."""
        return [(each["containerID"], each["restartCount"]) for each in map(self.container, names)]

    async def until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until something is true."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            left = [f"{pod['metadata']['name']}: {_said(pod)}" for pod in self.reflector.objects.values()]
            raise AssertionError("\n".join([f"not within {seconds:.0f} s: {what}; the pods are", *left])) from None

    def _see(self, change: str, pod: dict[str, Any]) -> None:
        metadata, status = pod["metadata"], pod["status"]
        record = metadata.get("annotations", {}).get(RECORD)
        if record:
            self.records[metadata["uid"]] = record
        if status.get("phase") == "Running":
            self.ran.add(metadata["name"])
        if status.get("phase") == "Failed":
            self.problems.append(f"{metadata['name']} has failed: {status.get('reason')} {status.get('message')}")


def _said(pod: dict[str, Any]) -> str:
    """How far a pod is, in a few words."""
    status = pod["status"]
    states = [each.get("state") for each in status.get("containerStatuses", ())]
    going = " going" if "deletionTimestamp" in pod["metadata"] else ""
    return f"{status.get('phase')}{going} on {pod['spec'].get('nodeName', 'no node')} {states}"


@asynccontextmanager
async def witness(client: Client) -> AsyncIterator[Witness]:
    """A witness of all pods."""
    looking = Witness(client)
    task = asyncio.create_task(looking.reflector.run())
    await looking.reflector.synced.wait()
    try:
        yield looking
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
