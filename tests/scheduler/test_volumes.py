"""Claims get their volumes before the pod is bound, whatever goes wrong."""

from __future__ import annotations

import asyncio

from subak.model.volume import BOUND_BY_CONTROLLER, CLAIMS, VOLUMES
from subak.scheduler import volumes
from subak.scheduler.service import UNDER_WAY
from tests.scheduler.live import Answering, refuse
from tests.scheduler.storage import Stored, on_writes, storing
from tests.support import virtual
from tests.support.volumes import LOCAL, WAITING, claim, persistent_volume
from tinykube.transport import Request, Response


async def reserved(live: Stored, volume: str, seconds: float = 30.0) -> str:
    """Wait until a volume is meant for a claim."""
    async with asyncio.timeout(seconds):
        while (found := await live.owner(volume)) is None:
            await asyncio.sleep(0.1)
    return found


async def selected(live: Stored, name: str, seconds: float = 30.0) -> str:
    """Wait until a node is selected for a claim."""
    async with asyncio.timeout(seconds):
        while (found := await live.selected(name)) is None:
            await asyncio.sleep(0.1)
    return found


def test_a_local_volume_is_given_to_the_claim_before_the_pod_is_bound() -> None:
    async def story() -> None:
        async with storing(claim("data", class_name=LOCAL), persistent_volume("disk", host="n2")) as live:
            await live.ask("pod", "data")
            assert await reserved(live, "disk") == "data"
            disk, data = await live.volume("disk"), await live.claim("data")
            assert disk["spec"]["claimRef"]["uid"] == data["metadata"]["uid"]
            assert disk["metadata"]["annotations"] == {BOUND_BY_CONTROLLER: "yes"}
            await asyncio.sleep(60)
            assert live.placed() == {}, "the claim is not bound yet"
            await live.complete("data", "disk")
            await live.until(lambda: live.placed() == {"pod": "n2"}, 5)
            assert live.way.bindings["pod"] == 1

    virtual.run(story())


def test_a_volume_that_its_user_meant_for_the_claim_gets_only_the_uid() -> None:
    async def story() -> None:
        disk = persistent_volume("disk", host="n2", claim="data", uid="", phase="Available")
        async with storing(claim("data", class_name=LOCAL), disk) as live:
            await live.ask("pod", "data")
            async with asyncio.timeout(30):
                while not (await live.volume("disk"))["spec"]["claimRef"].get("uid"):
                    await asyncio.sleep(0.1)
            assert "annotations" not in (await live.volume("disk"))["metadata"]
            await live.delete("pod")
            async with asyncio.timeout(30):
                while (await live.volume("disk"))["spec"]["claimRef"].get("uid"):
                    await asyncio.sleep(0.1)
            assert await live.owner("disk") == "data", "what the user wrote stays"

    virtual.run(story())


def test_a_new_volume_is_made_for_the_chosen_node() -> None:
    async def story() -> None:
        async with storing(claim("data"), claim("more")) as live:
            await live.ask("pod", "data", "more")
            for name in ("data", "more"):
                assert await selected(live, name) == "n1"
                await asyncio.sleep(60)
                assert live.placed() == {}
                await live.add(persistent_volume(f"of-{name}", class_name=WAITING, host="n1", claim=name))
                await live.complete(name, f"of-{name}")
            await live.until(lambda: live.placed() == {"pod": "n1"}, 5)

    virtual.run(story())


def test_a_pod_whose_volume_cannot_be_made_is_decided_again() -> None:
    async def story() -> None:
        async with storing(claim("data")) as live:
            await live.ask("pod", "data")
            assert await selected(live, "data") == "n1"
            await live.client.patch(CLAIMS, "data", "default", {"metadata": {"labels": {"noise": "1"}}})
            await live.give_up("data")
            assert await selected(live, "data") == "n1", "once more, after a pause"
            failures = [text for reason, text in await live.events("pod") if reason == "FailedScheduling"]
            assert any("no volume could be provisioned for claim default/data on node n1" in each for each in failures)

    virtual.run(story())


def test_pods_that_wait_for_volumes_do_not_hold_up_others() -> None:
    async def story() -> None:
        count = UNDER_WAY + 4
        async with storing(*(claim(f"data-{at}") for at in range(count))) as live:
            for at in range(count):
                await live.ask(f"pod-{at}", f"data-{at}")
            assert await selected(live, f"data-{count - 1}")
            await live.create("plain", {})
            await live.until(lambda: "plain" in live.placed(), 5)

    virtual.run(story())


def test_a_claim_that_is_never_bound_is_as_it_was_and_the_pod_waits_on() -> None:
    async def story() -> None:
        disk = persistent_volume("disk", host="n2")
        async with storing(claim("data"), claim("local", class_name=LOCAL), disk) as live:
            await live.ask("pod", "data", "local")
            assert await selected(live, "data") == "n2"
            assert await reserved(live, "disk") == "local"
            await asyncio.sleep(volumes.TIMEOUT - 10)
            assert await live.owner("disk") == "local"
            await asyncio.sleep(10.5)
            assert await live.owner("disk") is None
            assert await live.selected("data") is None
            assert BOUND_BY_CONTROLLER not in (await live.volume("disk"))["metadata"].get("annotations", {})
            assert await selected(live, "data") == "n2", "it is tried again"

    virtual.run(story())


def test_a_pod_that_is_deleted_leaves_the_volume_to_others() -> None:
    async def story() -> None:
        claims = claim("one", class_name=LOCAL), claim("two", class_name=LOCAL)
        async with storing(*claims, persistent_volume("disk", host="n2")) as live:
            await live.ask("first", "one")
            assert await reserved(live, "disk") == "one"
            await live.ask("second", "two")
            await live.until(lambda: "no volume of class local fits" in live.condition("second").get("message", ""))
            await live.delete("first")
            async with asyncio.timeout(30):
                while await live.owner("disk") != "two":
                    await asyncio.sleep(0.1)
            await live.complete("two", "disk")
            await live.until(lambda: live.placed() == {"second": "n2"}, 5)

    virtual.run(story())


def test_a_volume_that_changed_in_the_meantime_is_written_again() -> None:
    async def story() -> None:
        async with storing(claim("data", class_name=LOCAL), persistent_volume("disk", host="n2")) as live:
            live.way.disturb = on_writes(VOLUMES, refuse(409, "Conflict"))
            await live.ask("pod", "data")
            assert await reserved(live, "disk") == "data"
            await live.complete("data", "disk")
            await live.until(lambda: live.placed() == {"pod": "n2"}, 5)

    virtual.run(story())


def test_a_volume_that_somebody_else_took_is_left_to_them() -> None:
    async def story() -> None:
        claims = claim("data", class_name=LOCAL), claim("other", class_name=LOCAL)
        async with storing(*claims, persistent_volume("disk", host="n2")) as live:
            other = (await live.claim("other"))["metadata"]["uid"]

            async def taken(request: Request, answer: Answering) -> Response:
                if request.method == "PATCH" and "/persistentvolumes/" in request.path:
                    live.way.disturb = None
                    reference = {"namespace": "default", "name": "other", "uid": other}
                    await live.client.patch(VOLUMES, "disk", "", {"spec": {"claimRef": reference}})
                return await answer()

            live.way.disturb = taken
            await live.ask("pod", "data")
            await live.until(lambda: "no volume of class local fits" in live.condition("pod").get("message", ""))
            assert await live.owner("disk") == "other"

    virtual.run(story())


def test_an_answer_that_is_lost_does_no_harm() -> None:
    async def story() -> None:
        async with storing(claim("data", class_name=LOCAL), persistent_volume("disk", host="n2")) as live:
            live.way.disturb = on_writes(VOLUMES, TimeoutError("no answer"), carry_out=True)
            await live.ask("pod", "data")
            assert await reserved(live, "disk") == "data"
            await live.complete("data", "disk")
            await live.until(lambda: live.placed() == {"pod": "n2"}, 5)

    virtual.run(story())


def test_a_failure_between_two_writes_undoes_the_first() -> None:
    async def story() -> None:
        disks = [persistent_volume("disk-1", host="n2"), persistent_volume("disk-2", host="n2")]
        async with storing(claim("one", class_name=LOCAL), claim("two", class_name=LOCAL), *disks) as live:
            broken = [refuse(500)] * volumes.TRIES
            live.way.disturb = on_writes(VOLUMES, None, *broken)
            await live.ask("pod", "one", "two")
            first = await reserved(live, "disk-1")
            async with asyncio.timeout(30):
                while await live.owner("disk-1") is not None:
                    await asyncio.sleep(0.01)
            assert await live.owner("disk-2") is None
            assert await reserved(live, "disk-1") == first, "then it is tried again"
            second = await reserved(live, "disk-2")
            assert {first, second} == {"one", "two"}
            await live.complete(first, "disk-1")
            await live.complete(second, "disk-2")
            await live.until(lambda: live.placed() == {"pod": "n2"}, 5)

    virtual.run(story())


def test_a_scheduler_that_was_killed_before_the_binding_goes_on_where_it_was() -> None:
    async def story() -> None:
        disks = [persistent_volume("disk-1", host="n1"), persistent_volume("disk-2", host="n2")]
        async with storing(claim("local", class_name=LOCAL), claim("new"), *disks) as live:
            await live.ask("pod", "local", "new")
            assert await selected(live, "new") == "n1"
            await live.kill()
            await live.client.patch(VOLUMES, "disk-2", "", {"metadata": {"labels": {"noise": "1"}}})
            await live.start()
            await live.service.ready.wait()
            await asyncio.sleep(30)
            assert await live.selected("new") == "n1"
            assert await live.owner("disk-1") == "local"
            assert await live.owner("disk-2") is None
            await live.complete("local", "disk-1")
            await live.add(persistent_volume("made", class_name=WAITING, host="n1", claim="new"))
            await live.complete("new", "made")
            await live.until(lambda: live.placed() == {"pod": "n1"}, 5)
            assert live.way.bindings["pod"] == 1

    virtual.run(story())


def test_a_volume_that_is_made_elsewhere_sends_the_pod_there() -> None:
    async def story() -> None:
        async with storing(claim("data")) as live:
            await live.ask("pod", "data")
            assert await selected(live, "data") == "n1"
            await live.add(persistent_volume("new", class_name=WAITING, host="n2", claim="data"))
            await live.complete("data", "new")
            await live.until(lambda: live.placed() == {"pod": "n2"})

    virtual.run(story())


def test_a_pod_whose_claim_comes_later_is_woken_by_it() -> None:
    async def story() -> None:
        async with storing(persistent_volume("disk", host="n2", claim="data", uid="")) as live:
            await live.ask("pod", "data")
            await live.until(lambda: "claim default/data is not there" in live.condition("pod").get("message", ""))
            await live.add(claim("data", class_name=LOCAL))
            async with asyncio.timeout(30):
                while not (await live.volume("disk"))["spec"]["claimRef"].get("uid"):
                    await asyncio.sleep(0.1)
            await live.complete("data", "disk")
            await live.until(lambda: live.placed() == {"pod": "n2"}, 5)

    virtual.run(story())
