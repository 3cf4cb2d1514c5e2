"""Containers that print as fast as they can: what is kept is bounded, and so is memory; others are served meanwhile.

One prints many lines, one a line that does not end.  One client follows and reads everything, another never reads.
"""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from subak.local.runtime.spec import LOG_LIMIT
from tests.support.live import Live, live
from tests.support.processes import children
from tests.support.storm import MIB, client_of, forget_peak, peak, pod, until_phase
from tinykube.client import Client
from tinykube.resource import PODS

LINES, WIDTH = 2_000_000, 90
ENDLESS = 200 * MIB
KEPT = 2 * LOG_LIMIT + MIB
"""A file, the one before it, and what is written at once when one is full."""
GROWTH = 96 * MIB


@pytest.mark.long
def test_what_floods_print_is_bounded_and_others_are_served(tmp_path: Path) -> None:
    with live("--state", tmp_path / "state") as cluster:
        asyncio.run(storm(cluster, client_of(cluster.kubeconfig), tmp_path / "state" / "machine" / "logs"))
        assert cluster.stop() == 0


async def storm(cluster: Live, client: Client, logs: Path) -> None:
    floods = {
        "lines": pod("lines", "seq", "-f", f"%0{WIDTH}.0f", "1", str(LINES)),
        "endless": pod("endless", "sh", "-c", f"head -c {ENDLESS} /dev/zero | tr '\\0' x; echo; echo over"),
    }
    await client.create(PODS, pod("before", "true"), "default")  # what one pod takes is no growth
    await until_phase(client, "before", "Succeeded")
    before = forget_peak(cluster.process.pid)
    for each in floods.values():
        await client.create(PODS, each, "default")
    for name in floods:
        await until_phase(client, name, "Running", "Succeeded")
    deaf = await client.logs("lines", "default", follow=True)
    await anext(deaf)
    heard = asyncio.create_task(listen(client, "lines"))
    served, most, monitor = 0, 0, 0
    for number in count():
        name = f"other-{number}"
        await client.create(PODS, pod(name, "true"), "default")
        await until_phase(client, name, "Succeeded")
        most = max(most, kept(logs))
        monitor = max([monitor, *map(peak, children(cluster.process.pid))])
        phases = {(await client.get(PODS, flood, "default"))["status"]["phase"] for flood in floods}
        if phases == {"Succeeded"}:
            break
        served += 1
    assert served >= 3, "the floods were over before anybody else was served"
    assert await last(client, "lines") == f"{LINES:0{WIDTH}}"
    assert await last(client, "endless") == "over"
    assert max(most, kept(logs)) <= len(floods) * KEPT + MIB
    assert peak(cluster.process.pid) - before < GROWTH
    assert monitor < GROWTH
    grown = (peak(cluster.process.pid) - before) // MIB
    print(f"{served} served, {most // MIB} MiB kept, grown {grown} MiB, monitor {monitor // MIB} MiB, {await heard}")
    await deaf.aclose()
    await client.close()


def kept(logs: Path) -> int:
    """Bytes of all logs at this moment."""
    sizes = 0
    for path in logs.rglob("*"):
        try:
            sizes += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # an old one, just replaced
    return sizes


async def listen(client: Client, name: str) -> int:
    """Follow a log to its end; gives the bytes of it."""
    return sum([len(chunk) async for chunk in await client.logs(name, "default", follow=True)])


async def last(client: Client, name: str) -> str:
    """The last line that a pod printed."""
    return b"".join([chunk async for chunk in await client.logs(name, "default", tail_lines=1)]).decode().strip()
