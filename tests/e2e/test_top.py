"""`subak top` on a real cluster: a user asks the agents through the API server, with no more rights than that needs."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from subak.cli.use import AGENT
from subak.model import manifest
from subak.node.arbiter import Arbiter
from subak.node.host import Host
from subak.node.machine import Machine
from subak.node.monitor import use
from subak.node.monitor.monitor import Moment, Monitor, look
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.e2e import namespace
from tests.e2e.cluster import Cluster
from tests.e2e.controller import apply_manifests
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.users import BINDINGS, EVERYWHERE, ROLES, SYSTEM, TEAM, User, user
from tests.support.machines import INTERPRETER, machine
from tests.support.regions import MIB, add_me, region
from tinykube.client import Client
from tinykube.resource import PODS
from tinykube.window import Window

SUBJECT = {"kind": "ServiceAccount", "name": "ordinary", "namespace": TEAM}
SLICE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}


async def bound(client: Client, on: Machine) -> manifest.Pod:
    """A pod that holds a slice of the node's card."""
    node, _ = on.digest(INTERPRETER)
    container = {"name": "c", "image": "none", "resources": {"limits": SLICE}}
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    pod = INTERPRETER.admit(msgspec.convert(body, manifest.Pod))
    placement = place(Snapshot([node]), INTERPRETER.request(pod))
    assert placement is not None
    annotations = INTERPRETER.annotations(pod, placement, node, 0)
    bound = {"metadata": {"name": "p", "annotations": annotations}, "spec": body["spec"] | {"nodeName": on.name}}  # type: ignore[operator]
    return msgspec.convert(await client.create(PODS, bound, TEAM), manifest.Pod)


@asynccontextmanager
async def agent(client: Client, node: str, monitor: Monitor) -> AsyncIterator[None]:
    """The window of a node's agent, and the pod behind which users know it.  It runs in this process."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(use.shown(node, monitor))

    window = Window(namespace.ADDRESS, 9394, {"/use": answer})
    await window.start()
    harmless = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    ports = [{"name": "http", "containerPort": 9394}]
    container = {"name": "agent", "image": "none", "ports": ports, "securityContext": harmless}
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"nodeName": node, "containers": [container], "securityContext": security}
    await client.create(PODS, {"metadata": {"name": "agent-x", "labels": AGENT}, "spec": spec}, SYSTEM)
    address = {"podIP": namespace.ADDRESS, "podIPs": [{"ip": namespace.ADDRESS}], "phase": "Running"}
    await client.patch_status(PODS, "agent-x", SYSTEM, address)
    try:
        yield
    finally:
        await client.delete(PODS, "agent-x", SYSTEM, grace=0)
        await window.stop()


def in_use(arbiter: Arbiter, pod: manifest.Pod, mib: int) -> Monitor:
    """A monitor that sees the pod use so much of its card."""
    (tenant,) = arbiter.tenants(pod)
    assert tenant.region is not None
    content, uuid = region(), tenant.cards[0].device.id.encode()
    content[64 : 64 + len(uuid) + 1] = uuid + b"\0"
    add_me(content, mib * MIB)
    tenant.region.write_bytes(content)
    monitor = Monitor(lambda: [tenant])
    monitor.seen = look([tenant], Moment.now())
    return monitor


async def test_a_viewer_sees_what_pods_use_once_they_may_ask_the_agents(cluster: Cluster, tmp_path: Path) -> None:
    apply_manifests(cluster)
    hardware = machine("shared", name="gpu", taints=[])
    async with (
        administrator(cluster) as client,
        fake_nodes(client, [hardware]),
        user(client, cluster, tmp_path) as somebody,
    ):
        pod = await bound(client, hardware)
        arbiter = Arbiter(hardware, INTERPRETER, Host(tmp_path / "host", simulated=True))
        arbiter.admit(pod)
        async with agent(client, "gpu", in_use(arbiter, pod, 700)):
            role = {"apiGroup": ROLES, "kind": "ClusterRole", "name": "subak-viewer"}
            viewers = {"metadata": {"name": "viewers"}, "roleRef": role, "subjects": [SUBJECT]}
            await client.create(EVERYWHERE, viewers)
            try:
                await sees(somebody, None, "may not ask the agents")
                role = {"apiGroup": ROLES, "kind": "Role", "name": "subak-use-viewer"}
                await client.create(BINDINGS, viewers | {"roleRef": role}, SYSTEM)
                await sees(somebody, {"memory_mib": 700, "time_percent": 0}, "")
                await client.delete(BINDINGS, "viewers", SYSTEM)
            finally:
                await client.delete(EVERYWHERE, "viewers")


async def sees(somebody: User, expected: Any, warning: str) -> None:
    """A right is in force a moment after it was given."""
    deadline = time.monotonic() + 60
    while True:
        top = await somebody.run("subak", "top", "-o", "json")
        cards = [card for node in json.loads(top.stdout).get("nodes", ()) for card in node["cards"]]
        found = [tenant["in_use"] for card in cards for tenant in card["tenants"]]
        if found == [expected] and warning in top.stderr:
            break
        assert time.monotonic() < deadline, (found, top.stderr)
    assert bool(warning) == ("what is used on gpu is not known" in top.stderr)
