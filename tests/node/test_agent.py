"""The agent of a node, on the embedded API server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import msgspec

from subak.dialects import mark
from subak.model import manifest
from subak.node.machine import Machine
from tests.node.nodes import NODE, Rig, run
from tests.scheduler.live import Answering
from tests.support.custom import DEVICE
from tests.support.machines import INTERPRETER, machine
from tinykube.resource import LEASES, NODES
from tinykube.transport import Request, Response

SLICE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}


def p40(*unhealthy: int, count: int = 2, speaks: tuple[str, ...] = ("hami", "volcano")) -> Machine:
    """A node with cards of 23,040 MiB."""
    cards = {"count": count, "unhealthy": list(unhealthy)}
    return machine("koordinator", name=NODE, speaks=list(speaks), cards=cards)


def test_a_node_says_what_its_cards_are_in_every_dialect() -> None:
    async def story(rig: Rig) -> None:
        assert rig.capacity == {"nvidia.com/gpu": "20", "volcano.sh/gpu-memory": "46080", "volcano.sh/gpu-number": "2"}
        assert rig.annotations["subak.io/agent"] == "nri"
        assert len(json.loads(rig.annotations["hami.io/node-nvidia-register"])) == 2
        assert rig.labels["subak.io/nvidia-model"] == "NVIDIA-Tesla-P40"
        assert "gpu" not in rig.labels, "HAMi's chart would run its own agent here"
        lease = await rig.lease()
        assert lease is not None
        assert (lease["metadata"]["name"], lease["spec"]["leaseDurationSeconds"]) == (NODE, 40)
        assert "subak.io/agent" in lease["metadata"]["labels"]

    run(story, p40())


def test_nothing_is_said_before_containers_can_be_given_cards() -> None:
    async def story(rig: Rig) -> None:
        rig.runtime.working = False
        rig.start()
        await rig.until(lambda: rig.agent.advertiser.seen and bool(rig.agent.arbiter.machine.devices))
        assert rig.capacity == {}
        assert not rig.agent.readiness()["ready"]
        rig.runtime.working = True
        await rig.until_said()
        assert rig.capacity["nvidia.com/gpu"] == "20"

    run(story, p40(), start=False)


def test_an_agent_that_ends_takes_back_what_it_said_and_nothing_else() -> None:
    async def story(rig: Rig) -> None:
        before = json.dumps(rig.node["metadata"].get("labels"))
        await rig.annotate(theirs="stays")
        rig.start()
        await rig.until_said()
        await rig.run_pod("a", SLICE, p40())
        await rig.until(lambda: len(rig.agent.arbiter.held()) == 1)
        await rig.end()
        assert rig.capacity == {}, "removed, not zeroed: a restarted kubelet would fail the pod that runs"
        assert rig.annotations == {"theirs": "stays"}
        assert json.dumps(rig.node["metadata"].get("labels") or None) == before
        assert await rig.lease() is None

    run(story, p40(), start=False)


def test_schedulers_see_the_nodes_own_cards_under_our_mark_or_none_after_each_write() -> None:
    async def story(rig: Rig) -> None:
        seen: list[list[str]] = []

        async def look(request: Request, answer: Answering) -> Response:
            response = await answer()
            if request.method != "GET":
                node = msgspec.convert(rig.node, manifest.Node)
                device = rig.live.store.get(DEVICE, "", NODE)
                known = None if device is None else msgspec.convert(device, manifest.Device)
                digest, _ = INTERPRETER.node(node, known)
                assert mark.marked(node) or not digest.devices, f"after {request.method} {request.path}"
                seen.append([each.id for each in digest.devices])
            return response

        rig.live.way.disturb = look
        rig.start()
        await rig.until_said()
        await rig.end()
        own = [each.id for each in full.devices]
        assert own in seen
        assert seen[-1] == []
        assert [each for each in seen if each not in ([], own)] == [], "cards with other names"

    full = p40(speaks=("hami", "volcano", "koordinator"))
    run(story, full, start=False)


def test_a_new_agent_takes_over_what_a_killed_one_said() -> None:
    async def story(rig: Rig) -> None:
        await rig.kill()
        rig.cards.become(p40(count=1))
        rig.start()
        await rig.until_said()
        assert rig.capacity == {"nvidia.com/gpu": "10", "volcano.sh/gpu-memory": "23040", "volcano.sh/gpu-number": "1"}
        await rig.end()
        assert rig.capacity == {}
        assert rig.annotations == {}

    run(story, p40())


def test_what_kubelet_or_anybody_resets_is_put_back() -> None:
    async def story(rig: Rig) -> None:
        await rig.set_amounts(**{"nvidia.com/gpu": "0", "volcano.sh/gpu-memory": None})
        await rig.until(lambda: rig.capacity.get("nvidia.com/gpu") == "20")
        await rig.until(lambda: rig.capacity.get("volcano.sh/gpu-memory") == "46080")
        await rig.annotate(**{"subak.io/agent": None, "hami.io/node-nvidia-register": "[]"})
        await rig.until(lambda: rig.annotations.get("subak.io/agent") == "nri")
        await rig.until(lambda: len(json.loads(rig.annotations["hami.io/node-nvidia-register"])) == 2)

    run(story, p40())


def test_a_writer_that_insists_is_named_and_not_fought_for_ever() -> None:
    async def story(rig: Rig) -> None:
        for _ in range(5):
            await rig.set_amounts(**{"nvidia.com/gpu": "7"})
            await rig.until(lambda: rig.capacity["nvidia.com/gpu"] == "20")
        await rig.set_amounts(**{"nvidia.com/gpu": "7"})
        await rig.until(lambda: bool(rig.agent.readiness()["trouble"]))
        (trouble,) = rig.agent.readiness()["trouble"]
        assert "somebody else keeps setting nvidia.com/gpu to 7, where this agent has 20" in trouble
        assert rig.capacity["nvidia.com/gpu"] == "7"
        await rig.set_amounts(**{"volcano.sh/gpu-number": "7"})
        await rig.until(lambda: rig.capacity["volcano.sh/gpu-number"] == "2")

    run(story, p40())


def test_a_broken_card_leaves_both_amounts_except_for_what_is_held_of_it() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_pod("a", SLICE, p40(1))  # which leaves it only the first card
        await rig.until(lambda: bool(rig.agent.arbiter.held()))
        rig.cards.become(p40(0))
        await rig.until(lambda: rig.capacity["nvidia.com/gpu"] == "11")
        assert rig.capacity["volcano.sh/gpu-memory"] == str(23040 + 1000)
        assert [each["healthy"] for each in rig.agent.readiness()["cards"]] == [False, True]
        await rig.live.delete("a")
        await rig.until(lambda: rig.capacity["nvidia.com/gpu"] == "10")
        rig.cards.become(p40())
        await rig.until(lambda: rig.capacity["nvidia.com/gpu"] == "20")

    run(story, p40())


def test_kubelet_finds_what_running_pods_ask_for_even_of_a_card_that_is_gone() -> None:
    async def story(rig: Rig) -> None:
        for number in range(12):
            await rig.run_pod(f"p{number}", SLICE, p40(number % 2))
        rig.cards.become(p40(count=1))
        rig.start()
        await rig.until_said()
        await rig.until(lambda: rig.capacity["nvidia.com/gpu"] == "12")

    run(story, p40(), start=False)


def test_without_a_healthy_card_an_amount_is_removed_and_not_zero() -> None:
    async def story(rig: Rig) -> None:
        rig.cards.become(p40(0, 1))
        await rig.until(lambda: rig.capacity == {})
        assert [each.get("health", False) for each in json.loads(rig.annotations["hami.io/node-nvidia-register"])] == [
            False,
            False,
        ]

    run(story, p40())


def test_a_driver_that_fails_makes_all_cards_broken() -> None:
    async def story(rig: Rig) -> None:
        rig.cards.become(None, "the driver failed")
        await rig.until(lambda: rig.capacity == {})
        assert rig.agent.readiness()["notes"] == ["the driver failed"]
        rig.cards.become(p40())
        await rig.until(lambda: rig.capacity.get("nvidia.com/gpu") == "20")

    run(story, p40())


def test_a_node_without_cards_says_nothing_and_is_ready() -> None:
    async def story(rig: Rig) -> None:
        assert rig.capacity == {}
        assert rig.annotations == {}
        assert await rig.lease() is None

    run(story, None)


def test_the_lease_ends_when_the_runtime_is_away() -> None:
    async def story(rig: Rig) -> None:
        rig.runtime.working = False
        rig.runtime.trouble = ["the container runtime is away"]
        said = rig.agent.readiness()
        assert (said["ready"], said["trouble"]) == (False, ["the container runtime is away"])
        lease = await rig.lease()
        assert lease is not None
        stamp = lease["spec"]["renewTime"]
        # A renewal is due every ten seconds: nobody makes one now.
        assert not rig.agent._able()
        assert (await rig.live.client.get(LEASES, NODE, "subak-system"))["spec"]["renewTime"] == stamp

    run(story, p40())


def test_cards_that_a_vendors_own_agent_serves_are_left_to_it() -> None:
    async def story(rig: Rig) -> None:
        await rig.set_amounts(**{"nvidia.com/gpu": "8"})
        rig.start()
        await rig.until(lambda: bool(rig.agent.readiness()["left_to_others"]))
        await rig.until(lambda: bool(rig.agent.readiness()["ready"]))
        assert rig.capacity == {"nvidia.com/gpu": "8"}
        assert rig.annotations == {}
        (sentence,) = rig.agent.readiness()["left_to_others"]
        assert "capacity has nvidia.com/gpu: 8, which this agent did not write: hami's own agent serves" in sentence
        # Kubelet sets the amount to 0 when the plugin has been gone for some minutes.
        await rig.set_amounts(**{"nvidia.com/gpu": "0"})
        await rig.until(lambda: rig.capacity["nvidia.com/gpu"] == "20")
        assert rig.agent.readiness()["left_to_others"] == []

    run(story, p40(), start=False)


def test_what_an_administrator_labelled_stays() -> None:
    async def story(rig: Rig) -> None:
        label = {"koordinator.sh/gpu-isolation-provider": "theirs"}
        await rig.live.client.patch(NODES, NODE, "", {"metadata": {"labels": label}})
        rig.start()
        await rig.until_said()
        assert rig.labels["koordinator.sh/gpu-isolation-provider"] == "theirs"
        await rig.end()
        assert rig.labels["koordinator.sh/gpu-isolation-provider"] == "theirs"

    run(story, p40(speaks=("koordinator", "hami")), start=False)


def test_a_scheduler_that_asks_whether_the_agent_lives_is_answered() -> None:
    async def story(rig: Rig) -> None:
        assert "hami.io/node-handshake" not in rig.annotations
        await rig.annotate(**{"hami.io/node-handshake": "Requesting_2026-11-16 08:00:00"})
        await rig.until(lambda: rig.annotations["hami.io/node-handshake"].startswith("Reported "))
        await rig.end()
        assert rig.annotations == {}

    run(story, p40())


def test_a_pod_that_has_its_cards_is_told_so_as_the_vendors_agents_do() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_pod("a", SLICE, p40())
        await rig.until(lambda: rig.live.pod("a")["metadata"]["annotations"].get("hami.io/bind-phase") == "success")

    run(story, p40())


def test_a_pod_that_ends_gives_its_cards_back() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_pod("a", SLICE, p40())
        await rig.run_pod("b", SLICE, p40())
        await rig.until(lambda: sum(each.slots for each in rig.agent.arbiter.held().values()) == 2)
        await rig.live.finish("a")
        await rig.live.delete("b")
        await rig.until(lambda: not rig.agent.arbiter.held())

    run(story, p40())


def test_a_node_that_is_not_there_is_named() -> None:
    async def story(rig: Rig) -> None:
        await rig.live.client.delete(NODES, NODE)
        await rig.until(lambda: bool(rig.agent.readiness()["trouble"]))
        assert "node n1 is not there: kubelet has not registered it" in rig.agent.readiness()["trouble"][0]
        await rig.live.add_node(NODE, {"cpu": "4"})
        await rig.until(lambda: rig.node["status"]["capacity"].get("nvidia.com/gpu") == "20")

    run(story, p40())


def test_cards_keep_their_numbers_while_pods_hold_some() -> None:
    async def story(rig: Rig) -> None:
        first, second = p40().devices
        await rig.run_pod("a", SLICE, p40(0))
        await rig.until(lambda: second.id in rig.agent.arbiter.held())
        rig.cards.become(replace(p40(), devices=(msgspec.structs.replace(second, index=0),)))
        await rig.until(lambda: rig.capacity["nvidia.com/gpu"] == "10")
        cards = rig.agent.arbiter.machine.devices
        assert [(each.id, each.index, each.healthy) for each in cards] == [
            (first.id, 0, False),
            (second.id, 1, True),
        ]

    run(story, p40())


def test_a_new_agent_books_running_pods_on_the_cards_that_their_records_name() -> None:
    async def story(rig: Rig) -> None:
        await rig.run_pod("a", {"volcano.sh/gpu-memory": "3000"}, p40(0))
        await rig.run_pod("b", SLICE, p40(1))
        rig.start()
        await rig.until_said()
        first, second = p40().devices
        await rig.until(lambda: len(rig.agent.arbiter.held()) == 2)
        held = rig.agent.arbiter.held()
        assert (held[first.id].memory_bytes >> 20, held[second.id].memory_bytes >> 20) == (1000, 3000)

    run(story, p40(), start=False)


def test_the_lock_of_a_pod_that_has_its_cards_is_released() -> None:
    async def story(rig: Rig) -> None:
        lock = "hami.io/mutex.lock"
        await rig.annotate(**{lock: "2026-11-16T08:00:00Z,default,a"})
        await rig.until(lambda: lock in (rig.agent.advertiser.node or manifest.Node()).annotations)
        await rig.run_pod("a", SLICE, p40())
        await rig.until(lambda: lock not in rig.annotations)

    run(story, p40())


def test_an_agent_that_leaves_kubelet_first_serves_the_pods_that_are_bound_and_lets_no_more_be() -> None:
    async def story(rig: Rig) -> None:
        rig.start(way=mark.PLUGIN)
        await rig.until_said()
        rig.runtime.owing = True
        ending = asyncio.create_task(rig.end())
        while await rig.lease() is not None:
            await asyncio.sleep(0.01)
        assert rig.capacity, "it is still there for those that kubelet has yet to admit"
        assert not ending.done()
        rig.runtime.owing = False
        await ending
        assert rig.capacity == {}

    run(story, p40(), start=False)
