"""What a running agent shows over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from tests.node.nodes import NODE, Rig, run
from tests.support.machines import machine

P40 = machine("koordinator", name=NODE, speaks=["hami"])


async def get(rig: Rig, path: str) -> tuple[int, Any]:
    address = f"http://127.0.0.1:{rig.agent.window.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        said = await (answer.json() if "json" in answer.content_type else answer.text())
        return answer.status, said


def test_an_agent_that_works_says_so_and_which_cards_it_has() -> None:
    async def story(rig: Rig) -> None:
        assert await get(rig, "/healthz") == (200, "ok\n")
        code, said = await get(rig, "/readyz")
        assert (code, said["ready"], said["node"], said["injection"]) == (200, True, NODE, "nri")
        assert [each["memory_bytes"] for each in said["cards"]] == [23040 << 20] * 2
        assert said["trouble"] == said["waiting_for"] == said["left_to_others"] == []
        assert (await get(rig, "/use"))[0] == 200
        assert (await get(rig, "/metrics"))[0] == 200

    run(story, P40)


def test_an_agent_that_cannot_give_cards_says_why() -> None:
    async def story(rig: Rig) -> None:
        rig.runtime.working, rig.runtime.trouble = False, ["the container runtime is away"]
        code, said = await get(rig, "/readyz")
        assert (code, said["ready"], said["trouble"]) == (503, False, ["the container runtime is away"])
        assert (await get(rig, "/healthz"))[0] == 200, "a restart would not help"

    run(story, P40)


def test_an_agent_without_an_api_server_says_what_it_waits_for() -> None:
    async def story(rig: Rig) -> None:
        async def silent(request: Any, answer: Any) -> Any:
            raise ConnectionError("no way there")

        rig.live.way.disturb = silent
        rig.start()
        async with asyncio.timeout(30):
            while not rig.agent.window.port:
                await asyncio.sleep(0.01)
        code, said = await get(rig, "/readyz")
        assert code == 503
        assert said["waiting_for"][:2] == ["pods", "nodes"]

    run(story, P40, start=False)
