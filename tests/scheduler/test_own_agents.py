"""Nodes with the mark of our own agent: no lock is taken there, and a Lease says whether the agent lives."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from subak.dialects import mark
from subak.model import manifest
from subak.scheduler.agents import Agents
from subak.scheduler.messages import AgentGone, AgentSeen, Bind
from tests.scheduler.live import SGPU, Live, add_metax_node, holder, living, set_lock
from tests.support import virtual
from tests.support.scheduler import Cluster, pod
from tinykube.client import MERGE_PATCH
from tinykube.resource import LEASES, NAMESPACES, NODES, PODS

SLICE = {"volcano.sh/gpu-memory": 100}
HAMI = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}


def node(name: str = "n1", marked: bool = True) -> manifest.Node:
    """A node with one card."""
    capacity = {"volcano.sh/gpu-number": 1, "volcano.sh/gpu-memory": 1000}
    metadata = {"name": name, "annotations": {mark.MARK: "1"} if marked else {}}
    return msgspec.convert({"metadata": metadata, "status": {"capacity": capacity}}, manifest.Node)


def test_a_node_whose_agent_has_a_live_lease_takes_pods_until_the_lease_ends() -> None:
    cluster = Cluster(now=1000.0)
    cluster.add_node(node())
    cluster.unseen.append(AgentSeen("n1", 1040.0))
    cluster.create(pod("early", SLICE))
    cluster.settle()
    assert "early" in cluster.placed()
    cluster.now = 1041.0
    cluster.create(pod("late", SLICE))
    cluster.settle()
    assert "late" not in cluster.placed()
    assert cluster.reports["default/late"] == (
        "0 of 1 nodes fit: 1 node: agent dead: Lease subak-system/n1 ended at 00:17:20 UTC; restart it on the node, "
        "and check the node's clock (NodeAgentDead)"
    )
    cluster.unseen.append(AgentSeen("n1", 1080.0))
    cluster.settle()
    assert "late" in cluster.placed(), "it was woken by the renewal"


def test_an_agent_that_renews_in_time_is_never_dead() -> None:
    cluster = Cluster(now=1000.0)
    cluster.add_node(node())
    for step in range(20):
        cluster.unseen.append(AgentSeen("n1", cluster.now + 40))
        cluster.create(pod(f"p{step}", {"volcano.sh/gpu-memory": 10}))
        cluster.see()
        for instruction in cluster.cycle():
            cluster.carry_out(instruction)
        cluster.now += 30
    assert len(cluster.placed()) == 20


def test_a_mark_without_a_lease_means_that_the_agent_is_dead() -> None:
    cluster = Cluster()
    cluster.add_node(node())
    cluster.create(pod("waits", SLICE))
    cluster.see()
    cluster.settle()
    assert "there is no Lease subak-system/n1" in cluster.reports["default/waits"]
    cluster.add_node(node(marked=False))
    cluster.settle()
    assert cluster.placed() == {"waits": "n1"}, "without the mark, vendors' agents serve the node"


def test_a_lease_that_is_removed_stops_new_pods_at_once() -> None:
    cluster = Cluster()
    cluster.add_node(node())
    cluster.unseen.append(AgentSeen("n1", 1e9))
    cluster.create(pod("runs", SLICE))
    cluster.settle()
    cluster.unseen.append(AgentGone("n1"))
    cluster.create(pod("waits", SLICE))
    cluster.settle()
    assert cluster.placed() == {"runs": "n1"}
    (card,) = cluster.core.snapshot.cards("n1")
    assert card.memory_free == 900 << 20, "what runs there keeps counting"


def test_order_of_node_and_lease_does_not_matter_at_the_start() -> None:
    for first in (True, False):
        agents = Agents()
        if first:
            agents.see_node(node())
        assert not agents.renewed("n1", 100.0)
        if not first:
            agents.see_node(node())
        assert agents.pass_time(50.0) == []
        assert agents.death("n1") is None
        assert agents.next_look() == 100.0
        assert agents.pass_time(101.0) == ["n1"]
        assert agents.pass_time(102.0) == []


def test_a_renewal_does_not_describe_the_node_again() -> None:
    agents = Agents()
    agents.see_node(node())
    agents.renewed("n1", 40.0)
    agents.pass_time(1.0)
    assert not agents.renewed("n1", 50.0)
    assert agents.pass_time(45.0) == []


def test_a_lease_that_cannot_be_read_is_none() -> None:
    content: dict[str, Any] = {"spec": {"renewTime": "soon", "leaseDurationSeconds": 40}}
    assert mark.lives_until(msgspec.convert(content, manifest.Lease)) == 0.0
    content["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    assert mark.lives_until(msgspec.convert(content, manifest.Lease)) == 1767225640.0


async def renew(live: Live, name: str) -> None:
    """Write a Lease as our agent does."""
    await live.client.create(NAMESPACES, {"metadata": {"name": mark.NAMESPACE}})
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": 10**9,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    await live.client.create(
        LEASES, {"metadata": {"name": name, "labels": {mark.MARK: ""}}, "spec": spec}, mark.NAMESPACE
    )


async def set_mark(live: Live, name: str, value: str | None) -> None:
    await live.client.patch(NODES, name, "", {"metadata": {"annotations": {mark.MARK: value}}}, kind=MERGE_PATCH)


def sees_mark(live: Live, name: str) -> bool:
    """Whether the scheduler has seen the mark."""
    node = live.service.feed.nodes.objects.get(name)
    return node is not None and mark.MARK in node.annotations


def test_no_lock_is_taken_where_our_agent_runs_and_again_when_its_mark_goes() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            await renew(live, "m1")
            await set_mark(live, "m1", "1")
            await live.until(lambda: sees_mark(live, "m1"), 5)
            for name in ("a", "b", "c"):
                await live.create(name, SGPU)
            await live.until(lambda: len(live.placed()) == 3, 5)
            assert holder(live, "m1") == "", "nobody waits for a turn"
            await set_mark(live, "m1", None)
            await live.until(lambda: not sees_mark(live, "m1"), 5)
            await live.create("d", SGPU)
            await live.until(lambda: "d" in live.placed(), 5)
            assert holder(live, "m1") == "d"

    virtual.run(story())


def test_a_pod_that_waits_for_a_lock_goes_on_when_our_agent_comes() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            await live.create("a", SGPU)
            await live.until(lambda: holder(live, "m1") == "a", 5)
            await live.create("b", SGPU)
            await live.until(lambda: live.service.counters.lock_waits > 0, 5)
            await renew(live, "m1")
            await set_mark(live, "m1", "1")
            await live.until(lambda: "b" in live.placed(), 5)

    virtual.run(story())


async def add_hami_node(live: Live, name: str) -> None:
    card = {"id": f"GPU-{name}", "count": 10, "devmem": 10000, "devcore": 100, "type": "NVIDIA-T4", "health": True}
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "250", "nvidia.com/gpu": "10"}
    await live.add_node(name, capacity, {"hami.io/node-nvidia-register": json.dumps([card])})


def test_hamis_nvidia_plugin_is_told_its_pod_by_the_lock_and_its_monitor_by_a_label() -> None:
    async def story() -> None:
        async with living() as live:
            await add_hami_node(live, "h1")
            for name in ("a", "b"):
                await live.create(name, HAMI)
            await live.until(lambda: live.placed() == {"a": "h1"}, 5)
            assert holder(live, "h1") == "a"
            metadata = live.pod("a")["metadata"]
            assert metadata["annotations"]["hami.io/bind-phase"] == "allocating"
            assert metadata["labels"] == {"hami.io/vgpu-node": "h1"}
            await set_lock(live, "h1", None)
            await live.until(lambda: holder(live, "h1") == "b", 5)

    virtual.run(story())


def test_a_lock_is_void_once_its_holder_runs() -> None:
    async def story() -> None:
        async with living() as live:
            await add_hami_node(live, "h1")
            for name in ("a", "b"):
                await live.create(name, HAMI)
            await live.until(lambda: live.placed() == {"a": "h1"}, 5)
            await live.client.patch_status(PODS, "a", "default", {"phase": "Running"}, kind=MERGE_PATCH)
            await live.until(lambda: "b" in live.placed(), 5)
            assert holder(live, "h1") == "b", "though the agent never released it"

    virtual.run(story())


def test_a_name_of_a_node_that_is_too_long_for_a_label_is_left_out() -> None:
    long = "n" * 40 + "." + "m" * 40
    cluster = Cluster()
    content = msgspec.to_builtins(node(long, marked=False))
    card = {"id": "GPU-0", "count": 10, "devmem": 10000, "devcore": 100, "type": "NVIDIA-T4", "health": True}
    content["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps([card])}
    cluster.add_node(msgspec.convert(content, manifest.Node))
    cluster.create(pod("a", HAMI))
    cluster.see()
    (bind,) = cluster.cycle()
    assert not bind.labels  # type: ignore[union-attr]
    assert bind.annotations["hami.io/vgpu-node"] == long  # type: ignore[union-attr]


def test_the_label_of_a_binding_does_not_book_the_pod_again() -> None:
    async def story() -> None:
        async with living() as live:
            await add_hami_node(live, "h1")
            await live.create("a", HAMI, schedulerName="hami-scheduler")
            await live.until(lambda: live.placed() == {"a": "h1"}, 5)
            bookings = live.service.core.snapshot.bookings
            booking = bookings["default/a"]

            def labelled() -> bool:
                pod = bookings["default/a"].pod
                return pod is not None and bool(pod.labels)

            await live.until(labelled, 5)
            assert bookings["default/a"].placement is booking.placement, "it was only relabelled"

    virtual.run(story())


def test_where_the_runtime_asks_our_agent_no_container_with_cards_starts_without_it() -> None:
    async def story() -> None:
        async with living() as live:
            await add_hami_node(live, "h1")
            await renew(live, "h1")
            await set_mark(live, "h1", mark.NRI)
            await live.until(lambda: sees_mark(live, "h1"), 5)
            await live.create("gpu", HAMI)
            await live.until(lambda: "gpu" in live.placed(), 5)
            assert live.pod("gpu")["metadata"]["annotations"][mark.REQUIRED] == '["subak"]'

    virtual.run(story())


def test_a_decision_says_already_that_no_container_starts_without_our_agent() -> None:
    """The agent may take leave, and its mark with it, while the pod waits for a volume or for kube-scheduler."""
    cluster = Cluster()
    cluster.add_node(node())
    cluster.unseen.append(AgentSeen("n1", 1e9))
    cluster.create(pod("gpu", SLICE))
    cluster.see()
    (bind,) = cluster.cycle()
    assert isinstance(bind, Bind)
    assert bind.annotations[mark.REQUIRED] == '["subak"]'


def test_where_kubelet_asks_or_a_vendors_agent_serves_nothing_is_required_of_the_runtime() -> None:
    for value in (mark.PLUGIN, None):
        annotations = None if value is None else {mark.MARK: value}
        found = manifest.Node(metadata=manifest.Metadata(name="n", annotations=annotations))
        assert mark.required(mark.way(found)) == {}
