"""`subak doctor` on a real control plane: before there is a controller, with one, and after it has gone."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e import namespace
from tests.e2e.admission import eventually, plain_pod, refused, remove
from tests.e2e.cluster import Cluster
from tests.e2e.controller import apply_manifests, controller, free_lease
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.users import EVERYWHERE, ROLES, SYSTEM, TEAM, User, published, user
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.resource import LEASES, NODES, PODS, Resource

HARDWARE = ({"name": "gpu", "profile": "volcano"},)
CLUSTER_ROLES = Resource(ROLES, "v1", "clusterroles", namespaced=False)
URL = f"https://{namespace.ADDRESS}:9443"
Findings = dict[str, list[dict[str, Any]]]


async def examined(somebody: User, code: int | None) -> Findings:
    """What the doctor finds, by the name of the check."""
    data = json.loads((await somebody.run("subak", "doctor", "-o", "json", code=code)).stdout)
    found: Findings = {}
    for each in data["checks"]:
        found.setdefault(each["check"], []).append(each)
    return found


def states(found: Findings) -> dict[str, str]:
    """The worst state of each check."""
    order = ("failed", "warning", "not known", "ok")
    return {name: min((each["state"] for each in rows), key=order.index) for name, rows in found.items()}


def text(found: Findings, check: str) -> str:
    return " ".join(f"{each['seen']} {each['to_do']}" for each in found[check])


async def until(somebody: User, condition: Callable[[dict[str, str]], bool]) -> Findings:
    """What the doctor finds once that is so: rights and webhooks are in force a moment after a change."""
    async with asyncio.timeout(30):
        while not condition(states(found := await examined(somebody, code=None))):
            pass
    return found


async def test_the_doctor_says_what_a_cluster_lacks(cluster: Cluster) -> None:
    apply_manifests(cluster)
    somebody = User(cluster.kubeconfig)
    async with administrator(cluster) as client, fake_nodes(client, machines(*HARDWARE)):
        try:
            await free_lease(client)
            await client.patch_status(NODES, "gpu", "", {"nodeInfo": {"containerRuntimeVersion": "containerd://2.3.7"}})
            found = await examined(somebody, code=1)
            bad = {name for name, state in states(found).items() if state == "failed"}
            assert bad == {"leader", "webhooks", "webhook answers", "policy", "records guarded"}
            assert "no controller has run here" in text(found, "leader")
            assert "kubectl apply -f deploy/manifests" in text(found, "leader")
            async with controller(
                cluster, client, f"--webhook-url={URL}", f"--listen={namespace.ADDRESS}:9440", port=0
            ) as running:
                asking = plain_pod({"volcano.sh/gpu-memory": "1", "koordinator.sh/gpu-core": "1"})
                await eventually(lambda: refused(client, asking, "keep to one of them"))
                async with published(client):
                    found = await with_a_controller(client, somebody)
                assert {name: state for name, state in states(found).items() if state != "ok"} == {
                    "replicas": "warning"
                }, found
                assert "pod window is the only replica" in text(found, "replicas")
                assert "one leads" in text(found, "leader")
                await running.end(signal.SIGTERM)
            found = await examined(somebody, code=1)
            assert "nobody holds Lease subak-system/subak-controller" in text(found, "leader")
            assert "the API server cannot ask the webhook" in text(found, "webhook answers")
            assert (states(found)["policy"], states(found)["records guarded"]) == ("ok", "ok")
        finally:
            await remove(client)
            await free_lease(client)


async def with_a_controller(client: Client, somebody: User) -> Findings:
    """What is found while the controller runs in a pod that is ready, and answers there."""
    await client.patch_status(PODS, "window", SYSTEM, {"conditions": [{"type": "Ready", "status": "True"}]})
    return await until(somebody, lambda found: found["versions"] == "ok")


async def test_what_somebody_changed_is_named(cluster: Cluster) -> None:
    apply_manifests(cluster)
    somebody = User(cluster.kubeconfig)
    async with administrator(cluster) as client, fake_nodes(client, machines(*HARDWARE)):
        try:
            role = await client.get(CLUSTER_ROLES, "subak-controller")
            role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["pods/binding"]]
            await client.update(CLUSTER_ROLES, "subak-controller", "", role)
            await client.delete(LEASES, "gpu", SYSTEM)
            found = await until(somebody, lambda found: found["rights"] == "failed")
            assert "ServiceAccount subak-system/subak-controller may not create pods/binding " in text(found, "rights")
            assert "gpu (has no Lease)" in text(found, "agents")
        finally:
            apply_manifests(cluster)


async def test_a_user_with_few_rights_is_told_what_is_not_known(cluster: Cluster, tmp_path: Path) -> None:
    apply_manifests(cluster)
    async with (
        administrator(cluster) as client,
        fake_nodes(client, machines(*HARDWARE)),
        user(client, cluster, tmp_path) as somebody,
    ):
        found = await examined(somebody, code=1)  # it may create pods, so it sees that nobody reviews them
        blind = {name for name, state in states(found).items() if state == "not known"}
        assert {"user", "leader", "rights", "webhooks", "policy", "agents", "records", "overcommitted"} <= blind
        assert "--clusterrole=subak-doctor" in text(found, "leader")
        await allow(client)
        found = await until(somebody, lambda found: found["user"] == "ok")
        assert {name for name, state in states(found).items() if state == "not known"} <= {"replicas", "versions"}
        await client.delete(EVERYWHERE, "doctors")


async def allow(client: Client) -> None:
    """Let the user see what the doctor looks at, with the role that the manifests bring."""
    subject = {"kind": "ServiceAccount", "name": "ordinary", "namespace": TEAM}
    role = {"apiGroup": ROLES, "kind": "ClusterRole", "name": "subak-doctor"}
    await client.create(EVERYWHERE, {"metadata": {"name": "doctors"}, "roleRef": role, "subjects": [subject]})
