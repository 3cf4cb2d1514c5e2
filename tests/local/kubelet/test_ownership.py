"""Pods with real processes: whose files their containers find, and may change."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from subak.local.runtime.capability import obstacle
from subak.local.runtime.namespaces import Namespaces
from tests.support.custom import CUSTOM
from tests.support.kubelet.harness import Harness, add_node, harness
from tests.support.kubelet.pods import container
from tinykube.resource import SECRETS
from tinykube.server.kubelet import LogOptions
from tinykube.server.store import Store

PATIENCE = 60.0
SECRET = {"metadata": {"name": "keys"}, "data": {"token": "czNjcmV0"}}  # s3cret


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Harness]:
    problem = await obstacle()
    if problem:
        pytest.skip(problem)
    before = os.umask(0o077)  # an operator's: what containers find does not depend on it
    try:
        async with harness(tmp_path, runtime=Namespaces(), processes=True, clock=time.time) as made:
            yield made
    finally:
        os.umask(before)


async def outcome(place: Harness, script: str, volume: dict[str, Any], mount: dict[str, Any], **spec: Any) -> str:
    """What a pod with a volume at /data prints."""
    mounts = [{"name": "v", "mountPath": "/data", **mount}]
    await place.create(
        container(command=["sh", "-c", f"exec 2>&1; {script}"], volumeMounts=mounts),
        volumes=[{"name": "v", **volume}],
        restartPolicy="Never",
        **spec,
    )
    await place.until(lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"), patience=PATIENCE)
    chunks = await place.kubelet.logs(await place.get(), LogOptions(container="main"))
    return b"".join([chunk async for chunk in chunks]).decode()


async def test_root_inside_reads_a_secret_that_is_for_root_alone(place: Harness) -> None:
    await place.add(SECRETS, SECRET)
    volume = {"secret": {"secretName": "keys", "defaultMode": 0o400}}
    assert await outcome(place, "cat /data/token; stat -L -c :%u:%a /data/token", volume, {}) == "s3cret:0:400\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has only the one id")
async def test_another_user_does_not(place: Harness) -> None:
    await place.add(SECRETS, SECRET)
    volume = {"secret": {"secretName": "keys", "defaultMode": 0o400}}
    said = await outcome(place, "cat /data/token", volume, {}, securityContext={"runAsUser": 1234, "fsGroup": 8})
    assert "Permission denied" in said


async def test_every_user_writes_to_an_empty_directory(place: Harness) -> None:
    script = "touch /data/file && stat -c %u:%g /data/file; id -G"
    context = {"runAsUser": 1000680000, "runAsGroup": 7, "fsGroup": 1000680000}
    said = await outcome(place, script, {"emptyDir": {}}, {}, securityContext=context)
    assert said.splitlines()[0] == "1000680000:7"
    if os.geteuid() == 0:
        assert said.splitlines()[1] == "7 1000680000"


async def test_root_inside_may_close_its_volumes_and_change_its_hosts(place: Harness) -> None:
    script = "chmod 700 /data && chown 0:0 /data && echo '10.0.0.1 db' >> /etc/hosts && tail -1 /etc/hosts"
    assert await outcome(place, script, {"emptyDir": {}}, {}) == "10.0.0.1 db\n"


async def test_a_path_of_the_machine_is_written_as_on_the_machine(place: Harness, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    volume = {"hostPath": {"path": str(closed / "new"), "type": "DirectoryOrCreate"}}
    assert await outcome(place, "echo done > /data/file", volume, {"subPath": "part"}) == ""
    assert (closed / "new/part/file").read_text() == "done\n"
    assert (closed / "new/part/file").stat().st_uid == os.geteuid()


async def test_a_part_that_leads_out_of_its_volume_is_told_without_the_machines_files(
    place: Harness, tmp_path: Path
) -> None:
    mounts = [{"name": "v", "mountPath": "/data"}]
    await place.create(
        container(volumeMounts=[{**mounts[0], "subPath": "link"}]),
        init=[container("first", command=["ln", "-s", str(tmp_path), "/data/link"], volumeMounts=mounts)],
        volumes=[{"name": "v", "emptyDir": {}}],
    )

    def waiting(pod: dict[str, Any]) -> dict[str, Any]:
        return (pod["status"].get("containerStatuses") or [{"state": {}}])[0]["state"].get("waiting") or {}

    pod = await place.until(lambda pod: waiting(pod).get("reason", "").endswith("Error"), patience=PATIENCE)
    assert waiting(pod) == {
        "reason": "CreateContainerConfigError",
        "message": 'failed to prepare subPath for volumeMount "v" of container "main"',
    }


async def all_said(place: Harness) -> str:
    """What a container prints, up to the word `end`."""
    await place.until(lambda pod: pod["status"]["phase"] == "Running", patience=PATIENCE)
    said = b""
    async with asyncio.timeout(PATIENCE):
        while not said.endswith(b"end\n"):
            await asyncio.sleep(0.02)
            chunks = await place.kubelet.logs(await place.get(), LogOptions(container="main"))
            said = b"".join([chunk async for chunk in chunks])
    return said.decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has only the one id, and always had it")
@pytest.mark.parametrize("user", [0, 1234])
async def test_what_an_earlier_version_left_in_a_volume_belongs_to_its_pod(tmp_path: Path, user: int) -> None:
    """Root's containers were the machine's root then, whatever user they had."""
    script = "stat -c %u /data/deep/file; echo more >> /data/deep/file; cat /data/deep/file /data/token/token; echo"
    volumes = [
        {"name": "v", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "keys", "defaultMode": 0o444 if user else 0o400}},
    ]
    mounts = [{"name": "v", "mountPath": "/data"}, {"name": "s", "mountPath": "/data/token"}]
    store = Store(custom=CUSTOM)
    async with harness(tmp_path, store=store, runtime=Namespaces(), processes=True, clock=time.time) as place:
        await add_node(place.client, "node-1")
        await place.add(SECRETS, SECRET)
        command = ["sh", "-c", f"exec 2>&1; mkdir -p /data/deep; {script}; echo end; sleep 99"]
        main = container(command=command, volumeMounts=mounts, securityContext={"runAsUser": user})
        await place.create(main, volumes=volumes)
        await all_said(place)
    (root,) = (tmp_path / "pods").glob("*/volumes")
    (root / "v" / "deep" / "file").write_text("early\n")
    for path in (root, *root.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
    async with harness(tmp_path, store=store, runtime=Namespaces(), processes=True, clock=time.time) as place:
        await place.until(lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1, patience=PATIENCE)
        said = await all_said(place)
    assert said.splitlines() == [str(user), "early", "more", "s3cret", "end"]
