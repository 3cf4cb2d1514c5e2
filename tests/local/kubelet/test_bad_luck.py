"""Pods end, and others go on, though files are not as they should be."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from subak.local.kubelet import cleaning
from subak.local.kubelet.sandbox import Sandbox
from tests.support.kubelet.harness import Harness, harness
from tests.support.kubelet.pods import container
from tinykube.resource import CONFIG_MAPS
from tinykube.server.kubelet import LogOptions

PATIENCE = 20.0


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Harness]:
    async with harness(tmp_path, processes=True, clock=time.time) as made:
        yield made


async def phase(place: Harness, wanted: str, name: str = "web") -> dict[str, Any]:
    return await place.until(lambda pod: pod["status"]["phase"] == wanted, name, PATIENCE)


async def started(place: Harness, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    await place.create(*containers, restartPolicy="Never", **spec)
    return await phase(place, "Running")


async def test_a_volume_that_cannot_be_removed_keeps_no_pod_from_ending(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "FIRST_PAUSE", 0.01)
    remove, tries = Sandbox.remove, []

    def stuck(self: Sandbox) -> None:
        tries.append(self)
        if len(tries) < 5:
            raise OSError(16, "Device or resource busy", "volumes/v")
        remove(self)

    monkeypatch.setattr(Sandbox, "remove", stuck)
    await started(place)
    place.runtime["web/main"].exit(0)
    await phase(place, "Succeeded")
    assert place.devices.held == set()
    assert "cannot be removed, and is tried again: [Errno 16]" in await place.event("FailedUnMount")
    async with asyncio.timeout(PATIENCE):
        while len(tries) < 5:
            await asyncio.sleep(0.01)
    assert len(await place.events("FailedUnMount")) == 1
    await place.delete()
    await place.gone(patience=PATIENCE)


async def test_a_volume_that_takes_its_time_does_not_either(place: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subak.local.kubelet.worker.PATIENCE", 0.05)
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_: Sandbox) -> None:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(PATIENCE)

    monkeypatch.setattr(Sandbox, "remove", slow)
    try:
        await started(place)
        place.runtime["web/main"].exit(0)
        await phase(place, "Succeeded")
    finally:
        go_on.set()


async def test_a_pipe_in_place_of_a_file_stops_nobody(place: Harness, tmp_path: Path) -> None:
    pod = await started(place, container(terminationMessagePolicy="FallbackToLogsOnError"))
    uid = pod["metadata"]["uid"]
    message = tmp_path / "pods" / uid / "messages" / "main.0"
    log = tmp_path / "logs" / f"default_web_{uid}" / "main" / "0.log"
    for path in (message, log):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    chunks = await place.kubelet.logs(pod, LogOptions(container="main", tail_lines=5))
    assert [chunk async for chunk in chunks] == []
    place.runtime["web/main"].exit(3)
    pod = await phase(place, "Failed")
    assert "message" not in pod["status"]["containerStatuses"][0]["state"]["terminated"]


async def test_a_pod_with_an_impossible_path_says_so(place: Harness) -> None:
    await place.add(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "x"}})
    volume = {"name": "v", "configMap": {"name": "c", "items": [{"key": "key", "path": "a\0b"}]}}
    await place.create(volumes=[volume])
    assert "is no path inside a volume" in await asyncio.wait_for(place.event("FailedMount"), PATIENCE)
    await place.delete()
    await place.gone(patience=PATIENCE)
