"""Decisions for kube-scheduler: one node, booked until it is bound, given up or asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from subak.model import manifest
from subak.scheduler.extender import wire
from subak.scheduler.extender.extender import UNKNOWN, Extender
from tests.scheduler.live import MEMORY, SGPU, Live, add_metax_node, holder, living, on_bindings, refuse, set_lock
from tests.support import virtual
from tinykube.resource import PRIORITY_CLASSES

NODES = ["n1", "n2"]


def nobody(pod: manifest.Pod) -> bool:
    """kube-scheduler serves all pods."""
    return False


@asynccontextmanager
async def extending(booked_for: float = 60.0) -> AsyncIterator[tuple[Live, Extender]]:
    """An extender, and two nodes with one card of 1,000 MiB each."""
    async with living(nobody) as live:
        await live.add_node("n2")
        await live.until(lambda: len(live.service.core.snapshot) == 2)
        yield live, Extender(live.service, booked_for)


async def create(live: Live, name: str, limits: dict[str, Any], **spec: Any) -> manifest.Pod:
    return msgspec.convert(await live.create(name, limits, **spec), manifest.Pod)


def filtered(extender: Extender, pod: manifest.Pod, names: list[str] = NODES) -> wire.Filtered:
    return extender.filter(wire.Args(pod=pod, node_names=names))


async def bound(extender: Extender, pod: manifest.Pod, node: str) -> str:
    """The error of a bind; empty if it succeeded."""
    args = wire.BindingArgs(pod_name=pod.name, pod_namespace="default", pod_uid=pod.metadata.uid, node=node)
    return (await extender.bind(args)).error


def test_filter_gives_one_node_and_bind_writes_node_and_cards_at_once() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod = await create(live, "a", {MEMORY: "400"})
            assert filtered(extender, pod).node_names == ["n1"]
            assert live.placed() == {}
            assert await bound(extender, pod, "n1") == ""
            assert live.pod("a")["metadata"]["annotations"]["volcano.sh/gpu-index"] == "0"
            assert live.way.bindings["a"] == 1

    virtual.run(story())


def test_what_is_booked_is_not_given_to_another_pod() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pods = [await create(live, name, {MEMORY: "700"}) for name in "abc"]
            assert [filtered(extender, each).node_names for each in pods] == [["n1"], ["n2"], []]

    virtual.run(story())


def test_only_nodes_that_kube_scheduler_names_are_chosen() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod = await create(live, "a", {MEMORY: "400"})
            assert filtered(extender, pod, ["n2", "unknown"]).node_names == ["n2"]
            refused = filtered(extender, pod, ["unknown"])
            assert (refused.node_names, refused.failed_nodes) == ([], {"unknown": UNKNOWN})

    virtual.run(story())


def test_the_next_filter_of_a_pod_gives_its_booking_up() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod, other = [await create(live, name, {MEMORY: "700"}) for name in "ab"]
            filtered(extender, pod, ["n1"])
            filtered(extender, pod, ["n2"])
            assert filtered(extender, other).node_names == ["n1"]

    virtual.run(story())


def test_a_booking_that_is_never_bound_ends_in_time() -> None:
    async def story() -> None:
        async with extending(30.0) as (live, extender):
            pod, other = [await create(live, name, {MEMORY: "700"}) for name in "ab"]
            assert filtered(extender, pod, ["n1"]).node_names == ["n1"]
            await asyncio.sleep(29)
            assert filtered(extender, other, ["n1"]).node_names == []
            await asyncio.sleep(2)
            assert filtered(extender, other, ["n1"]).node_names == ["n1"]
            assert "has no room" in await bound(extender, pod, "n1")

    virtual.run(story())


def test_a_bind_that_nobody_booked_is_decided_on_that_node() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod, other = [await create(live, name, {MEMORY: "700"}) for name in "ab"]
            await live.until(lambda: len(live.service.feed.pods.objects) == 2)
            assert await bound(extender, pod, "n2") == "", "the process that booked it has ended"
            assert live.placed() == {"a": "n2"}
            assert await bound(extender, other, "n2") == "node n2 has no room for the pod any more"
            await live.until(lambda: bool(live.service.feed.pods.objects["default/a"].spec.node_name))
            assert "has the node n2" in await bound(extender, pod, "n1")

    virtual.run(story())


def test_a_binding_that_is_refused_frees_the_cards() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod, other = [await create(live, name, {MEMORY: "700"}) for name in "ab"]
            filtered(extender, pod, ["n1"])
            live.way.disturb = on_bindings(refuse(403))
            assert await bound(extender, pod, "n1") == "refused with 403"
            assert filtered(extender, other, ["n1"]).node_names == ["n1"]

    virtual.run(story())


def test_a_pod_without_cards_passes_unchanged() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod = await create(live, "plain", {"cpu": "1"})
            assert filtered(extender, pod, ["n1", "unknown"]).node_names == ["n1", "unknown"]
            await live.until(lambda: bool(live.service.feed.pods.objects))
            assert await bound(extender, pod, "n1") == ""
            assert live.placed() == {"plain": "n1"}

    virtual.run(story())


def test_every_node_that_refuses_says_why_and_whether_evictions_would_help() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            await add_metax_node(live, "m1")
            await live.until(lambda: len(live.service.core.snapshot) == 3)
            pod = await create(live, "a", {MEMORY: "2000"})
            answer = filtered(extender, pod, ["n1", "m1"])
            assert answer.failed_nodes == {
                "n1": "largest free slice 1,000 MiB, 2,000 MiB asked (CardInsufficientMemory)"
            }
            assert answer.failed_and_unresolvable_nodes == {"m1": "volcano-share not offered (NodeUnregistered)"}

    virtual.run(story())


def test_a_request_that_cannot_be_is_refused_on_all_nodes_for_good() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod = await create(live, "a", {MEMORY: "1000Gi"})
            assert set(filtered(extender, pod).failed_and_unresolvable_nodes) == set(NODES)

    virtual.run(story())


def test_a_scheduler_without_a_cache_of_nodes_gets_whole_nodes_back() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            pod = await create(live, "a", {MEMORY: "400"})
            raw = [msgspec.Raw(msgspec.json.encode({"metadata": {"name": name}, "kept": name})) for name in NODES]
            answer = extender.filter(wire.Args(pod=pod, nodes=wire.NodeList(raw)))
            assert answer.node_names is None
            assert answer.nodes is not None
            assert answer.nodes.items == [raw[0]]
            scores = extender.prioritize(wire.Args(pod=pod, node_names=NODES))
            assert [(each.host, each.score) for each in scores] == [("n1", 10), ("n2", 0)]

    virtual.run(story())


def test_a_binding_waits_for_a_node_lock_only_as_long_as_kube_scheduler_does() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            await add_metax_node(live, "m1")
            await live.until(lambda: len(live.service.core.snapshot) == 3)
            one, two = [await create(live, name, SGPU) for name in "ab"]
            await live.until(lambda: len(live.service.feed.pods.objects) == 2)
            assert await bound(extender, one, "m1") == ""
            assert await bound(extender, two, "m1") == "the lock of node m1 is held for another pod"
            assert holder(live, "m1") == "a"
            await set_lock(live, "m1", None)
            assert filtered(extender, two, ["m1"]).node_names == ["m1"]
            assert await bound(extender, two, "m1") == ""

    virtual.run(story())


def test_victims_that_free_no_cards_are_joined_by_the_least_important_that_do() -> None:
    async def story() -> None:
        async with extending() as (live, extender):
            await live.add_node(
                "n3", {"cpu": "64", "memory": "256Gi", "pods": "250", "volcano.sh/gpu-number": "2", MEMORY: "2000"}
            )
            await live.until(lambda: len(live.service.core.snapshot) == 3)
            for name, value in (("low", 1), ("high", 10)):
                await live.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
            await create(live, "lower", {MEMORY: "1000"})
            await create(live, "low", {MEMORY: "600"}, priorityClassName="low")
            await create(live, "plain", {"cpu": "1"})
            await live.until(lambda: len(live.service.feed.pods.objects) == 3)
            for name in ("lower", "low", "plain"):
                found = live.service.feed.pods.objects[f"default/{name}"]
                assert await bound(extender, found, "n3") == ""
            await live.until(lambda: len(live.service.core.snapshot.bookings) == 3)
            uids = {name: live.pod(name)["metadata"]["uid"] for name in live.pods()}
            urgent = await create(live, "urgent", {MEMORY: "900"}, priorityClassName="high")
            proposed = wire.Victims(pods=[wire.Victim(uid=uids["plain"])], violations=1)
            args = wire.PreemptionArgs(pod=urgent, node_name_to_meta_victims={"n3": proposed, "n1": wire.Victims()})
            answer = extender.preempt(args).node_name_to_meta_victims
            assert set(answer) == {"n3"}, "nobody has to go from n1"
            assert [each.uid for each in answer["n3"].pods or ()] == [uids["plain"], uids["lower"]]
            assert answer["n3"].violations == 1
            too_much = await create(live, "too-much", {MEMORY: "1500"}, priorityClassName="high")
            args.pod = too_much
            assert extender.preempt(args).node_name_to_meta_victims == {}

    virtual.run(story())
