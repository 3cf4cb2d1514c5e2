"""`python -m bench.creator KUBECONFIG COUNT SCHEDULER RESOURCE`: creates the pods of a burst, in a process of its own.

The watcher must have its event loop for itself: an API server cuts off watchers that do not keep up.  It prints
`ready`, and begins when it gets a line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.fleet import create_pods, pod
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load


async def create(kubeconfig: Path, count: int, scheduler: str, resource: str) -> None:
    """Create so many pods as fast as the server takes them."""
    client = Client(HttpTransport(load(kubeconfig)))
    print("ready", flush=True)
    sys.stdin.readline()
    await create_pods(client, (pod(f"p{number}", scheduler, resource) for number in range(count)))
    await client.close()


def main(arguments: Sequence[str]) -> None:
    """Create the pods that the arguments describe."""
    kubeconfig, count, scheduler, resource = arguments
    asyncio.run(create(Path(kubeconfig), int(count), scheduler, resource))


if __name__ == "__main__":
    main(sys.argv[1:])
