"""A container fills the disk on which the state of `subak up` is: nothing that was confirmed is lost.

The disk is a small file system in memory that only a mount namespace has.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tests.support.held_cards import overcommitted
from tests.support.live import live
from tests.support.storm import client_of, pod, refused, remove, running, until, until_phase
from tinykube.client import Client
from tinykube.resource import NODES, PODS

SIZE = "24m"
EARLY, REFUSALS = 4, 20
SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000}
MARK = f"86399.{os.getpid()}4"
"""Seconds that only the pods of this test sleep."""
HOG = ("sh", "-c", "mkdir /volume/begun && cat /dev/zero > /volume/fill; exec sleep 1000")
"""Fills the disk once, however often it is started."""


@dataclass(frozen=True)
class Disk:
    """A small disk."""

    path: Path
    """Where it is for those inside."""
    inside: Sequence[str]
    """Runs a command where the disk is mounted."""
    seen: Path
    """Where everybody else finds it."""


@contextmanager
def small_disk(path: Path) -> Iterator[Disk]:
    """A disk that is there as long as a process holds it."""
    path.mkdir()
    own = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    mount = f'mount -t tmpfs -o size={SIZE} none "$0" && echo mounted && exec cat'
    command = ["unshare", *own, "--mount", "sh", "-c", mount, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mounted\n"
        inside = ["nsenter", f"--target={holder.pid}", "--mount"]
        if own:
            inside += ["--user", "--preserve-credentials"]
        yield Disk(path, inside, Path(f"/proc/{holder.pid}/root{path}"))


@pytest.mark.long
def test_a_full_disk_loses_nothing_and_is_no_end(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
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
        free(disk)
        await recover(client, confirmed)
        await client.close()
        assert cluster.stop() == 0


async def create(client: Client, confirmed: dict[str, str], name: str) -> None:
    made = await client.create(PODS, pod(name, "sleep", MARK, limits=SHARE, restartPolicy="Always"), "default")
    confirmed[name] = made["metadata"]["uid"]


async def there(client: Client) -> dict[str, str]:
    """The UIDs of all pods."""
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in (await client.list(PODS)).items}


async def fill(client: Client, confirmed: dict[str, str], names: Iterator[str]) -> None:
    """Send pods until so many were refused, for that reason."""
    refusals: list[str] = []

    async def enough() -> bool:
        reason = await refused(create(client, confirmed, next(names)))
        assert not reason or "disk is full" in reason
        refusals.extend([reason] if reason else [])
        return len(refusals) >= REFUSALS

    await until("the disk is full", enough)
    assert await there(client) == confirmed
    print(f"{len(confirmed)} confirmed, {len(refusals)} refused: {refusals[0]}")


def free(disk: Disk) -> None:
    """Remove what the hog has written, as the operator of the machine would."""
    (file,) = (disk.seen / "state" / "machine" / "pods").glob("*/volumes/*/fill")
    file.unlink()


async def recover(client: Client, confirmed: dict[str, str]) -> None:
    """All that was confirmed runs, or says that it found no space; more can come, and no card was promised twice."""
    await remove(client, "hog")
    del confirmed["hog"]
    await create(client, confirmed, "after")
    for name in confirmed:
        status = (await until_phase(client, name, "Running", "Failed"))["status"]
        assert status["phase"] == "Running" or (name != "after" and "No space left" in status["message"])
    assert await there(client) == confirmed
    assert overcommitted((await client.list(NODES)).items, (await client.list(PODS)).items) == []
    await remove(client, *confirmed)
