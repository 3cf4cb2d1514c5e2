"""Commands of ordinary users on a real cluster: they see what they may see, and are told what they may not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import namespace
from tests.e2e.cluster import Cluster
from tests.e2e.controller import apply_manifests, controller, free_lease
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.users import EVERYWHERE, ROLES, TEAM, User, published, user
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.resource import PODS


def pod(name: str, mib: int) -> dict[str, Any]:
    limits = {"volcano.sh/gpu-memory": str(mib)}
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    spec = {"schedulerName": "subak", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def reported(client: Client, name: str) -> None:
    """Wait until the scheduler has said why the pod waits."""
    async with asyncio.timeout(30):
        while True:
            found = await client.get(PODS, name, TEAM)
            if any(each["reason"] == "Unschedulable" for each in found["status"].get("conditions", ())):
                return
            await asyncio.sleep(0.05)


async def placed(client: Client, name: str) -> None:
    async with asyncio.timeout(30):
        while not (await client.get(PODS, name, TEAM))["spec"].get("nodeName"):
            await asyncio.sleep(0.05)


async def test_an_ordinary_user_sees_their_own_pods(cluster: Cluster, tmp_path: Path) -> None:
    apply_manifests(cluster)
    hardware = machines({"name": "gpu", "profile": "volcano"})
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all([pod("small", 1_000), pod("huge", 90_000)]))
    async with (
        administrator(cluster) as client,
        fake_nodes(client, hardware),
        user(client, cluster, tmp_path) as somebody,
        controller(cluster, client, f"--listen={namespace.ADDRESS}:9440"),
    ):
        applied = await somebody.run("subak", "apply", "-f", tmp_path / "pods.yaml")
        assert applied.stdout == "pod/small created\npod/huge created\n"
        await placed(client, "small")
        await reported(client, "huge")
        await sees_own_pods(somebody, tmp_path)
        await allow(client)
        await sees_all(somebody, tmp_path)
        async with published(client):
            await asks_the_controller(somebody)
        await client.delete(EVERYWHERE, "viewers")
        await free_lease(client)


async def sees_own_pods(somebody: User, directory: Path) -> None:
    why = await somebody.run("subak", "why", "huge", code=1)
    assert why.stdout.startswith("team-a/huge waits: 0 of 1 nodes fit: 1 node: ")
    assert "node by node is not shown: nodes is forbidden" in why.stderr
    assert "--clusterrole=subak-viewer" in why.stderr
    data = json.loads((await somebody.run("subak", "why", "huge", "-o", "json", code=1)).stdout)
    assert data["message"].startswith("0 of 1 nodes fit")
    found = await somebody.run("kubectl", "subak", "why", "small")
    assert "team-a/small is Pending on gpu" in found.stdout
    top = await somebody.run("subak", "top")
    rows = [line.split(None, 2) for line in top.stdout.splitlines()]
    assert rows[1:] == [
        ["team-a/huge", "-", "1 x nvidia, 90,000 MiB"],
        ["team-a/small", "gpu", "1 x nvidia, 1,000 MiB"],
    ]
    assert "only the pods of namespace team-a are shown" in top.stderr
    for command in ("explain", "-f", directory / "pods.yaml"), ("nodes",):
        refused = await somebody.run("subak", *command, code=1)
        assert refused.stderr.startswith("error: nodes is forbidden")
        assert "subak-viewer" in refused.stderr


async def allow(client: Client) -> None:
    """Make the user a viewer, with the role that the manifests bring."""
    subject = {"kind": "ServiceAccount", "name": "ordinary", "namespace": TEAM}
    role = {"apiGroup": ROLES, "kind": "ClusterRole", "name": "subak-viewer"}
    await client.create(EVERYWHERE, {"metadata": {"name": "viewers"}, "roleRef": role, "subjects": [subject]})


async def sees_all(somebody: User, directory: Path) -> None:
    """A right is in force a moment after it was given."""
    async with asyncio.timeout(30):
        while "forbidden" in (why := await somebody.run("subak", "why", "huge", code=1)).stderr:
            pass
    assert "  1 node: " in why.stdout
    assert "    gpu" in why.stdout
    top = await somebody.run("kubectl", "subak", "top")
    assert "team-a/small" in top.stdout
    assert "waiting for a card: team-a/huge" in top.stdout
    explained = await somebody.run("subak", "explain", "-f", directory / "pods.yaml", code=1)
    assert "team-a/small: 1 of 1 nodes fit" in explained.stdout
    assert "team-a/huge: 0 of 1 nodes fit" in explained.stdout


async def asks_the_controller(somebody: User) -> None:
    async with asyncio.timeout(30):
        while "queued" not in (await somebody.run("subak", "why", "huge", code=1)).stdout:
            pass
    data = json.loads((await somebody.run("kubectl", "subak", "why", "huge", "-o", "json", code=1)).stdout)
    assert any("queued" in sentence for sentence in data["story"])
    assert data["groups"][0]["nodes"] == ["gpu"]
