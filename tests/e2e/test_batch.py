"""Gangs, queues and fair shares on a real API server, by a controller with the rights of its manifests only."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from subak.model.group import QUEUES, VOLCANO_GROUPS
from tests.e2e.batch import MEMORY, SEED, SPACE, Stage, acting, define, hardware, pod, preempting, stage
from tests.e2e.cluster import Cluster
from tests.e2e.controller import Running, apply_manifests, free_lease, kubectl
from tests.e2e.proxy import Fault, Proxy
from tinykube.client import MERGE_PATCH
from tinykube.resource import PODS

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
HAMI = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000"}


@pytest.fixture(scope="module", autouse=True)
def _manifests(cluster: Cluster) -> None:
    apply_manifests(cluster)


def errors(running: Running) -> list[str]:
    """What the controller complains about."""
    return [line["event"] for line in running.lines() if line["level"] == "error"]


async def queue_status(on: Stage, name: str) -> dict[str, Any]:
    listing = await on.client.list(QUEUES, fields=f"metadata.name={name}")
    return next((dict(each.get("status", {})) for each in listing.items), {})


async def until_queue(on: Stage, name: str, **wanted: Any) -> None:
    """Wait until the status of a queue has these values."""
    found: dict[str, Any] = {}
    try:
        async with asyncio.timeout(20):
            while {**found, **wanted} != found:
                await asyncio.sleep(0.1)
                found = {**dict.fromkeys(wanted, 0), **await queue_status(on, name)}
    except TimeoutError:
        raise AssertionError(f"queue {name}: {found}, not {wanted}") from None


async def test_the_documents_configuration_and_pods_work_as_printed(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 1, 11178)) as on:
        await on.configure(SEED)
        async with on.controller() as running:
            for file in ("gpu-pod1.yaml", "gpu-pod2.yaml"):
                kubectl(cluster, "create", "-f", str(EXAMPLES / "volcano" / file))
            await on.books.until(lambda: on.books.bound("gpu-pod") == 2, "both pods share the card")
            await on.books.for_a_while(lambda: not on.books.left, "nobody is sent away", 1)
            assert not (await on.client.list(VOLCANO_GROUPS)).items  # a pod by itself is a group of one in memory
            assert {each["metadata"]["name"] for each in (await on.client.list(QUEUES)).items} == {"default", "root"}
            await until_queue(on, "default", state="Open")
            assert await running.end(signal.SIGTERM) == 0
            assert not errors(running), running.log


async def test_two_queues_get_what_their_weights_say_and_only_reclaim_takes_from_whom_has_more(
    cluster: Cluster,
) -> None:
    async with stage(cluster, hardware(2, 4, 10_000)) as on:  # 40 pods of 2,000 MiB
        await on.configure(SEED)
        await on.queue("a", weight=1)
        await on.queue("b", weight=3)
        async with on.controller():
            await on.pods([f"a-{number}" for number in range(45)], 2000, queue="a")
            await on.books.until(lambda: on.books.bound("a-") == 40, "an only queue gets all")
            await on.pods([f"b-{number}" for number in range(45)], 2000, queue="b")
            await on.books.for_a_while(lambda: not on.books.left, "without reclaim nobody is sent away", 4)
            assert on.books.bound("b-") == 0
            await on.configure(acting("enqueue", "reclaim", "allocate", "backfill"))
            await on.books.until(lambda: on.books.bound("b-") >= 29 and on.books.bound("") == 40, "b gets its share")
            await on.books.for_a_while(lambda: on.books.bound("a-") >= 9, "nobody falls below its share", 3)
            assert abs(on.books.bound("a-") - 10) <= 1
            assert abs(on.books.bound("b-") - 30) <= 1
            assert all(name.startswith("a-") for name in on.books.left)
            assert len(on.books.left) <= 31
            await until_queue(on, "b", state="Open", running=on.books.bound("b-"))


async def test_two_queues_that_come_at_once_share_by_their_weights_and_nobody_is_sent_away(cluster: Cluster) -> None:
    async with stage(cluster, hardware(2, 4, 10_000)) as on:
        await on.configure(SEED)
        await on.queue("a", weight=1)
        await on.queue("b", weight=3)
        await on.pods([f"a-{number}" for number in range(40)], 2000, queue="a")
        await on.pods([f"b-{number}" for number in range(40)], 2000, queue="b")
        async with on.controller():
            await on.books.until(lambda: on.books.bound("") == 40, "all room is used")
            await on.books.for_a_while(lambda: on.books.bound("") == 40, "and stays so", 2)
            assert abs(on.books.bound("a-") - 10) <= 1
            assert abs(on.books.bound("b-") - 30) <= 1
            assert not on.books.left


async def test_a_gang_that_does_not_fit_binds_nothing_holds_nothing_and_starts_whole_when_there_is_room(
    cluster: Cluster,
) -> None:
    async with stage(cluster, hardware(2, 4, 10_000)) as on:
        await on.configure(SEED)
        async with on.controller() as running:
            await on.pods(["blocker"], 6000)
            await on.books.until(lambda: on.books.bound("blocker") == 1)
            await on.gang("eight", 8, 8000)
            status = await on.until_status("eight", lambda status: bool(status.get("conditions")))
            await on.books.for_a_while(lambda: on.books.bound("eight") == 0, "nothing of it is bound", 3)
            (condition,) = (each for each in status["conditions"] if each["type"] == "Unschedulable")
            assert condition["status"] == "True"
            assert "8" in condition["message"], condition
            assert (await on.status("eight"))["phase"] in ("Pending", "Inqueue")
            assert "Unschedulable" in [reason for reason, _ in await on.told("eight")]
            # It holds no card: others in either words get all that the blocker leaves.
            await on.pods([f"other-{number}" for number in range(7)], 9000)
            await on.client.create(PODS, pod("hami", HAMI, schedulerName="subak"), SPACE)
            await on.books.until(lambda: on.books.bound("other") == 7 and on.books.bound("hami") == 1, "room is free")
            assert on.books.bound("eight") == 0
            await on.books.remove("hami", "blocker", *(f"other-{number}" for number in range(7)))
            await on.books.until(lambda: on.books.bound("eight") == 8, "it starts whole")
            status = await on.until_status("eight", lambda status: status.get("running") == 8)
            assert status["phase"] == "Running"
            assert "Scheduled" in [each["type"] for each in status["conditions"]]
            assert not on.books.left
            assert not errors(running), running.log


async def test_an_important_gang_takes_the_fewest_and_least_important_of_each_card_and_nobody_else(
    cluster: Cluster,
) -> None:
    async with stage(cluster, hardware(2, 1, 10_000)) as on:
        await on.configure(preempting())
        for name, value in (("low", 10), ("middle", 100), ("high", 1000)):
            await on.priority(name, value)
        async with on.controller():
            # On each card: one that nobody misses, and one that is more important and larger.
            for number in range(2):
                name = f"batch-{number + 1}"
                await on.pods([f"low-{number}"], 4000, priorityClassName="low", nodeName="", nodeSelector=_on(name))
                await on.pods([f"mid-{number}"], 5000, priorityClassName="middle", nodeSelector=_on(name))
            await on.books.until(lambda: on.books.bound("") == 4)
            await on.group("vip", 2, priorityClassName="high")
            await on.pods(["vip-0", "vip-1"], 4500, group="vip", priorityClassName="high")
            await on.books.until(lambda: on.books.bound("vip") == 2, "it gets its room")
            assert sorted(on.books.left) == ["low-0", "low-1"]
            await on.books.for_a_while(lambda: len(on.books.left) == 2, "nobody else is sent away", 2)


def _on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


async def test_with_bindings_refused_at_random_gangs_become_whole_and_nothing_is_bound_twice(cluster: Cluster) -> None:
    chance = random.Random(1)

    def refuse(request: web.Request) -> Fault | None:
        if request.path.endswith("/binding") and chance.random() < 0.3:
            return Fault(status=403) if chance.random() < 0.7 else Fault(lost=True)
        return None

    async with stage(cluster, hardware(3, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = refuse
        async with on.controller("--group-timeout=20s", server=between.address):
            for number in range(4):
                await on.gang(f"g{number}", 6, 5000)
            await on.books.until(lambda: on.books.bound("g") == 24, "all gangs are whole")
            assert between.disturbed
            assert max(on.books.bindings.values()) == 1
            assert not on.books.left


async def test_a_member_that_is_always_refused_ends_its_gang_after_the_timeout_and_makes_room(cluster: Cluster) -> None:
    def refuse(request: web.Request) -> Fault | None:
        return Fault(status=403) if request.path.endswith("/pods/half-3/binding") else None

    async with stage(cluster, hardware(1, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = refuse
        async with on.controller("--group-timeout=4s", server=between.address):
            await on.gang("half", 4, 8000)
            await on.books.until(lambda: on.books.bound("half") == 3, "the others are bound")
            await on.books.until(lambda: len(on.books.left) == 3, "they give back what they hold", 20)
            reasons = [reason for reason, _ in await on.told("half-0")]
            assert "GangTimeout" in reasons, reasons
            await on.gang("next", 4, 8000)
            await on.books.until(lambda: on.books.bound("next") == 4, "another gang gets the room")


async def test_killed_between_two_bindings_the_next_controller_completes_the_gang_first(cluster: Cluster) -> None:
    passed = 0

    def stall(request: web.Request) -> Fault | None:
        nonlocal passed
        if not request.path.endswith("/binding"):
            return None
        passed += 1
        return None if passed <= 3 else Fault(delay=3600)

    async with stage(cluster, hardware(2, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = stall
        async with on.controller("--group-timeout=60s", server=between.address) as running:
            await on.gang("torn", 8, 8000)
            await on.books.until(lambda: on.books.bound("torn") == 3, "three of eight are bound")
            await running.end(signal.SIGKILL)
        await on.gang("rival", 8, 8000)
        between.fault = lambda request: None
        async with on.controller("--group-timeout=60s"):
            await on.books.until(lambda: on.books.bound("torn") == 8, "it is completed before the other")
            assert on.books.bound("rival") == 0
            assert not on.books.left
            assert max(on.books.bindings.values()) == 1
            await on.books.remove(*(f"torn-{number}" for number in range(8)))
            await on.books.until(lambda: on.books.bound("rival") == 8)


async def test_killed_midway_and_the_room_is_gone_the_half_gang_leaves_after_its_timeout(cluster: Cluster) -> None:
    passed = 0

    def stall(request: web.Request) -> Fault | None:
        nonlocal passed
        if not request.path.endswith("/binding"):
            return None
        passed += 1
        return None if passed <= 2 else Fault(delay=3600)

    async with stage(cluster, hardware(1, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = stall
        async with on.controller("--group-timeout=4s", server=between.address) as running:
            await on.gang("torn", 4, 8000)
            await on.books.until(lambda: on.books.bound("torn") == 2, "two of four are bound")
            await running.end(signal.SIGKILL)
        # Somebody takes a card without asking, as an administrator can.
        taken = {
            each["metadata"]["annotations"]["volcano.sh/gpu-index"] for each in on.books.pods.values() if _node(each)
        }
        free = next(index for index in "0123" if index not in taken)
        await on.client.create(PODS, pod("thief", {MEMORY: "8000"}, schedulerName="nobody"), SPACE)
        record = {"volcano.sh/gpu-index": free, "volcano.sh/predicate-time": "1"}
        await on.client.bind("thief", SPACE, "batch-1", annotations=record)
        await free_lease(on.client)
        async with on.controller("--group-timeout=4s"):
            await on.books.until(lambda: len(on.books.left) == 2, "the half gang leaves", 40)
            assert all(name.startswith("torn") for name in on.books.left)


def _node(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))


async def test_two_gangs_that_want_the_same_room_do_not_block_each_other(cluster: Cluster) -> None:
    async with stage(cluster, hardware(2, 2, 10_000)) as on:
        await on.configure(SEED)
        async with on.controller():
            await asyncio.gather(on.gang("one", 4, 8000), on.gang("two", 4, 8000))
            await on.books.until(lambda: {on.books.bound("one"), on.books.bound("two")} == {0, 4}, "one of them starts")
            first, second = ("one", "two") if on.books.bound("one") else ("two", "one")
            await on.books.remove(*(f"{first}-{number}" for number in range(4)))
            await on.books.until(lambda: on.books.bound(second) == 4, "then the other")


async def test_kinds_that_are_installed_after_the_controller_are_noticed(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 4, 10_000), defined=False) as on:
        await on.configure(SEED)
        async with on.controller() as running:
            await on.pods(["plain"], 3000)
            await on.books.until(lambda: on.books.bound("plain") == 1, "a pod by itself needs no kinds")
            await define(on.client, VOLCANO_GROUPS, QUEUES)
            await on.gang("late", 3, 8000)
            await on.books.until(lambda: on.books.bound("late") == 3, "the gang starts")
            await until_queue(on, "default", state="Open")
            assert (await on.until_status("late", lambda status: status.get("running") == 3))["phase"] == "Running"
            assert not errors(running), running.log


async def test_a_closing_queue_takes_nobody_in_and_is_closed_when_its_last_group_is_gone(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 4, 10_000)) as on:
        await on.configure(SEED)
        await on.queue("q")
        async with on.controller():
            await until_queue(on, "q", state="Open")
            await on.gang("in", 2, 3000, queue="q")
            await on.books.until(lambda: on.books.bound("in") == 2)
            await until_queue(on, "q", running=1)
            await on.client.patch_status(QUEUES, "q", "", {"state": "Closing"}, kind=MERGE_PATCH)
            await on.gang("out", 2, 3000, queue="q")
            await on.books.for_a_while(lambda: on.books.bound("out") == 0, "a closing queue takes nobody in", 2)
            await on.books.remove("in-0", "in-1", "out-0", "out-1")
            for name in ("in", "out"):
                await on.client.delete(VOLCANO_GROUPS, name, SPACE)
            await until_queue(on, "q", state="Closed", running=0)
            await on.client.patch_status(QUEUES, "q", "", {"state": "Open"}, kind=MERGE_PATCH)
            await on.gang("again", 2, 3000, queue="q")
            await on.books.until(lambda: on.books.bound("again") == 2, "an open queue does")


async def test_another_configuration_counts_at_once_and_a_broken_one_does_not(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 1, 10_000)) as on:
        await on.configure(SEED)
        await on.priority("high", 1000)
        async with on.controller() as running:
            await on.pods(["low"], 8000)
            await on.books.until(lambda: on.books.bound("low") == 1)
            await on.pods(["high"], 8000, priorityClassName="high")
            await on.books.for_a_while(lambda: not on.books.left, "the document's actions send nobody away", 2)
            await on.configure("actions: 'enqueue, dance'")
            await on.books.for_a_while(lambda: not on.books.left, "nor does a configuration that is none", 2)
            assert any("dance" in line["event"] for line in running.lines()), running.log
            await on.configure(preempting())
            await on.books.until(lambda: on.books.bound("high") == 1 and on.books.left == ["low"], "preempt does")


async def test_pods_of_a_job_that_says_so_start_together(cluster: Cluster) -> None:
    cluster.start("workloads")
    try:
        async with stage(cluster, hardware(1, 4, 10_000)) as on:
            await on.configure(SEED)
            async with on.controller() as running:
                await on.pods(["blocker"], 8000)
                await on.books.until(lambda: on.books.bound("blocker") == 1)
                template = pod("", {MEMORY: "8000"}, restartPolicy="Never")["spec"]
                job = {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": "train", "annotations": {"scheduling.volcano.sh/group-min-member": "4"}},
                    "spec": {"parallelism": 4, "completions": 4, "template": {"spec": template}},
                }
                await on.client.request("POST", "/apis/batch/v1/namespaces/default/jobs", body=job)
                await on.books.until(lambda: len(on.books.pods) == 5)
                await on.books.for_a_while(lambda: on.books.bound("train") == 0, "3 of 4 are not enough", 3)
                (group,) = (await on.client.list(VOLCANO_GROUPS, SPACE)).items
                assert group["spec"]["minMember"] == 4
                assert group["metadata"]["name"] == f"podgroup-{group['metadata']['ownerReferences'][0]['uid']}"
                await on.books.remove("blocker")
                await on.books.until(lambda: on.books.bound("train") == 4, "all of them")
                assert not errors(running), running.log
                kubectl(cluster, "delete", "job/train", "--cascade=orphan")
    finally:
        cluster.stop("workloads")
