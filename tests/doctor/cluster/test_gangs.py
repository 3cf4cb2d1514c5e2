"""The scheduler configuration, and groups and queues that pods name and nobody has made."""

from __future__ import annotations

from typing import Any

from subak.doctor import Level
from subak.doctor.cluster import gangs
from tests.doctor.canned import Answer, items
from tests.doctor.cluster.worlds import Ledger, found, ledger, levels

CONFIG = "GET /api/v1/namespaces/volcano-system/configmaps/volcano-scheduler-configmap"
GROUPS = "GET /apis/scheduling.volcano.sh/v1beta1/podgroups"
QUEUES = "GET /apis/scheduling.volcano.sh/v1beta1/queues"


def written(text: str) -> dict[str, Answer]:
    return {CONFIG: {"data": {"volcano-scheduler.conf": text}}}


async def test_a_scheduler_configuration_that_cannot_be_read_or_says_too_much() -> None:
    tiers = "tiers: [{plugins: [{name: gang}, {name: proportion}]}]"
    assert levels(await found(gangs.configuration, {})) == [Level.OK]
    assert levels(await found(gangs.configuration, written(f"actions: 'enqueue, allocate'\n{tiers}"))) == [Level.OK]
    (finding,) = await found(gangs.configuration, written(f"actions: dance\n{tiers}"))
    assert finding.level is Level.FAILED
    assert "configmap volcano-system/volcano-scheduler-configmap" in finding.seen
    assert "dance" in finding.seen
    (finding,) = await found(gangs.configuration, written("actions: allocate\ntiers: [{plugins: [{name: gnag}]}]"))
    assert finding.level is Level.WARNING
    assert "gnag" in finding.seen
    assert levels(await found(gangs.configuration, {CONFIG: {"data": {}}})) == [Level.WARNING]


def waiting(group: str) -> Ledger:
    metadata = {"name": "p", "namespace": "default", "annotations": {"scheduling.k8s.io/group-name": group}}
    return ledger(pods=[{"metadata": metadata, "spec": {"containers": []}}])


def group(name: str, queue: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": 2, "queue": queue}}


async def test_groups_and_queues_that_are_named_and_not_there() -> None:
    queues: dict[str, Answer] = {QUEUES: items({"metadata": {"name": "default"}})}
    assert levels(await found(gangs.objects, {})) == [Level.OK]  # the kinds are not installed
    (finding,) = await found(gangs.objects, {}, waiting("a"))
    assert finding.level is Level.FAILED
    assert "default/a" in finding.seen
    assert "CustomResourceDefinitions" in finding.remedy
    whole: dict[str, Answer] = {**queues, GROUPS: items(group("a", "default"))}
    assert levels(await found(gangs.objects, whole, waiting("a"))) == [Level.OK]
    (finding,) = await found(gangs.objects, whole, waiting("b"))
    assert "PodGroup default/b does not exist, and 1 pod waits" in finding.seen
    (finding,) = await found(gangs.objects, {**queues, GROUPS: items(group("a", "lost"))}, waiting("a"))
    assert finding.level is Level.FAILED
    assert "queue lost does not exist" in finding.seen
