"""Hundreds of pods that end as soon as they begin: each ran exactly once, and is reported so.

Each appends its name to a file of the machine, so that it is not the cluster that counts.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from tests.support.live import live
from tests.support.storm import Json, client_of, pod, until
from tinykube.client import Client
from tinykube.resource import PODS

QUICK, AT_ONCE = 400, 16


@pytest.mark.long
def test_each_of_many_quick_pods_runs_exactly_once() -> None:
    with tempfile.TemporaryDirectory() as folder, live() as cluster:
        tally = Path(folder) / "tally"
        tally.touch()
        for path, mode in ((Path(folder), 0o755), (tally, 0o666)):
            path.chmod(mode)  # a container of root may have another user
        asyncio.run(storm(client_of(cluster.kubeconfig), tally))
        assert cluster.stop() == 0


async def storm(client: Client, tally: Path) -> None:
    names = [f"quick-{number}" for number in range(QUICK)]
    volume = {"name": "tally", "hostPath": {"path": str(tally), "type": "File"}}
    crowd = asyncio.Semaphore(AT_ONCE)

    async def create(name: str) -> None:
        async with crowd:
            await client.create(PODS, pod(name, "sh", "-c", f"echo {name} >> /tally", volumes=[volume]), "default")

    await asyncio.gather(*map(create, names))
    pods: list[Json] = []

    async def ended() -> bool:
        pods[:] = (await client.list(PODS)).items
        return all(each["status"].get("phase") in ("Succeeded", "Failed") for each in pods)

    await until("all of them end", ended)
    assert sorted(each["metadata"]["name"] for each in pods) == sorted(names)
    assert {each["metadata"]["name"]: outcome(each) for each in pods} == dict.fromkeys(names, ("Succeeded", 0, 0))
    assert sorted(tally.read_text().split()) == sorted(names)
    await client.close()


def outcome(pod: Json) -> tuple[str, int, int]:
    """The phase of a pod, how often its container was started again, and its exit code."""
    (container,) = pod["status"]["containerStatuses"]
    return pod["status"]["phase"], container["restartCount"], container["state"]["terminated"]["exitCode"]
