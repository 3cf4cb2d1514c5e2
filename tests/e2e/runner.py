"""`python -m tests.e2e.runner KUBECONFIG [PORT]`: the scheduler alone, in a process of its own.

With a port it is an extender there, and kube-scheduler serves the pods.  It prints `ready` when it has seen all
objects.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from subak.model import manifest
from subak.scheduler.extender.extender import Extender
from subak.scheduler.extender.listener import listening
from subak.scheduler.served import NAMES
from subak.scheduler.service import Service
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load

HOST = "127.0.0.1"


def ours(pod: manifest.Pod) -> bool:
    """Whether a pod names one of our schedulers."""
    return pod.spec.scheduler_name in NAMES


def nobody(pod: manifest.Pod) -> bool:
    """Serve no pod: kube-scheduler does."""
    return False


async def run(kubeconfig: Path, port: int | None) -> None:
    """Schedule until cancelled."""
    client = Client(HttpTransport(load(kubeconfig)), "subak")
    service = Service(client, serves=ours if port is None else nobody)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await service.ready.wait()
        if port is None:
            print("ready", flush=True)
            return
        async with listening(Extender(service), HOST, port):
            print("ready", flush=True)
            await asyncio.Event().wait()


@contextmanager
def running(kubeconfig: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The runner as a process, once it is ready; killed at the end."""
    command = [sys.executable, "-m", "tests.e2e.runner", str(kubeconfig), *options]
    # setpriv: if this process is killed, the kernel ends the runner too.
    guarded = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    with subprocess.Popen(guarded, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the scheduler ended before it was ready")
            yield process
        finally:
            process.kill()


def main(arguments: Sequence[str]) -> None:
    """Run until killed."""
    kubeconfig, *port = arguments
    asyncio.run(run(Path(kubeconfig), int(port[0]) if port else None))


if __name__ == "__main__":
    main(sys.argv[1:])
