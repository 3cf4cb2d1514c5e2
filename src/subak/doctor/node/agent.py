"""Our agent on this computer: who holds its lock, what it says of itself, and who else gives out cards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec

from subak import __version__
from subak.doctor import Finding, failed, listed, ok, rivals, unknown, warning
from subak.doctor.cluster import server
from subak.doctor.cluster.api import told_apart
from subak.doctor.cluster.objects import Ready
from subak.doctor.node import Computer

LOCK = "/run/subak/agent.lock"
START = "start it: kubectl apply -f deploy/manifests, or subak agent (docs/reference/agent.md)"
PATIENCE = 5.0


async def lock(computer: Computer) -> Sequence[Finding]:
    """Which process is the agent of this computer: there can be one."""
    path = computer.at(LOCK)
    if not path.exists():
        return [warning(f"no agent has run here: {LOCK} is not there", START)]
    locks = computer.text("/proc/locks")
    if locks is None:
        return [unknown("/proc/locks cannot be read")]
    holders = _holders(locks, path)
    if not holders:
        return [failed(f"nobody holds {LOCK}: the agent has ended", START)]
    names = {each.pid: each for each in computer.processes()}
    shown = [f"process {pid} ({names[pid].command})" if pid in names else f"process {pid}" for pid in holders]
    return [ok(f"{listed(shown)} holds {LOCK}")]


def _holders(locks: str, path: Path) -> list[int]:
    """The processes that have locked a file, by the kernel's list: `1: FLOCK ADVISORY WRITE 812 08:01:77 0 EOF`."""
    found = path.stat()
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    rows = [line.split() for line in locks.splitlines()]
    return [int(row[4]) for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == place]


async def window(computer: Computer) -> Sequence[Finding]:
    """What the agent says of itself."""
    url = f"{computer.window}/readyz"
    try:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        if not computer.at(LOCK).exists():
            return []  # the check of the lock tells that there is none
        return [failed(f"{url} does not answer: {str(error) or 'no answer in time'}", START)]
    try:
        said = msgspec.json.decode(text, type=Ready)
    except (msgspec.DecodeError, msgspec.ValidationError):
        seen = f"somebody else answers at {computer.window}: HAMi's monitor has the same port"
        return [failed(seen, "end it, or give the agent another address with --listen")]
    found = [failed(each, "see the agent's log") for each in said.problems]
    found += [warning(each, rivals.REMEDY) for each in said.left_to_others]
    if said.version not in ("", __version__):
        found.append(warning(f"the agent is {said.version}, this command is {__version__}", "use the same version"))
    return found or [ok(f"ready, {said.version}" if said.version else "ready")]


async def others(computer: Computer) -> Sequence[Finding]:
    """Which other systems give out cards here, by their processes."""
    found: dict[str, list[str]] = {}
    for process in computer.processes():
        name = rivals.known([process.program])
        if name:
            found.setdefault(name, []).append(f"process {process.pid}")
    return [
        warning(f"{name} runs here ({listed(processes)})", rivals.REMEDY) for name, processes in sorted(found.items())
    ] or [ok("nobody else gives out cards here")]


async def clock(computer: Computer) -> Sequence[Finding]:
    """Whether this computer has the API server's time: the agent's Lease is judged by it."""
    if computer.client is None:
        return []
    return [told_apart((await server(computer.client)).ahead)]
