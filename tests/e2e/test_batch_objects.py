"""What is around gangs: kinds that come late, states of queues, edits, owners, other words, Volcano's controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from subak.model.group import KUBERNETES_GROUPS, PLUGIN_GROUPS, QUEUES, VOLCANO_GROUPS
from tests.e2e.batch import GROUP, MEMORY, SEED, SPACE, define, errors, hardware, installed, pod, preempting, stage
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl
from tinykube.client import MERGE_PATCH, Client
from tinykube.lease import Elector, Terms
from tinykube.resource import LEASES, PODS


@pytest.fixture(scope="module", autouse=True)
def _installed(cluster: Cluster) -> Iterator[None]:
    yield from installed(cluster)


async def test_kinds_that_are_installed_after_the_controller_are_noticed(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 4, 10_000), defined=False) as on:
        await on.configure(SEED)
        async with on.controller() as running:
            await on.pods(["plain"], 3000)
            await on.books.until(lambda: on.books.bound("plain") == 1, "a pod by itself needs no kinds")
            await define(on.client, VOLCANO_GROUPS, QUEUES)
            await on.gang("late", 3, 8000)
            await on.books.until(lambda: on.books.bound("late") == 3, "the gang starts")
            await on.until_queue("default", state="Open")
            assert (await on.until_status("late", lambda status: status.get("running") == 3))["phase"] == "Running"
            assert not errors(running), running.log


async def test_a_closing_queue_takes_nobody_in_and_is_closed_when_its_last_group_is_gone(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 4, 10_000)) as on:
        await on.configure(SEED)
        await on.queue("q")
        async with on.controller():
            await on.until_queue("q", state="Open")
            await on.gang("in", 2, 3000, queue="q")
            await on.books.until(lambda: on.books.bound("in") == 2)
            await on.until_queue("q", running=1)
            await on.client.patch_status(QUEUES, "q", "", {"state": "Closing"}, kind=MERGE_PATCH)
            await on.gang("out", 2, 3000, queue="q")
            await on.books.for_a_while(lambda: on.books.bound("out") == 0, "a closing queue takes nobody in", 2)
            await on.books.remove("in-0", "in-1", "out-0", "out-1")
            for name in ("in", "out"):
                await on.client.delete(VOLCANO_GROUPS, name, SPACE)
            await on.until_queue("q", state="Closed", running=0)
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


async def test_while_volcanos_controllers_live_pods_wait_for_their_groups_and_queues_keep_their_states(
    cluster: Cluster,
) -> None:
    async with stage(cluster, hardware(1, 4, 10_000)) as on:
        await on.configure(SEED)
        await on.queue("theirs")
        volcano = Elector(on.client, "kube-system", "vc-controller-manager", "their-pod", Terms())
        await volcano.acquire()
        keeping = asyncio.create_task(volcano.keep())
        try:
            async with on.controller() as running:
                await on.pods(["one"], 3000)
                await on.books.for_a_while(lambda: on.books.bound("one") == 0, "it waits for its PodGroup", 2)
                assert "state" not in (await on.client.get(QUEUES, "theirs")).get("status", {})
                await on.group("podgroup-one", 1)  # as they would make it
                patch = {"metadata": {"annotations": {GROUP: "podgroup-one"}}}
                await on.client.patch(PODS, "one", SPACE, patch)
                await on.books.until(lambda: on.books.bound("one") == 1, "it has one")
                await on.pods(["two"], 3000)
                keeping.cancel()
                await volcano.release()
                await on.books.until(lambda: on.books.bound("two") == 1, "nobody else makes groups now")
                await on.until_queue("theirs", state="Open")
                assert not errors(running), running.log
        finally:
            keeping.cancel()
            await on.client.delete(LEASES, "vc-controller-manager", "kube-system")


async def test_gangs_in_the_words_of_the_scheduler_plugins_and_of_koordinator(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 4, 10_000)) as on:
        await on.configure(SEED)
        async with on.controller() as running:
            await on.pods(["blocker"], 8000)
            await on.books.until(lambda: on.books.bound("blocker") == 1)
            group = {
                "apiVersion": PLUGIN_GROUPS.api_version,
                "kind": PLUGIN_GROUPS.kind,
                "metadata": {"name": "theirs"},
                "spec": {"minMember": 4},
            }
            await on.client.create(PLUGIN_GROUPS, group, SPACE)
            for number in range(4):
                labels = {"scheduling.x-k8s.io/pod-group": "theirs"}
                body = pod(f"plugin-{number}", {MEMORY: "8000"}, labels=labels, schedulerName="subak")
                await on.client.create(PODS, body, SPACE)
            await on.books.for_a_while(lambda: on.books.bound("plugin") == 0, "3 of 4 are not enough", 2)
            await on.books.remove("blocker")
            await on.books.until(lambda: on.books.bound("plugin") == 4, "all of them")
            words = "gang.scheduling.koordinator.sh"
            annotations = {f"{words}/name": "k", f"{words}/min-available": "2"}
            for number in range(2):
                body = pod(f"koord-{number}", {MEMORY: "8000"}, annotations, schedulerName="koord-scheduler")
                await on.client.create(PODS, body, SPACE)
            await on.books.remove("plugin-0")
            await on.books.for_a_while(lambda: on.books.bound("koord") == 0, "1 of 2 is not enough", 2)
            await on.books.remove("plugin-1")
            await on.books.until(lambda: on.books.bound("koord") == 2, "both of them")
            assert not on.books.left
            assert not errors(running), running.log


async def test_kubernetes_own_groups_where_the_server_has_them(cluster: Cluster) -> None:
    cluster.stop("kube-apiserver")
    cluster.start(
        "kube-apiserver", "--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"
    )
    try:
        async with stage(cluster, hardware(1, 4, 10_000)) as on:
            await on.configure(SEED)
            async with on.controller() as running:
                await on.pods(["blocker"], 8000)
                await on.books.until(lambda: on.books.bound("blocker") == 1)
                group = {
                    "apiVersion": KUBERNETES_GROUPS.api_version,
                    "kind": KUBERNETES_GROUPS.kind,
                    "metadata": {"name": "own"},
                    "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
                }
                await on.client.create(KUBERNETES_GROUPS, group, SPACE)
                for number in range(4):
                    reference = {"podGroupName": "own"}
                    body = pod(f"own-{number}", {MEMORY: "8000"}, schedulerName="subak", schedulingGroup=reference)
                    await on.client.create(PODS, body, SPACE)
                await _until_condition(on.client, "False", "Unschedulable")
                assert on.books.bound("own") == 0
                await on.books.remove("blocker")
                await on.books.until(lambda: on.books.bound("own") == 4, "all of them")
                await _until_condition(on.client, "True", "Scheduled")
                assert not errors(running), running.log
                await on.books.clear()
                await on.client.delete(KUBERNETES_GROUPS, "own", SPACE)
    finally:
        cluster.restart("kube-apiserver")


async def _until_condition(client: Client, status: str, reason: str) -> None:
    """Wait until Kubernetes' own PodGroup says so."""
    found: dict[str, Any] = {}
    try:
        async with asyncio.timeout(30):
            while True:
                found = (await client.get(KUBERNETES_GROUPS, "own", SPACE)).get("status", {})
                condition: dict[str, Any] = next(iter(found.get("conditions", ())), {})
                if (condition.get("status"), condition.get("reason")) == (status, reason):
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"PodGroup own: {found}, not {status} {reason}") from None
