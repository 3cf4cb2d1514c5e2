"""Gangs, queues and fair shares on a real API server, by a controller with the rights of its manifests only."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from subak.model.group import QUEUES, VOLCANO_GROUPS
from tests.e2e.batch import MEMORY, SEED, SPACE, acting, errors, hamis, hardware, installed, pod, preempting, stage
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl
from tinykube.resource import PODS

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(scope="module", autouse=True)
def _installed(cluster: Cluster) -> Iterator[None]:
    yield from installed(cluster)


async def test_the_documents_configuration_and_pods_work_as_printed(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 1, 11178)) as on:
        await on.configure(SEED)
        async with on.controller() as running:
            for file in ("gpu-pod1.yaml", "gpu-pod2.yaml"):
                kubectl(cluster, "create", "-f", str(EXAMPLES / "volcano" / file))
            await on.books.until(lambda: on.books.bound("gpu-pod") == 2, "both pods share the card")
            await on.books.for_a_while(lambda: not on.books.left, "nobody is sent away", 1)
            assert not (await on.client.list(VOLCANO_GROUPS)).items  # a pod by itself is a group of one in memory
            await on.until_queue("default", state="Open")
            assert {each["metadata"]["name"] for each in (await on.client.list(QUEUES)).items} == {"default", "root"}
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
            assert len(on.books.left) <= on.books.bound("b-") + 1, "one leaves for one"
            bound = on.books.bound("b-")
            await on.until_queue("b", state="Open", allocated={"pods": str(bound), MEMORY: str(2000 * bound)})


async def test_two_queues_that_come_at_once_share_by_their_weights_and_nobody_is_sent_away(cluster: Cluster) -> None:
    async with stage(cluster, hardware(2, 4, 10_000)) as on:
        await on.configure(SEED)
        await on.queue("a", weight=1)
        await on.queue("b", weight=3)
        await on.pods([f"a-{number}" for number in range(40)], 2000, queue="a")
        await on.pods([f"b-{number}" for number in range(40)], 2000, queue="b", words=hamis)
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
            await on.books.until(lambda: on.books.bound("other") == 7, "seven cards are free")
            await on.client.create(PODS, pod("hami", hamis(4000), schedulerName="subak"), SPACE)
            await on.books.until(lambda: on.books.bound("hami") == 1, "and the rest of the eighth")
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
