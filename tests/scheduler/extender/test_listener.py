"""The extender over HTTP, with the JSON that Go's kube-scheduler writes and reads."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from subak.scheduler.extender.extender import Extender
from subak.scheduler.extender.listener import listening
from tests.scheduler.extender.test_extender import nobody
from tests.scheduler.live import MEMORY, living


async def test_filter_and_bind_over_http() -> None:
    async with (
        living(nobody) as live,
        listening(Extender(live.service), "127.0.0.1", 0) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):

        async def ask(verb: str, body: Any) -> Any:
            async with session.post(f"/{verb}", json=body) as answer:
                assert answer.status == 200
                return await answer.json()

        pod = await live.create("a", {MEMORY: "400"})
        answer = await ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": ["n1"]})
        assert answer == {
            "Nodes": None,
            "NodeNames": ["n1"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }
        scores = await ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": ["n1"]})
        assert scores == [{"Host": "n1", "Score": 10}]
        uid = pod["metadata"]["uid"]
        binding = {"PodName": "a", "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
        assert await ask("bind", binding) == {"Error": ""}
        assert live.placed() == {"a": "n1"}
        victims = {"n1": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}
        large = await live.create("large", {MEMORY: "900"})
        body = {"Pod": large, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        assert await ask("preempt", body) == {"NodeNameToMetaVictims": victims}


@pytest.mark.parametrize("body", [b'{"Pod": 1}', b"\xff", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
async def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    async with (
        living(nobody) as live,
        listening(Extender(live.service), "127.0.0.1", 0) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
        session.post("/filter", data=body) as answer,
    ):
        assert answer.status == 400
        assert "cannot be read" in await answer.text()
