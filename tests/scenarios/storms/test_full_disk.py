"""A container fills the disk on which the state of `subak up` is: nothing that was confirmed is lost.

Whoever wants room again deletes what takes it, by the API: that is a write too, and it is done.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.disk import Disk, small_disk
from tests.support.held_cards import overcommitted
from tests.support.live import live
from tests.support.storm import client_of, pod, refused, remove, running, until, until_phase
from tinykube.client import Client
from tinykube.resource import NODES, PODS

SIZE = 24
"""Mebibytes."""
EARLY, REFUSALS = 4, 20
SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000}
NOTE = 20_000 * "x"
"""What makes a pod so large that there are cards for all that find room in the database."""
MARK = f"86399.{os.getpid()}4"
"""Seconds that only the pods of this test sleep."""
HOG = ("sh", "-c", "mkdir /volume/begun && cat /dev/zero > /volume/fill; exec sleep 1000")
"""Fills the disk once, however often it is started."""


@pytest.mark.long
def test_a_full_disk_loses_nothing_and_is_no_end(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SIZE) as disk:
        asyncio.run(storm(disk))
        assert sound(disk)


def sound(disk: Disk) -> bool:
    """Whether SQLite finds nothing wrong with the database; it must be asked where the disk is."""
    code = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchall())"
    command = [*disk.inside, sys.executable, "-c", code, str(disk.path / "state" / "state.db")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[('ok',)]\n"


async def storm(disk: Disk) -> None:
    confirmed: dict[str, str] = {}
    names = (f"late-{number}" for number in count())
    with live("--state", disk.path / "state", inside=disk.inside) as cluster:
        client = client_of(cluster.kubeconfig)
        for number in range(EARLY):
            await create(client, confirmed, f"early-{number}")
        for name in confirmed:
            await until_phase(client, name, "Running")
        before = set(running(MARK))
        assert len(before) == EARLY
        hog = pod("hog", *HOG, restartPolicy="Always", volumes=[{"name": "volume", "emptyDir": {}}])
        confirmed["hog"] = (await client.create(PODS, hog, "default"))["metadata"]["uid"]
        await fill(client, confirmed, names)
        assert cluster.subak("exec", "early-0", "--", "echo", "here").stdout == "here\n"
        assert before <= set(running(MARK))
        await client.close()
        cluster.stop(signal.SIGKILL)
    with live("--state", disk.path / "state", inside=disk.inside) as cluster:
        client = client_of(cluster.kubeconfig)
        assert await there(client) == confirmed
        await fill(client, confirmed, names)  # it is as full as it was
        await remove(client, "hog")
        del confirmed["hog"]
        await recover(client, confirmed)
        await client.close()
        assert cluster.stop() == 0


async def create(client: Client, confirmed: dict[str, str], name: str) -> None:
    wanted = pod(name, "sleep", MARK, limits=SHARE, restartPolicy="Always")
    wanted["metadata"]["annotations"] = {"note": NOTE}
    made = await client.create(PODS, wanted, "default")
    confirmed[name] = made["metadata"]["uid"]


async def there(client: Client) -> dict[str, str]:
    """The UIDs of all pods."""
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in (await client.list(PODS)).items}


async def fill(client: Client, confirmed: dict[str, str], names: Iterator[str]) -> None:
    """Send pods until so many were refused, for that reason."""
    refusals: list[str] = []

    async def enough() -> bool:
        reason = await refused(create(client, confirmed, next(names)))
        assert not reason or "No space left on device" in reason
        refusals.extend([reason] if reason else [])
        return len(refusals) >= REFUSALS

    await until("the disk is full", enough)
    assert await there(client) == confirmed
    print(f"{len(confirmed)} confirmed, {len(refusals)} refused: {refusals[0]}")


async def recover(client: Client, confirmed: dict[str, str]) -> None:
    """All that was confirmed runs, more can come, and no card was promised twice."""
    await create(client, confirmed, "after")
    for name in confirmed:
        await until_phase(client, name, "Running")
    assert await there(client) == confirmed
    assert overcommitted((await client.list(NODES)).items, (await client.list(PODS)).items) == []
    await remove(client, *confirmed)
