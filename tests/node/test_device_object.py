"""Koordinator's Device object: the agent makes it, keeps it true, and takes it away; others' it leaves alone."""

from __future__ import annotations

from typing import Any

from subak.model.manifest import DEVICES
from tests.node.nodes import NODE, Rig, run
from tests.scheduler.live import Answering, refuse
from tests.support.custom import DEVICE
from tests.support.machines import machine
from tinykube.transport import Request, Response

P40 = machine("koordinator", name=NODE)


def found(rig: Rig) -> dict[str, Any] | None:
    return rig.live.store.get(DEVICE, "", NODE)


async def until(rig: Rig, healthy: list[bool]) -> None:
    """Wait until the object says this of the cards' health."""

    def says() -> bool:
        device = found(rig)
        return device is not None and [each["health"] for each in device["spec"]["devices"]] == healthy

    await rig.until(says)


def test_the_object_goes_with_its_node_and_with_the_agent() -> None:
    async def story(rig: Rig) -> None:
        await until(rig, [True, True])
        device = found(rig)
        assert device is not None
        (owner,) = device["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Node", rig.node["metadata"]["uid"])
        assert device["metadata"]["annotations"]["subak.io/agent"] == "nri"
        assert rig.capacity["koordinator.sh/gpu-core"] == "200"
        await rig.end()
        assert found(rig) is None

    run(story, P40)


def test_what_somebody_changes_or_deletes_is_put_back() -> None:
    async def story(rig: Rig) -> None:
        await until(rig, [True, True])
        await rig.live.client.patch(DEVICES, NODE, "", {"spec": {"devices": []}})
        await until(rig, [True, True])
        await rig.live.client.delete(DEVICES, NODE)
        await until(rig, [True, True])

    run(story, P40)


def test_a_broken_card_is_told() -> None:
    async def story(rig: Rig) -> None:
        rig.cards.become(machine("koordinator", name=NODE, cards={"unhealthy": [1]}))
        await until(rig, [True, False])
        await rig.until(lambda: rig.capacity["koordinator.sh/gpu-core"] == "100")

    run(story, P40)


def test_an_object_of_koordinators_own_agent_is_left_alone() -> None:
    async def story(rig: Rig) -> None:
        theirs = {
            "apiVersion": DEVICES.api_version,
            "kind": "Device",
            "metadata": {"name": NODE},
            "spec": {"devices": [{"type": "gpu", "id": "GPU-x", "health": True, "minor": 0}]},
        }
        await rig.live.client.create(DEVICES, theirs)
        rig.start()
        await rig.until_said()
        await rig.until(lambda: bool(rig.agent.readiness()["left_to_others"]))
        await rig.end()
        device = found(rig)
        assert device is not None
        assert [each["id"] for each in device["spec"]["devices"]] == ["GPU-x"]

    run(story, P40, start=False)


def test_a_cluster_without_the_kind_is_served_without_it() -> None:
    async def story(rig: Rig) -> None:
        async def unknown(request: Request, answer: Answering) -> Response:
            return refuse(404, "NotFound") if "koordinator" in request.path else await answer()

        rig.live.way.disturb = unknown
        rig.start()
        await rig.until_said()
        assert rig.capacity["koordinator.sh/gpu-core"] == "200"
        assert rig.agent.readiness()["trouble"] == []

    run(story, P40, start=False)
