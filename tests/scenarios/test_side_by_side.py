"""Two clusters of one user on one machine, whose pods share a directory of the machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.live import Live, live
from tests.support.storm import client_of, pod, until_phase
from tinykube.resource import PODS

LINES = 40
WRITE = "i=0; while [ $i -lt {lines} ]; do echo {name} >> /shared/lines; i=$((i+1)); done; touch /shared/{name}"
"""Appends to a file that the other cluster's pods append to."""


async def write(cluster: Live, name: str, folder: Path, user: int) -> None:
    """Run a pod that writes to the folder and waits for the one of the other cluster."""
    client = client_of(cluster.kubeconfig)
    meet = f"until [ -e /shared/{'b' if name == 'a' else 'a'} ]; do sleep 0.1; done; chmod 600 /shared/{name}"
    script = f"set -e; {WRITE.format(lines=LINES, name=name)}; {meet}"
    volumes = [{"name": "shared", "hostPath": {"path": str(folder), "type": "Directory"}}]
    context = {"securityContext": {"runAsUser": user}}
    try:
        await client.create(PODS, pod(name, "sh", "-c", script, volumes=volumes, **context), "default")
        await until_phase(client, name, "Succeeded")
    finally:
        await client.close()


@pytest.mark.long
def test_two_clusters_share_a_directory_of_the_machine(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "lines").touch()
    (folder / "lines").chmod(0o666)
    with live() as one, live() as other:

        async def both() -> None:
            await asyncio.gather(write(one, "a", folder, 0), write(other, "b", folder, 1234))

        asyncio.run(both())
        assert one.stop() == 0
        assert other.subak("get", "pods").returncode == 0, "the end of one is not the end of the other"
    lines = (folder / "lines").read_text().split()
    assert sorted(lines) == ["a"] * LINES + ["b"] * LINES
    owners = {name: (folder / name).stat().st_uid for name in ("a", "b")}
    assert owners == ({"a": 0, "b": 1234} if os.geteuid() == 0 else dict.fromkeys("ab", os.geteuid()))
