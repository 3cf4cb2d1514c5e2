"""Gangs as `subak why` shows them, from the objects of an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from subak.cli import gang
from subak.cli.connection import Connection
from subak.model import manifest
from subak.model.group import KOORDINATOR_GROUPS, PLUGIN_GROUPS, QUEUES, VOLCANO_GROUPS
from tests.support.custom import CUSTOM
from tinykube.client import MERGE_PATCH, Client
from tinykube.resource import PODS, Resource
from tinykube.server import bootstrap
from tinykube.server.server import Server
from tinykube.server.store import Store

VOLCANO = "scheduling.k8s.io/group-name"
KOORDINATOR = "gang.scheduling.koordinator.sh/"


class Objects:
    """An API server without a scheduler."""

    def __init__(self) -> None:
        self.server = Server(Store(custom=CUSTOM))
        bootstrap.fill(self.server.registry)
        self.client = Client(self.server, "tester")
        self.connection = Connection(self.client, None, "default")  # type: ignore[arg-type]

    async def pod(
        self,
        name: str,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        node: str = "",
        told: str = "",
    ) -> None:
        content = {
            "metadata": {"name": name, "annotations": annotations, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": node},
        }
        await self.client.create(PODS, content, "default")
        if told:
            status = {"conditions": [{"type": "PodScheduled", "status": "False", "message": told}]}
            await self.client.patch(
                PODS, name, "default", {"status": status}, kind=MERGE_PATCH, subresource="status", type=manifest.Object
            )

    async def group(self, resource: Resource, name: str, status: Any = None, **spec: Any) -> None:
        await self.create(resource, name, "default", spec=spec, **({"status": status} if status else {}))

    async def create(self, resource: Resource, name: str, namespace: str = "", **content: Any) -> None:
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await self.client.create(resource, head | content, namespace)

    async def gang(self, name: str) -> gang.Gang:
        (found,) = await gang.named(self.connection, "default", name)
        return found


@pytest.fixture
async def objects() -> AsyncIterator[Objects]:
    made = Objects()
    yield made
    await made.server.close()


async def test_a_gang_without_its_object_says_which_one_it_waits_for(objects: Objects) -> None:
    await objects.pod("a", {VOLCANO: "train"})
    found = await objects.gang("train")
    assert found.waits
    assert found.sentence == "PodGroup default/train (scheduling.volcano.sh/v1beta1) is not there"


async def test_a_gang_waits_for_its_members(objects: Objects) -> None:
    await objects.group(VOLCANO_GROUPS, "train", minMember=3)
    await objects.pod("b", {VOLCANO: "train"})
    await objects.pod("a", {VOLCANO: "train"})
    found = await objects.gang("train")
    assert found.sentence == "2 of 3 members are there"
    assert [each.pod.name for each in found.members] == ["a", "b"]


async def test_a_group_nobody_is_in_waits_too(objects: Objects) -> None:
    await objects.group(PLUGIN_GROUPS, "train", minMember=3)
    assert (await objects.gang("train")).sentence == "0 of 3 members are there"


async def test_what_the_scheduler_has_written_is_told(objects: Objects, capsys: pytest.CaptureFixture[str]) -> None:
    told = "1 of 2 members fits; 1 lacks a card with 16 GiB free"
    await objects.group(VOLCANO_GROUPS, "train", minMember=2)
    await objects.pod("a", {VOLCANO: "train"}, told=f"waits with its gang default/train: {told}")
    await objects.pod("b", {VOLCANO: "train"}, told="its binding was refused")
    found = await objects.gang("train")
    assert found.sentence == told
    found.show()
    assert capsys.readouterr().out.splitlines() == [
        f"gang default/train waits: {told}",
        "  queue default is Open, and holds nothing",
        "  MEMBER   STATE     NODE   WHY",
        "  a        Waiting   -",
        "  b        Waiting   -      its binding was refused",
    ]


async def test_the_condition_of_the_group_comes_before_those_of_pods(objects: Objects) -> None:
    status = {"conditions": [{"type": "Unschedulable", "status": "True", "message": "no room"}]}
    await objects.group(VOLCANO_GROUPS, "train", status, minMember=1)
    await objects.pod("a", {VOLCANO: "train"}, told="other words")
    assert (await objects.gang("train")).sentence == "no room"


async def test_a_gang_that_runs_has_enough_places(objects: Objects) -> None:
    await objects.group(VOLCANO_GROUPS, "train", minMember=1)
    await objects.pod("a", {VOLCANO: "train"}, node="n1")
    await objects.pod("b", {VOLCANO: "train"})
    found = await objects.gang("train")
    assert not found.waits
    assert found.sentence == "1 of 2 members have places, 1 needed"
    assert found.data()["members"][0] | {"state": ""} == {
        "namespace": "default",
        "name": "a",
        "state": "",
        "node": "n1",
        "nominated": "",
        "message": "",
        "story": [],
    }


async def test_a_part_that_runs_alone_is_told(objects: Objects) -> None:
    await objects.pod("a", {KOORDINATOR + "name": "train", KOORDINATOR + "min-available": "2"}, node="n1")
    await objects.pod("b", {KOORDINATOR + "name": "train", KOORDINATOR + "min-available": "2"})
    assert (await objects.gang("train")).sentence == "1 of 2 is bound"


async def test_a_queue_that_is_not_there_or_closed(objects: Objects, capsys: pytest.CaptureFixture[str]) -> None:
    await objects.group(VOLCANO_GROUPS, "train", minMember=1, queue="team")
    await objects.pod("a", {VOLCANO: "train"})
    assert (await objects.gang("train")).sentence == "there is no queue team"
    await objects.create(QUEUES, "team", spec={"weight": 2})
    status = {"status": {"state": "Closed", "allocated": {"cpu": "4"}}}
    await objects.client.patch(QUEUES, "team", "", status, kind=MERGE_PATCH, subresource="status", type=manifest.Object)
    found = await objects.gang("train")
    assert found.sentence == "queue team is closed: it takes no new members"
    assert found.data()["queue"] == {"name": "team", "state": "Closed", "allocated": {"cpu": "4"}}
    found.show()
    assert "  queue team is Closed, and holds cpu 4\n" in capsys.readouterr().out


async def test_an_object_that_cannot_be_honoured_is_named(objects: Objects) -> None:
    await objects.group(VOLCANO_GROUPS, "train", minMember=1, networkTopology={"mode": "hard"})
    await objects.pod("a", {VOLCANO: "train"})
    assert "spec.networkTopology" in (await objects.gang("train")).sentence


async def test_the_members_of_a_bundle_are_shown_with_any_of_its_gangs(objects: Objects) -> None:
    for name in ("x", "y"):
        words = {
            KOORDINATOR + "name": name,
            KOORDINATOR + "min-available": "1",
            KOORDINATOR + "groups": '["default/x","default/y"]',
        }
        await objects.pod(f"of-{name}", words)
    for name in ("x", "y"):
        found = await objects.gang(name)
        assert (found.name, len(found.members)) == ("default/x,default/y", 2)
        assert found.terms is not None
        assert found.terms.min_member == 2


async def test_one_name_in_two_words_is_two_gangs(objects: Objects) -> None:
    await objects.group(VOLCANO_GROUPS, "train", minMember=1)
    await objects.group(KOORDINATOR_GROUPS, "train", minMember=1)
    await objects.pod("a", {VOLCANO: "train"})
    found = await gang.named(objects.connection, "default", "train")
    assert [(each.words, len(each.members)) for each in found] == [("volcano", 1), ("koordinator", 0)]
    assert await gang.named(objects.connection, "default", "other") == []


async def test_a_pod_knows_its_gang(objects: Objects) -> None:
    await objects.pod("a", labels={"scheduling.x-k8s.io/pod-group": "train"})
    await objects.pod("b")
    await objects.pod("c", {VOLCANO: "No Name"})
    pods = [await objects.client.get(PODS, name, "default", type=manifest.Pod) for name in "abc"]
    of_a, of_b, of_c = [await gang.of_pod(objects.connection, each) for each in pods]
    assert of_a is not None
    assert (of_a.words, of_a.name, len(of_a.members)) == ("scheduler-plugins", "default/train", 1)
    assert of_b is None
    assert of_c is None
