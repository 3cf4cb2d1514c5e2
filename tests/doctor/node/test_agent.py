"""Our agent on a node, and others."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from subak import __version__
from subak.doctor import Finding, Level
from subak.doctor.node import agent
from tests.doctor.canned import client
from tests.doctor.node.host import Host


async def test_who_holds_the_lock(host: Host) -> None:
    assert [each.level for each in await agent.lock(host.computer)] == [Level.WARNING]
    lock = host.write("/run/subak/agent.lock")
    with lock.open() as file:
        host.write("/proc/locks", Path("/proc/locks").read_text())
        (finding,) = await agent.lock(host.computer)
        assert (finding.level, "nobody holds" in finding.seen) == (Level.FAILED, True)
        fcntl.flock(file, fcntl.LOCK_EX)
        host.write("/proc/locks", Path("/proc/locks").read_text())
        host.process(os.getpid(), "/usr/bin/subak", "agent")
        (finding,) = await agent.lock(host.computer)
        assert finding == Finding(Level.OK, f"process {os.getpid()} (subak agent) holds /run/subak/agent.lock")


@asynccontextmanager
async def answering(text: str, status: int = 200) -> AsyncIterator[str]:
    """Something that answers like this; gives its address."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    app = web.Application()
    app.router.add_get("/readyz", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


READY = {"ready": True, "version": __version__}


@pytest.mark.parametrize(
    ("said", "level", "words"),
    [
        (json.dumps(READY), Level.OK, f"ready, {__version__}"),
        (json.dumps({"ready": True}), Level.OK, "ready"),
        (json.dumps({**READY, "version": "9.0.0"}), Level.WARNING, "the agent is 9.0.0"),
        (json.dumps({**READY, "trouble": ["the runtime is away"]}), Level.FAILED, "the runtime is away"),
        (json.dumps({"ready": False, "waiting_for": ["pods"]}), Level.FAILED, "it waits for pods"),
        (json.dumps({**READY, "left_to_others": ["HAMi serves them"]}), Level.WARNING, "HAMi serves them"),
        ("404 page not found", Level.FAILED, "somebody else answers"),
    ],
)
async def test_what_the_agent_says(host: Host, said: str, level: Level, words: str) -> None:
    async with answering(said, 200 if level is Level.OK else 503) as address:
        (finding,) = await agent.window(replace(host.computer, window=address))
    assert finding.level is level
    assert words in finding.seen


async def test_an_agent_that_does_not_answer(host: Host) -> None:
    async with answering("") as address:
        pass
    silent = replace(host.computer, window=address)
    assert await agent.window(silent) == []
    host.write("/run/subak/agent.lock")
    assert [each.level for each in await agent.window(silent)] == [Level.FAILED]


async def test_other_systems_are_known_by_their_programs(host: Host) -> None:
    host.process(5, "/bin/grep", "hami")  # somebody who only speaks of it
    assert [each.level for each in await agent.others(host.computer)] == [Level.OK]
    host.process(7, "/usr/bin/nvidia-device-plugin")
    host.process(8, "/koordlet", "-feature-gates=x")
    assert [each.seen for each in await agent.others(host.computer)] == [
        "Koordinator's koordlet runs here (process 8)",
        "NVIDIA's device plugin runs here (process 7)",
    ]


async def test_the_clock_needs_a_cluster(host: Host) -> None:
    assert await agent.clock(host.computer) == []
    old = client({}, "Mon, 16 Nov 2020 12:00:00 GMT")
    (finding,) = await agent.clock(replace(host.computer, client=old))
    assert (finding.level, "ahead of" in finding.seen) == (Level.FAILED, True)
