"""The monitor as a part of the agent: what its window shows, on the embedded API server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import aiohttp

from subak.node.host import Host
from subak.node.monitor import state
from subak.node.monitor.attach import attach
from subak.node.monitor.words import Word
from tests.node.nodes import NODE, Rig, run
from tests.support.machines import machine

SLICE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "25"}
P40 = machine("koordinator", name=NODE, speaks=["hami"], cards={"count": 1})


def no_driver() -> Any:
    raise AssertionError("simulated cards have no driver to ask")


async def page(rig: Rig, path: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{rig.agent.window.port}{path}") as got,
    ):
        assert got.status == 200
        return await got.text()


def test_the_window_shows_every_container_and_its_state_holds_until_the_agent_ends(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        host = Host(tmp_path, simulated=True)
        rig.start(host)
        monitor = attach(rig.agent, NODE, no_driver)
        await rig.until_said()
        uid = await rig.run_pod("a", SLICE, P40)
        await rig.until(lambda: rig.agent.pods.get(uid) is not None)
        pod = rig.agent.pods.get(uid)
        assert pod is not None
        rig.agent.arbiter.admit(pod)
        seen = monitor.rounds
        await rig.until(lambda: bool(monitor.seen) and monitor.rounds > seen + 1)
        metrics = await page(rig, "/metrics")
        (card,) = P40.devices
        labels = f'container="c",device="{card.id}",model="{card.model}",namespace="default",node="n1",pod="a"'
        assert f'subak_container_memory_used_bytes{{{labels},vendor="nvidia"}} 0.0' in metrics
        assert f'subak_container_memory_limit_bytes{{{labels},vendor="nvidia"}} 1.048576e+09' in metrics
        assert '"memory_used_bytes": 0' in await page(rig, "/use")
        path = host.state(pod, pod.containers[0])
        assert state.read(path, time.monotonic_ns())[0] is Word.LIFTED
        await rig.end()
        assert state.read(path, time.monotonic_ns()) == {}

    run(story, P40, start=False)
