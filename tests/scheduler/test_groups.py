"""PodGroups say how far their pods are: what has changed is written, once, and nothing else of the object."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from subak.model.group import VOLCANO_GROUPS, GroupCondition, KubernetesGroup, KubernetesGroupStatus, Words
from subak.scheduler.groups import own_changes
from subak.scheduler.messages import AskOwner, MakeGroup
from subak.scheduler.owners import OWNERS
from tests.scheduler.live import Answering, refuse
from tests.scheduler.replicas import Replica, cluster, until_one_leads
from tests.scheduler.shows import READY, SHORT, Stage, object_of, play, show
from tests.support import virtual
from tests.support.custom import POD_GROUP
from tinykube.transport import Request, Response, Unreachable

PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
JOBS = OWNERS["batch/v1", "Job"]
OWNER = AskOwner("default", "batch/v1", "Job", "train", "u-1")


def test_phase_counts_and_condition_are_written_and_an_event_tells_of_the_condition() -> None:
    async def story(stage: Stage) -> None:
        uid = await stage.add_group("a", minMember=8)
        await stage.groups.show(show(uid, running=2))
        status = stage.group("a")["status"]
        (condition,) = status.pop("conditions")
        assert status == {"phase": "Inqueue", "running": 2}
        assert condition.pop("lastTransitionTime").endswith("Z")
        assert len(condition.pop("transitionID")) == 36
        assert condition == {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NotEnoughResources",
            "message": "3/8 tasks in gang unschedulable",
        }
        await stage.groups.show(show(uid, "Running", READY, running=8))
        assert [each["type"] for each in stage.group("a")["status"]["conditions"]] == ["Unschedulable", "Scheduled"]
        assert await stage.told("a") == [
            ("Warning", "Unschedulable", "3/8 tasks in gang unschedulable"),
            ("Normal", "Scheduled", "tasks in gang are ready to be scheduled"),
        ]

    play(story)


def test_what_is_written_already_is_not_written_again() -> None:
    async def story(stage: Stage) -> None:
        uid = await stage.add_group("a")
        for _ in range(3):
            await stage.groups.show(show(uid))
            await asyncio.sleep(1)  # the feed has seen it
        assert stage.way.writes == [f"PATCH {PATH}/a"]
        assert len(await stage.told("a")) == 1

    play(story)


def test_what_others_wrote_meanwhile_stays() -> None:
    async def story(stage: Stage) -> None:
        uid = await stage.add_group("a")
        other = {"type": "Audited", "status": "True", "by": "them"}

        async def meanwhile(request: Request, answer: Answering) -> Response:
            if request.method == "PATCH" and len(stage.way.writes) == 1:
                body = {"spec": {"minMember": 3}, "status": {"conditions": [other]}}
                await stage.client.patch(VOLCANO_GROUPS, "a", "default", body)
            return await answer()

        stage.way.disturb = meanwhile
        await stage.groups.show(show(uid))
        found = stage.group("a")
        assert found["spec"]["minMember"] == 3
        assert [each["type"] for each in found["status"]["conditions"]] == ["Audited", "Unschedulable"]
        assert stage.way.writes == [f"PATCH {PATH}/a"] * 2

    play(story)


def test_a_new_group_of_the_same_name_is_left_alone() -> None:
    async def story(stage: Stage) -> None:
        uid = await stage.add_group("a")
        await stage.client.delete(VOLCANO_GROUPS, "a", "default")
        await stage.client.create(VOLCANO_GROUPS, object_of(VOLCANO_GROUPS, "a", {}), "default")
        await stage.groups.show(show(uid))
        assert "status" not in stage.group("a")
        await stage.groups.show(show("gone", name="b"))

    play(story)


def test_a_write_that_hangs_or_fails_holds_up_no_other_and_the_latest_wish_wins() -> None:
    async def story(stage: Stage) -> None:
        uids = {name: await stage.add_group(name) for name in ("a", "b", "c")}
        troubles: list[Response | Exception] = [refuse(503), refuse(429), Unreachable("away"), Unreachable("away")]

        async def disturb(request: Request, answer: Answering) -> Response:
            if request.method == "PATCH" and request.path.endswith("/a"):
                await asyncio.sleep(3600)
            if request.method == "PATCH" and request.path.endswith("/b") and troubles:
                trouble = troubles.pop()
                if isinstance(trouble, Response):
                    return trouble
                raise trouble
            return await answer()

        stage.way.disturb = disturb
        for phase in ("Pending", "Inqueue", "Running"):
            for name, uid in uids.items():
                stage.begin(stage.groups.show(show(uid, phase, name=name)))
        await virtual.until(lambda: stage.group("c").get("status", {}).get("phase") == "Running", 1)
        await virtual.until(lambda: stage.group("b").get("status", {}).get("phase") == "Running", 60)
        assert "status" not in stage.group("a")
        stage.way.disturb = None
        await virtual.until(lambda: stage.group("a").get("status", {}).get("phase") == "Running", 120)

    play(story)


def test_a_refusal_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        uid = await stage.add_group("a")

        async def disturb(request: Request, answer: Answering) -> Response:
            return refuse(403) if request.method == "PATCH" else await answer()

        stage.way.disturb = disturb
        await stage.groups.show(show(uid))
        await stage.groups.show(show(uid, "Running"))
        assert len(stage.way.writes) == 2

    play(story)
    assert "how far a group is, volcano PodGroup default/a could not be written: refused with 403" in caplog.text


def test_the_group_of_an_owner_is_made_once_and_goes_with_it() -> None:
    async def story(stage: Stage) -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
        job = {"metadata": {"name": "train"}, "spec": {"template": template}}
        uid = (await stage.client.create(JOBS, job, "default"))["metadata"]["uid"]
        make = MakeGroup("default", AskOwner("default", "batch/v1", "Job", "train", uid), 3, "research", "high")
        await asyncio.gather(*(stage.groups.make(make) for _ in range(3)))
        name = f"podgroup-{uid}"
        found = stage.group(name)
        assert found["spec"] == {"minMember": 3, "queue": "research", "priorityClassName": "high"}
        assert found["status"] == {"phase": "Pending"}
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "train", uid, True)
        await stage.groups.make(make)
        await stage.client.delete(JOBS, "train", "default", propagation="Background")
        await virtual.until(lambda: stage.store.get(POD_GROUP, "default", name) is None)

    play(story)


def test_without_the_kind_on_the_server_nothing_is_made_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        async def disturb(request: Request, answer: Answering) -> Response:
            return refuse(404) if request.method == "POST" else await answer()

        stage.way.disturb = disturb
        await stage.groups.make(MakeGroup("default", OWNER, 3, "", ""))
        assert len(stage.way.writes) == 1

    play(story)
    assert not caplog.records


def own_group(*conditions: GroupCondition) -> KubernetesGroup:
    return KubernetesGroup(status=KubernetesGroupStatus(conditions=list(conditions)))


def test_kubernetes_own_group_says_whether_it_is_scheduled_and_never_takes_that_back() -> None:
    short, well = show("u", condition=SHORT), show("u", condition=READY)
    (condition,) = own_changes(KubernetesGroup(), short)["conditions"]
    assert condition["lastTransitionTime"].endswith("Z")
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodGroupScheduled",
        "False",
        "Unschedulable",
    )
    said = GroupCondition(type="PodGroupScheduled", status="False", reason="Unschedulable", message=SHORT.message)
    assert own_changes(own_group(said), short) == {}
    longer = msgspec.structs.replace(said, message="4/8", since="2026-01-01T00:00:00Z")
    (condition,) = own_changes(own_group(longer), short)["conditions"]
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"  # its status is as it was
    (condition,) = own_changes(own_group(said), well)["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Scheduled")
    done = GroupCondition(type="PodGroupScheduled", status="True", reason="Scheduled")
    assert own_changes(own_group(done), short) == {}
    assert own_changes(own_group(done), show("u", condition=None)) == {}


def test_groups_that_are_no_objects_show_nothing() -> None:
    async def story(stage: Stage) -> None:
        uid = await stage.add_group("a")
        await stage.groups.show(msgspec.structs.replace(show(uid), words=Words.KOORDINATOR))
        assert not stage.way.writes

    play(story)


def test_only_the_leader_writes_about_groups_and_queues() -> None:
    async def main() -> None:
        live = await cluster()
        await live.client.create(VOLCANO_GROUPS, object_of(VOLCANO_GROUPS, "g", {"minMember": 2}), "default")
        replicas = [Replica(live, name) for name in ("one", "two")]
        leader = await until_one_leads(replicas)
        (standby,) = (each for each in replicas if each is not leader)
        await virtual.until(lambda: any("podgroups/g" in path for path in leader.way.sent))
        await virtual.until(lambda: any("queues/default/status" in path for path in leader.way.sent))
        assert not [path for path in standby.way.sent if "leases" not in path]
        await leader.kill()
        await live.client.patch(VOLCANO_GROUPS, "g", "default", {"status": None})
        await until_one_leads([standby])
        await virtual.until(lambda: any("podgroups/g" in path for path in standby.way.sent))
        await standby.kill()
        await live.server.close()

    virtual.run(main())
