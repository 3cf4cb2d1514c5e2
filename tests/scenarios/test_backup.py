"""A cluster is backed up in a storm of pods, killed, and restored: what was confirmed before the backup is there."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from subak.cli.live import picture
from tests.support.live import PATIENCE, Live, live
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.resource import PODS

HARDWARE = """
nodes:
- {profile: shared, name: nvidia, count: 4, taints: [], cards: {count: 2}}
- {profile: moore-threads, name: mthreads, count: 2, cards: {count: 2}}
"""
SHAPES: tuple[dict[str, Any], ...] = (
    {"volcano.sh/gpu-memory": 700},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 900, "nvidia.com/gpucores": 3},
    {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 2, "mthreads.com/sgpu-core": 1},
)
BEFORE = 40


def pod(number: int) -> dict[str, Any]:
    limits = {"limits": SHAPES[number % len(SHAPES)]}
    container = {"name": "c", "image": "busybox", "command": ["sleep", "1"], "resources": limits}
    return {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}


def client_of(cluster: Live) -> Client:
    return Client(HttpTransport(kubeconfig.load(cluster.kubeconfig)))


async def storm(client: Client, confirmed: dict[str, str]) -> None:
    """Create pods until the server is gone."""
    with suppress(OSError, TimeoutError):
        for number in range(10**6):
            made = await client.create(PODS, pod(number), "default")
            confirmed[made["metadata"]["name"]] = made["metadata"]["uid"]


async def bound(client: Client) -> dict[str, str]:
    """The nodes of the pods that have one."""
    pods = (await client.list(PODS)).items
    return {each["metadata"]["uid"]: each["spec"]["nodeName"] for each in pods if each["spec"].get("nodeName")}


async def check_cards(client: Client) -> None:
    now = await picture(client)
    for node in now.cluster.snapshot:
        for card in now.cluster.snapshot.cards(node.name):
            assert min(card.memory_free, card.cores_free) >= 0, f"{node.name}/{card.device.index}: {card.tenants}"


def test_what_was_confirmed_before_a_backup_is_there_after_a_kill_and_a_restoration(tmp_path: Path) -> None:
    (tmp_path / "hardware.yaml").write_text(HARDWARE)
    asyncio.run(_story(tmp_path))


async def _story(folder: Path) -> None:
    options = ("--hardware", folder / "hardware.yaml", "--runtime", "none")
    state, file, new = folder / "state", folder / "subak.backup", folder / "new"
    confirmed: dict[str, str] = {}
    with live("--state", state, *options) as cluster:
        client = client_of(cluster)
        storming = asyncio.create_task(storm(client, confirmed))
        async with asyncio.timeout(PATIENCE):
            while len(confirmed) < BEFORE:
                await asyncio.sleep(0.01)
        known, placed = dict(confirmed), await bound(client)
        await asyncio.to_thread(cluster.subak, "backup", "--state", state, file)
        assert len(confirmed) > len(known), "it was written to meanwhile"
        config = kubeconfig.load(cluster.kubeconfig)
        cluster.stop(signal.SIGKILL)
        await asyncio.wait_for(storming, PATIENCE)
        await client.close()
        said = await asyncio.to_thread(cluster.subak, "restore", file, "--state", new)
        assert f"subak up --state {new}" in said.stdout
    with live("--state", new, *options) as cluster:
        client = client_of(cluster)
        again = kubeconfig.load(cluster.kubeconfig)
        assert again.authority == config.authority, "kubeconfigs stay valid"
        uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in (await client.list(PODS)).items}
        assert known.items() <= uids.items() <= confirmed.items()
        assert placed.items() <= (await bound(client)).items(), "pods are where they were"
        await check_cards(client)
        await client.create(PODS, {**pod(0), "metadata": {"name": "after"}}, "default")
        await client.close()
        assert cluster.stop() == 0
