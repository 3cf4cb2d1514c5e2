"""`python -m tests.e2e.runner KUBECONFIG`: the scheduler alone, in a process of its own.

It prints `ready` when it has seen all objects.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from subak.model import manifest
from subak.scheduler.served import NAMES
from subak.scheduler.service import Service
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load


def serves(pod: manifest.Pod) -> bool:
    """Whether a pod names one of our schedulers."""
    return pod.spec.scheduler_name in NAMES


async def run(kubeconfig: Path) -> None:
    """Schedule until cancelled."""
    client = Client(HttpTransport(load(kubeconfig)), "subak")
    service = Service(client, serves=serves)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await service.ready.wait()
        print("ready", flush=True)


def main(arguments: Sequence[str]) -> None:
    """Run until killed."""
    asyncio.run(run(Path(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
