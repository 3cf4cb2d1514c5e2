"""The agent's own watch: pods are known by their UID."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from subak.model import manifest
from subak.node.pods import Pods
from tests.scheduler.live import Live
from tests.support import virtual
from tinykube.client import Client
from tinykube.resource import PODS


@asynccontextmanager
async def watching(node: str = "n1") -> AsyncIterator[tuple[Live, Pods]]:
    live = Live()
    await live.add_node("n1")
    pods = Pods(Client(live.way), node)
    task = asyncio.create_task(pods.run())
    try:
        await pods.synced.wait()
        yield live, pods
    finally:
        task.cancel()
        await asyncio.wait({task})
        await live.server.close()


async def bind(live: Live, name: str, node: str = "n1", **metadata: Any) -> str:
    """Create a pod, give it a node, and tell its UID."""
    body = {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    uid: str = (await live.client.create(PODS, body, "default"))["metadata"]["uid"]
    await live.client.bind(name, "default", node)
    return uid


def test_only_pods_of_the_node_are_known_and_only_while_they_are_there() -> None:
    async def story() -> None:
        async with watching() as (live, pods):
            await live.add_node("n2")
            mine, other = await bind(live, "mine"), await bind(live, "other", "n2")
            found = await pods.wait(mine, 5)
            assert found is not None
            assert (found.name, found.spec.node_name) == ("mine", "n1")
            assert await pods.wait(other, 5) is None
            assert [each.name for each in pods] == ["mine"]
            await live.delete("mine")
            await virtual.until(lambda: pods.get(mine) is None)

    virtual.run(story())


def test_a_container_may_be_created_before_the_watch_has_its_pod() -> None:
    async def story() -> None:
        async with watching() as (live, pods):
            body = {"metadata": {"name": "late"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
            uid = (await live.client.create(PODS, body, "default"))["metadata"]["uid"]
            waiting = asyncio.create_task(pods.wait(uid, 1))
            await asyncio.sleep(0.5)
            assert not waiting.done(), "a pod without a node is none of this node's"
            await live.client.bind("late", "default", "n1")
            found = await waiting
            assert found is not None
            assert found.spec.node_name == "n1"

    virtual.run(story())


def test_a_pod_that_never_comes_is_waited_for_no_longer_than_asked() -> None:
    async def story() -> None:
        async with watching() as (_, pods):
            began = asyncio.get_running_loop().time()
            assert await pods.wait("nobody", 1) is None
            assert asyncio.get_running_loop().time() - began < 1.1

    virtual.run(story())


def test_nobody_takes_the_place_of_another_pod() -> None:
    async def story() -> None:
        async with watching() as (live, pods):
            victim = await bind(live, "victim")
            attacker = await bind(live, "attacker", annotations={"kubernetes.io/config.hash": victim})
            assert await pods.wait(attacker, 5) is not None
            found = pods.get(victim)
            assert found is not None
            assert found.name == "victim"

    virtual.run(story())


def test_listeners_hear_of_every_change() -> None:
    async def story() -> None:
        async with watching() as (live, pods):
            heard: list[tuple[str, str]] = []
            pods.listen(lambda type, pod: heard.append((type, pod.status.phase)))
            await bind(live, "a")
            await live.finish("a")
            await live.delete("a")
            await virtual.until(lambda: bool(heard) and heard[-1] == ("DELETED", "Succeeded"))
            assert list(dict.fromkeys(type for type, _ in heard)) == ["ADDED", "MODIFIED", "DELETED"]

    virtual.run(story())


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    async def story() -> None:
        async with watching() as (live, pods):
            first = await bind(live, "a")
            live.way.cut()
            await live.delete("a")
            second = await bind(live, "a")
            found = await pods.wait(second, 30)
            assert isinstance(found, manifest.Pod)
            assert pods.get(first) is None

    virtual.run(story())
