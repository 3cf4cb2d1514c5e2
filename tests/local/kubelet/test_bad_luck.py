"""Pods end, and others go on, though files are not as they should be."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from subak.local.kubelet import cleaning, supplies, volumes
from subak.local.kubelet.pod import HostPath, Volume
from subak.local.kubelet.sandbox import Sandbox
from tests.support.kubelet.harness import Harness, harness
from tests.support.kubelet.pods import container
from tinykube.resource import CONFIG_MAPS, SECRETS
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


async def test_a_disk_of_the_machine_that_does_not_answer_stops_nobody_else(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def hang(_: HostPath) -> None:
        asked.set()
        if not answer.wait(PATIENCE):
            raise OSError(errno.EIO, "nobody else went on")

    monkeypatch.setattr(volumes, "_check", hang)
    try:
        await place.create(name="stuck", volumes=[{"name": "v", "hostPath": {"path": "/usr"}}])
        async with asyncio.timeout(PATIENCE):
            while not asked.is_set():
                await asyncio.sleep(0.01)
        await started(place)
        assert (await place.get("stuck"))["status"]["phase"] == "Pending"
    finally:
        answer.set()
    await phase(place, "Running", "stuck")
    assert await place.events("FailedMount") == []


async def test_others_start_though_many_volumes_take_their_time(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ConfigMap is written by a thread too."""
    monkeypatch.setattr("subak.local.kubelet.worker.PATIENCE", 0.05)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(_: Sandbox) -> None:
        begun.release()
        go_on.wait()

    monkeypatch.setattr(Sandbox, "remove", slow)
    try:
        for number in range(2):
            await place.create(name=f"full-{number}", restartPolicy="Never")
            await phase(place, "Running", f"full-{number}")
            place.runtime[f"full-{number}/main"].exit(0)
            await phase(place, "Succeeded", f"full-{number}")
            assert begun.acquire(timeout=PATIENCE)
        await place.add(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "x"}})
        await started(place, volumes=[{"name": "v", "configMap": {"name": "c"}}])
    finally:
        go_on.set()


async def test_others_start_though_disks_and_name_servers_are_silent(
    place: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    go_on, begun = threading.Event(), threading.Semaphore(0)
    make, look_up = volumes.Volumes.set_up, socket.getaddrinfo

    def slow(self: volumes.Volumes, volume: Volume, *rest: Any) -> Any:
        if volume.host_path:
            begun.release()
            go_on.wait()
        return make(self, volume, *rest)

    def silent(host: Any, *rest: Any, **options: Any) -> Any:
        if str(host).endswith(".example"):
            begun.release()
            go_on.wait()
        return look_up(host, *rest, **options)

    monkeypatch.setattr(volumes.Volumes, "set_up", slow)
    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        for number in range(2):
            where = [{"name": "v", "hostPath": {"path": str(tmp_path)}}]
            await place.create(name=f"disk-{number}", volumes=where)
            probe = {"httpGet": {"host": f"{number}.example", "port": 80}}
            await place.create(container(readinessProbe=probe), name=f"name-{number}")
        async with asyncio.timeout(PATIENCE):
            for _ in range(4):
                while not begun.acquire(blocking=False):
                    await asyncio.sleep(0.01)
        await place.add(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "x"}})
        await started(place, volumes=[{"name": "v", "configMap": {"name": "c"}}])
    finally:
        go_on.set()


async def test_a_pod_on_a_disk_that_does_not_answer_says_so_and_can_be_deleted(
    place: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supplies, "PATIENCE", 0.05)
    go_on, calls = threading.Event(), []

    def slow(_: volumes.Volumes, *rest: Any) -> list[str]:
        calls.append(rest)
        go_on.wait()
        return []

    monkeypatch.setattr(volumes.Volumes, "set_up", slow)
    try:
        await place.create(volumes=[{"name": "v", "hostPath": {"path": str(tmp_path)}}])
        why = f"the disk at {tmp_path} did not answer within 0.05 s, and is waited for"
        assert why in await place.event("FailedMount")
        assert place.devices.held
        await place.delete()
        await place.gone(patience=PATIENCE)
        assert place.devices.held == set()
        assert len(calls) == 1
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


async def test_a_path_that_is_no_text_is_refused_with_a_reason(place: Harness) -> None:
    await place.add(SECRETS, {"metadata": {"name": "s"}, "data": {"k": b64encode(b"/\xff").decode()}})
    variable = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(X)"}
    await place.create(container(env=[variable], volumeMounts=[mount]), volumes=[{"name": "v", "emptyDir": {}}])
    pod = await place.until(lambda pod: "containerStatuses" in pod["status"], patience=PATIENCE)
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"].startswith("unable to provision SubPath `/?`")


async def test_a_pod_with_an_impossible_path_says_so(place: Harness) -> None:
    await place.add(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "x"}})
    volume = {"name": "v", "configMap": {"name": "c", "items": [{"key": "key", "path": "a\0b"}]}}
    await place.create(volumes=[volume])
    assert "is no path inside a volume" in await asyncio.wait_for(place.event("FailedMount"), PATIENCE)
    await place.delete()
    await place.gone(patience=PATIENCE)
