"""Nodes of a local cluster: made at start, kept fresh, and taken away when they are described no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from subak.local.hardware import nodes, profiles
from subak.local.hardware.nodes import Nodes, Started
from subak.local.hardware.objects import LEASE_NAMESPACE
from subak.model.manifest import DEVICES
from subak.node import nvml
from tests.support.custom import CUSTOM
from tests.support.machines import INTERPRETER, machine, machines
from tests.support.nvml import Driver, Gpu
from tinykube.client import Client
from tinykube.resource import LEASES, NODES, PODS
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError
from tinykube.transport import Request, Response

NOT_READY = "node.kubernetes.io/not-ready"


class Clock:
    """A time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 15, 8, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(Server(Store(custom=CUSTOM)))
    yield client
    await client.close()


async def names(client: Client, resource: Any) -> set[str]:
    return {each["metadata"]["name"] for each in (await client.list(resource)).items}


def ready(node: dict[str, Any]) -> str:
    (condition,) = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
    return str(condition["status"])


async def test_a_new_cluster_has_all_nodes_ready_and_free_of_taints_that_nobody_described(client: Client) -> None:
    described = profiles.default(INTERPRETER)
    started = await Nodes(client, described).start()
    assert started == Started(created=tuple(each.name for each in described))
    nodes = {each["metadata"]["name"]: each for each in (await client.list(NODES)).items}
    assert {name: ready(node) for name, node in nodes.items()} == {each.name: "True" for each in described}
    taints = {name: node["spec"]["taints"] for name, node in nodes.items() if node["spec"].get("taints")}
    assert taints == {"a10": [{"key": "subak.io/shared", "value": "true", "effect": "NoSchedule"}]}
    assert await names(client, DEVICES) == {"p40", "a10"}
    assert await names(client, LEASES) == set(nodes)
    assert nodes["gtx1080ti"]["status"]["capacity"]["volcano.sh/gpu-memory"] == "89424"


async def test_a_restart_changes_nothing_that_others_wrote(client: Client) -> None:
    await Nodes(client, [machine("shared")]).start()
    body = {
        "metadata": {"labels": {"mine": "yes"}, "annotations": {"hami.io/mutex.lock": "x"}},
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "subak.io/shared", "value": "true", "effect": "NoSchedule"},
                {"key": "mine", "effect": "NoExecute"},
            ],
        },
    }
    await client.patch(NODES, "a10", "", body)
    before = await client.get(NODES, "a10")
    assert await Nodes(client, [machine("shared")]).start() == Started(updated=("a10",))
    after = await client.get(NODES, "a10")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_what_is_described_no_more_is_taken_back(client: Client) -> None:
    first = machine("shared", labels={"rack": "a1"}, taints=["old:NoSchedule"])
    await Nodes(client, [first]).start()
    await Nodes(client, [machine("shared", name="a10", speaks=["volcano"], taints=["new:NoSchedule"])]).start()
    node = await client.get(NODES, "a10")
    assert "rack" not in node["metadata"]["labels"]
    assert "koordinator.sh/gpu-isolation-provider" not in node["metadata"]["labels"]
    assert "hami.io/node-nvidia-register" not in node["metadata"]["annotations"]
    assert not [name for name in node["status"]["capacity"] if name.startswith(("nvidia.com", "koordinator.sh"))]
    assert node["status"]["allocatable"]["volcano.sh/gpu-number"] == "1"
    assert [each["key"] for each in node["spec"]["taints"]] == ["new"]
    assert await names(client, DEVICES) == set()


async def test_a_node_whose_cards_changed_is_brought_up_to_date(client: Client) -> None:
    await Nodes(client, [machine("koordinator")]).start()
    await Nodes(client, [machine("koordinator", cards={"count": 3, "unhealthy": [2]})]).start()
    node, device = await client.get(NODES, "p40"), await client.get(DEVICES, "p40")
    assert (node["status"]["capacity"]["nvidia.com/gpu"], node["status"]["allocatable"]["nvidia.com/gpu"]) == (
        "30",
        "20",
    )
    assert [each["health"] for each in device["spec"]["devices"]] == [True, True, False]


async def test_nodes_that_are_not_described_stay_with_their_pods_and_empty_ones_go(client: Client) -> None:
    await Nodes(client, machines({"profile": "shared", "count": 3})).start()
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "by-hand"}})
    for name, node in (("there", "a10-2"), ("here", "a10-1"), ("waits", "")):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})},
        }
        await client.create(PODS, body, "default")
    started = await Nodes(client, machines({"profile": "shared", "name": "a10-1"}, {"profile": "volcano"})).start()
    assert started == Started(("gtx1080ti",), ("a10-1",), ("a10-3",), ("by-hand",), left=("a10-2",))
    assert await names(client, NODES) == {"a10-1", "a10-2", "gtx1080ti", "by-hand"}
    assert await names(client, DEVICES) == {"a10-1", "a10-2"}
    assert await names(client, LEASES) == {"a10-1", "a10-2", "gtx1080ti"}
    assert await names(client, PODS) == {"there", "here", "waits"}
    assert (ready(await client.get(NODES, "a10-1")), ready(await client.get(NODES, "a10-2"))) == ("True", "False")
    again = await Nodes(client, machines({"profile": "shared", "count": 3})).start()
    assert (again.updated, again.created) == (("a10-1", "a10-2"), ("a10-3",))
    assert ready(await client.get(NODES, "a10-2")) == "True"


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "repair", "effect": "NoSchedule"}]}},
        {"metadata": {"labels": {"rack": "a1"}}},
        {"metadata": {"annotations": {"owner": "vision"}}},
    ],
)
async def test_an_empty_node_that_somebody_wrote_to_stays_too(client: Client, change: dict[str, Any]) -> None:
    await Nodes(client, [machine("volcano")]).start()
    await client.patch(NODES, "gtx1080ti", "", change)
    assert await Nodes(client, []).start() == Started(left=("gtx1080ti",))
    assert ready(await client.get(NODES, "gtx1080ti")) == "False"


async def test_the_computers_own_node_stays_with_its_pods_while_its_cards_are_not_found(
    client: Client, tmp_path: Path
) -> None:
    """A command may have the cards, or the driver fails: the next time they may be there again."""
    own = nvml.find(INTERPRETER, Driver([Gpu("GPU-a", "0000:3b:00.0")]), tmp_path).machine
    assert own is not None
    await Nodes(client, [own]).start()
    spec = {"nodeName": own.name, "containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    await client.create(PODS, pod, "default")
    assert await Nodes(client, []).start() == Started(away=(own.name,))
    assert (await names(client, PODS), await names(client, DEVICES)) == ({"p"}, {own.name})
    assert ready(await client.get(NODES, own.name)) == "False"
    assert (await Nodes(client, [own]).start()).updated == (own.name,)
    assert ready(await client.get(NODES, own.name)) == "True"


async def test_leases_are_renewed_as_time_goes_on(client: Client) -> None:
    clock = Clock()
    nodes = Nodes(client, [machine("volcano"), machine("shared")], clock)
    nodes.pause = 0.001
    await nodes.start()
    clock.now += timedelta(hours=1)
    async with running(nodes):
        for name in ("gtx1080ti", "a10"):
            await until_lease(client, name, "2026-11-15T09:00:00.000000Z")


async def test_a_scheduler_that_asks_whether_a_plugin_lives_is_answered(client: Client) -> None:
    clock = Clock()
    key = "hami.io/node-handshake-BI-V150"
    nodes = Nodes(client, [machine("iluvatar-bi-v150")], clock)
    nodes.pause = 0.001
    await nodes.start()
    assert (await client.get(NODES, "bi-v150"))["metadata"]["annotations"][key] == "Reported 2026-11-15 08:00:00"
    asks = {"metadata": {"annotations": {key: "Requesting_2026-11-15 08:01:00"}}}
    await client.patch(NODES, "bi-v150", "", asks)
    clock.now += timedelta(minutes=2)
    async with running(nodes), asyncio.timeout(60):
        while (await client.get(NODES, "bi-v150"))["metadata"]["annotations"][key] != "Reported 2026-11-15 08:02:00":
            await asyncio.sleep(0.01)
    revision = (await client.get(NODES, "bi-v150"))["metadata"]["resourceVersion"]
    clock.now += timedelta(minutes=2)
    async with running(nodes):
        await until_lease(client, "bi-v150", "2026-11-15T08:04:00.000000Z")
    assert (await client.get(NODES, "bi-v150"))["metadata"]["resourceVersion"] == revision  # nobody asked


async def test_a_node_that_somebody_deleted_does_not_disturb_the_others(client: Client) -> None:
    clock = Clock()
    nodes = Nodes(client, [machine("iluvatar-bi-v150"), machine("shared")], clock)
    nodes.pause = 0.001
    await nodes.start()
    await client.delete(NODES, "bi-v150")
    clock.now += timedelta(hours=1)
    async with running(nodes):
        await until_lease(client, "a10", "2026-11-15T09:00:00.000000Z")


def test_the_load_does_not_grow_with_the_number_of_nodes() -> None:
    few, many = (
        Nodes(Client(Server(Store(custom=CUSTOM))), machines({"profile": "shared", "count": count}))
        for count in (10, 2000)
    )
    assert (few.pause, few.lease_seconds) == (1.0, 40)
    assert (many.pause, many.lease_seconds) == (0.05, 400)


async def test_nodes_of_a_stopped_cluster_are_not_ready_until_it_starts_again(client: Client) -> None:
    nodes = Nodes(client, [machine("shared")])
    await nodes.start()
    await nodes.stop()
    node = await client.get(NODES, "a10")
    assert ready(node) == "False"
    assert len(node["status"]["conditions"]) == 4
    await Nodes(client, [machine("shared")]).start()
    assert ready(await client.get(NODES, "a10")) == "True"


async def test_a_stop_does_not_fail_for_a_node_that_is_gone(client: Client) -> None:
    nodes = Nodes(client, machines({"profile": "shared", "count": 2}))
    await nodes.start()
    await client.delete(NODES, "a10-1")
    await nodes.stop()
    assert ready(await client.get(NODES, "a10-2")) == "False"
    with pytest.raises(ApiError, match="not found"):
        await client.get(NODES, "a10-1")


async def test_what_goes_with_a_deleted_node_may_go_while_the_next_run_starts() -> None:
    described, store = profiles.default(INTERPRETER), Store(custom=CUSTOM)
    await Nodes(Client(Server(store)), described).start()

    class Collecting(Server):
        """A server whose garbage collector is just about to delete what a deleted node owned."""

        async def send(self, request: Request) -> Response:
            if request.method == "PUT":
                await super().send(Request("DELETE", request.path, {}, {}))
            return await super().send(request)

    collecting = Client(Collecting(store))
    await Nodes(collecting, described).start()
    assert await names(collecting, DEVICES) == {"p40", "a10"}
    assert await names(collecting, LEASES) == {each.name for each in described}


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_a_node_that_was_deleted_before_the_last_run_ended_is_there_again(policy: str) -> None:
    described, store = profiles.default(INTERPRETER), Store(custom=CUSTOM)
    earlier = Server(store)
    await Nodes(Client(earlier), described).start()
    before = await Client(earlier).get(NODES, "a10")
    await earlier.close()  # its controllers act no more, as if it were killed right after the answer
    await earlier.send(Request("DELETE", "/api/v1/nodes/a10", {"propagationPolicy": policy}, {}))
    server = Server(store)
    client = Client(server)
    await Nodes(client, described).start()
    for _ in range(100):  # controllers have their turns
        await asyncio.sleep(0)
    assert await names(client, NODES) == await names(client, LEASES) == {each.name for each in described}
    assert await names(client, DEVICES) == {"p40", "a10"}
    assert (await client.get(NODES, "a10"))["metadata"]["uid"] != before["metadata"]["uid"]
    await server.close()


async def test_a_node_that_somebody_else_holds_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOMENT", 3600.0)
    client, described = Client(Server(Store(custom=CUSTOM))), profiles.default(INTERPRETER)
    await Nodes(client, described).start()
    await client.patch(NODES, "a10", "", {"metadata": {"finalizers": ["example.com/held"]}})
    await client.delete(NODES, "a10")
    async with asyncio.timeout(60):
        await Nodes(client, described).start()
    assert "deletionTimestamp" in (await client.get(NODES, "a10"))["metadata"]


async def test_a_server_that_refuses_is_heard_once_not_once_per_node() -> None:
    class Refusing(Server):
        async def send(self, request: Request) -> Response:
            if request.method == "POST" and request.path.endswith("/nodes"):
                return Response(403, body=b"no nodes today")
            return await super().send(request)

    with pytest.raises(ApiError, match="no nodes today"):
        await Nodes(Client(Refusing(Store(custom=CUSTOM))), machines({"profile": "shared", "count": 50})).start()


@pytest.mark.long
async def test_many_nodes_are_made_in_seconds(client: Client) -> None:
    described = machines({"profile": "koordinator", "count": 200})
    began = time.process_time()  # of this process alone: the machine may be busy
    await Nodes(client, described).start()
    assert time.process_time() - began < 10
    assert len(await names(client, NODES)) == 200


@asynccontextmanager
async def running(nodes: Nodes) -> AsyncIterator[None]:
    """Keep nodes fresh meanwhile."""
    task = asyncio.create_task(nodes.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_lease(client: Client, name: str, time: str) -> None:
    async with asyncio.timeout(60):
        while (await client.get(LEASES, name, LEASE_NAMESPACE))["spec"]["renewTime"] != time:
            await asyncio.sleep(0.01)
