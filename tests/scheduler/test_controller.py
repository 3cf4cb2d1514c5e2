"""Replicas of the controller: one decides, others take over, and no pod is bound twice on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.scheduler.configuration import BadConfig
from subak.scheduler.controller import LostLease
from tests.scheduler.live import MEMORY, Answering, Live
from tests.scheduler.replicas import Replica, cluster, lease, renew, until_one_leads
from tests.support import virtual
from tests.support.fuzz import examples
from tinykube.resource import CONFIG_MAPS, LEASES
from tinykube.transport import Request, Response

HALF = {MEMORY: "500"}


def run(story: Callable[[Live], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        live = await cluster()
        try:
            await story(live)
        finally:
            await live.server.close()

    virtual.run(main())


def test_one_replica_decides_and_the_other_only_keeps_up() -> None:
    async def story(live: Live) -> None:
        one = Replica(live, "one")
        await until_one_leads([one])
        two = Replica(live, "two")
        await virtual.until(lambda: two.knows_all)
        await live.create("a", HALF, schedulerName="subak")
        await live.until(lambda: "a" in live.placed())
        await live.create("b", {MEMORY: "900"}, schedulerName="subak")
        await live.until(lambda: live.condition("b").get("status") == "False")
        await asyncio.sleep(60)
        assert one.leads
        assert not two.leads
        assert two.way.sent == []
        service = two.controller.service
        assert service is not None
        assert set(service.core.snapshot.bookings) == {"default/a"}, "its ledger is as warm as the leader's"
        assert len(service.core) == 1
        await one.kill()
        await two.kill()

    run(story)


def test_the_standby_takes_over_and_what_was_bound_stays_bound_once() -> None:
    async def story(live: Live) -> None:
        one = Replica(live, "one")
        await until_one_leads([one])
        two = Replica(live, "two")
        await virtual.until(lambda: two.knows_all)
        await live.create("a", HALF, schedulerName="subak")
        await live.until(lambda: "a" in live.placed())
        await one.kill()
        await live.create("b", HALF, schedulerName="subak")
        await live.create("c", HALF, schedulerName="subak")
        await until_one_leads([two])
        await live.until(lambda: "b" in live.placed() and live.condition("c").get("status") == "False")
        assert one.way.bindings + two.way.bindings == {"a": 1, "b": 1}
        assert (await lease(live.client))["leaseTransitions"] == 1
        await two.kill()

    run(story)


def test_a_new_leader_decides_only_after_it_has_seen_what_the_last_one_wrote() -> None:
    async def story(live: Live) -> None:
        one = Replica(live, "one")
        await until_one_leads([one])
        two = Replica(live, "two")
        await virtual.until(lambda: two.knows_all)
        two.way.holds = True  # the news of pods do not reach it
        await live.create("a", {MEMORY: "1000"}, schedulerName="subak")
        await live.until(lambda: "a" in live.placed())
        await live.create("b", {MEMORY: "1000"}, schedulerName="subak")
        await one.kill()
        await until_one_leads([two])
        await live.until(lambda: live.condition("b").get("status") == "False")
        assert live.placed() == {"a": "n1"}, "the one card of the node is not promised twice"
        assert two.way.bindings == {}
        await two.kill()

    run(story)


def test_who_leads_from_the_start_lists_pods_once() -> None:
    async def story(live: Live) -> None:
        one = Replica(live, "one")
        await until_one_leads([one])
        assert one.way.listed.count("/api/v1/pods") == 1
        await one.kill()

    run(story)


def test_a_replica_that_is_asked_to_end_finishes_its_bindings_and_gives_the_lease_back() -> None:
    async def story(live: Live) -> None:
        one = Replica(live, "one")
        await until_one_leads([one])
        two = Replica(live, "two")
        await virtual.until(lambda: two.knows_all)

        async def slow(request: Request, answer: Answering) -> Response:
            if request.path.endswith("/binding"):
                await asyncio.sleep(3)
            return await answer()

        one.way.disturb = slow
        await live.create("a", HALF, schedulerName="subak")
        await virtual.until(lambda: one.way.bindings["a"] == 1)
        await one.stop()
        assert live.placed() == {"a": "n1"}
        assert (await lease(live.client))["holderIdentity"] == ""
        await virtual.until(lambda: two.leads, 8)
        assert two.way.bindings == {}
        await two.kill()

    run(story)


def test_a_replica_that_loses_the_lease_ends_and_sends_nothing_more() -> None:
    async def story(live: Live) -> None:
        one = Replica(live, "one")
        await until_one_leads([one])
        sent_late: list[str] = []

        async def stall(request: Request, answer: Answering) -> Response:
            """Nothing reaches the server, and it is noted what is sent after the time is over."""
            if request.method != "GET" and not one.controller._elector.left():
                sent_late.append(request.path)
            await asyncio.sleep(1e6)
            return await answer()

        one.way.disturb = stall
        await live.create("a", HALF, schedulerName="subak")
        with pytest.raises(LostLease, match="lease subak-system/subak-controller is lost"):
            await asyncio.wait_for(one.task, 30)
        assert one.way.bindings["a"] == 1
        assert sent_late == []
        assert live.placed() == {}

    run(story)


def test_a_name_whose_own_scheduler_lives_is_left_to_it_until_it_dies() -> None:
    async def story(live: Live) -> None:
        await renew(live.client, "hami-scheduler", "their-pod", 0)
        one = Replica(live, "one")
        await until_one_leads([one])
        await live.create("theirs", HALF, schedulerName="hami-scheduler")
        await live.create("ours", HALF, schedulerName="volcano")
        await live.until(lambda: "ours" in live.placed())
        for count in range(1, 12):
            await asyncio.sleep(10)
            await renew(live.client, "hami-scheduler", "their-pod", 10 * count)
        assert live.placed() == {"ours": "n1"}
        foreign = one.controller.served.foreign
        assert foreign == {"hami-scheduler": "its own scheduler holds lease kube-system/hami-scheduler (their-pod)"}
        await live.until(lambda: "theirs" in live.placed(), 20)
        assert one.controller.served.foreign == {}
        await one.kill()

    run(story)


def test_a_name_is_given_up_again_when_its_own_scheduler_comes_back() -> None:
    async def story(live: Live) -> None:
        one = Replica(live, "one")
        await until_one_leads([one])
        await live.create("waits", {MEMORY: "9000"}, schedulerName="koord-scheduler")
        await live.until(lambda: live.condition("waits").get("status") == "False")
        service = one.controller.service
        assert service is not None
        assert len(service.core) == 1
        await renew(live.client, "koord-scheduler", "their-pod", 0)
        await live.until(lambda: len(service.core) == 0)
        await live.client.patch(LEASES, "koord-scheduler", "kube-system", {"spec": {"holderIdentity": ""}})
        await live.until(lambda: len(service.core) == 1)
        await one.kill()

    run(story)


def test_the_device_config_of_the_cluster_is_in_force() -> None:
    async def story(live: Live) -> None:
        text = "nvidia:\n  resourceCountName: acme.com/gpu\n"
        body = {"metadata": {"name": "hami-scheduler-device"}, "data": {"device-config.yaml": text}}
        await live.client.create(CONFIG_MAPS, body, "subak-system")
        one = Replica(live, "one")
        await until_one_leads([one])
        service = one.controller.service
        assert service is not None
        assert "acme.com/gpu" in service.core.interpreter.resources
        await one.kill()

    run(story)


def test_a_device_config_that_cannot_be_read_is_named() -> None:
    async def story(live: Live) -> None:
        body = {"metadata": {"name": "hami-scheduler-device"}, "data": {"device-config.yaml": "nvidia: [1]"}}
        await live.client.create(CONFIG_MAPS, body, "subak-system")
        with pytest.raises(BadConfig, match="configmap subak-system/hami-scheduler-device: device-config.yaml: "):
            await Replica(live, "one").task

    run(story)


STEPS = st.lists(st.tuples(st.sampled_from(["kill", "stop", "hold", "pods", "wait"]), st.integers(0, 30)), max_size=12)


@examples(quick=8, ci=150)
@given(STEPS)
def test_whoever_is_killed_every_pod_is_bound_once_and_no_card_is_overcommitted(steps: list[tuple[str, int]]) -> None:
    async def story(live: Live) -> None:
        replicas = [Replica(live, "0"), Replica(live, "1")]
        everybody, made = list(replicas), 0
        for what, number in steps:
            at = number % 2
            match what:
                case "kill" | "stop":
                    await (replicas[at].kill() if what == "kill" else replicas[at].stop())
                    replicas[at] = Replica(live, str(len(everybody)))
                    everybody.append(replicas[at])
                case "hold":
                    replicas[at].way.holds = not replicas[at].way.holds
                case "pods":
                    for _ in range(number % 4):
                        await live.create(f"p{made}", {MEMORY: "300"}, schedulerName="subak")
                        made += 1
                case "wait":
                    await asyncio.sleep(number)
        for each in replicas:
            each.way.holds = False
        await until_one_leads(replicas)
        fit = min(made, 3)  # 900 of the 1,000 MiB of the only card
        await live.until(lambda: len(live.placed()) >= fit)
        await asyncio.sleep(30)
        assert len(live.placed()) == fit
        for each in replicas:
            await each.kill()

    run(story)
