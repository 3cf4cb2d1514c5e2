"""Queues say how they stand, at a bounded rate; `default` and `root` are there; states are Volcano's while it lives."""

from __future__ import annotations

import asyncio

import pytest

from subak.model.group import QUEUES, VOLCANO_GROUPS
from subak.scheduler.queues import state_after
from tests.scheduler.live import Answering, Json, living, refuse
from tests.scheduler.shows import Stage, object_of, play, stands
from tests.support import virtual
from tests.support.custom import QUEUE
from tinykube.client import MERGE_PATCH
from tinykube.transport import Request, Response

PATH = "/apis/scheduling.volcano.sh/v1beta1/queues"


def test_a_queue_says_how_many_groups_it_has_in_each_phase_and_what_they_hold() -> None:
    async def story(stage: Stage) -> None:
        await stage.add_queue("a")
        await stage.queues.show(stands("a", {"Pending": 2, "Running": 1}, {"cpu": "4", "volcano.sh/gpu-memory": "8"}))
        await virtual.until(lambda: stage.feed.queues.objects["a"].status is not None)
        assert stage.queue("a")["status"] == {
            "state": "Open",
            "pending": 2,
            "running": 1,
            "allocated": {"cpu": "4", "volcano.sh/gpu-memory": "8"},
        }
        await stage.queues.show(stands("a", {"Running": 3}, {"cpu": "6"}))
        assert stage.queue("a")["status"] == {
            "state": "Open",
            "pending": 0,
            "running": 3,
            "allocated": {"cpu": "6"},
        }

    play(story)


def test_a_busy_queue_is_written_once_a_second_and_ends_with_the_truth() -> None:
    async def story(stage: Stage) -> None:
        await stage.add_queue("a")
        for number in range(100):
            stage.begin(stage.queues.show(stands("a", {"Running": number})))
            await asyncio.sleep(0.05)
        await virtual.until(lambda: stage.queue("a")["status"].get("running") == 99)
        assert len(stage.way.writes) <= 8

    play(story)


def test_while_volcanos_controllers_live_only_what_is_held_is_written() -> None:
    async def story(stage: Stage) -> None:
        await stage.add_queue("a")
        stage.queues.by_volcano = True
        await stage.queues.show(stands("a", {"Running": 3}, {"cpu": "6"}))
        assert stage.queue("a")["status"] == {"allocated": {"cpu": "6"}}
        stage.queues.by_volcano = False
        await stage.queues.show_again()
        assert stage.queue("a")["status"] == {"allocated": {"cpu": "6"}, "state": "Open", "running": 3}

    play(story)


@pytest.mark.parametrize(
    ("state", "empty", "after"),
    [
        ("", True, "Open"),
        ("", False, "Open"),
        ("Open", True, "Open"),
        ("Closing", False, "Closing"),
        ("Closing", True, "Closed"),
        ("Closed", False, "Closed"),
        ("Unknown", True, "Unknown"),
    ],
)
def test_states_follow_one_another(state: str, empty: bool, after: str) -> None:
    assert state_after(state, empty) == after


def test_a_closing_queue_waits_for_pods_by_themselves_too() -> None:
    async def story(stage: Stage) -> None:
        await stage.add_queue("a")
        await stage.client.patch_status(QUEUES, "a", "", {"state": "Closing"}, kind=MERGE_PATCH)
        await stage.queues.show(stands("a", {}, {"pods": "1"}))
        assert stage.queue("a")["status"]["state"] == "Closing"
        await stage.queues.show(stands("a", {}))
        assert stage.queue("a")["status"]["state"] == "Closed"

    play(story)


def test_what_an_administrator_sets_meanwhile_is_not_set_back() -> None:
    async def story(stage: Stage) -> None:
        await stage.add_queue("a")

        async def meanwhile(request: Request, answer: Answering) -> Response:
            if request.method == "PATCH" and len(stage.way.writes) == 1:
                await stage.client.patch_status(QUEUES, "a", "", {"state": "Closed"}, kind=MERGE_PATCH)
            return await answer()

        stage.way.disturb = meanwhile
        await stage.queues.show(stands("a", {"Pending": 1}))
        assert stage.queue("a")["status"] == {"state": "Closed", "pending": 1}

    play(story)


def test_default_and_root_are_there_and_come_back() -> None:
    async def story() -> None:
        async with living() as live:
            await live.until(
                lambda: {each["metadata"]["name"] for each in live.store.list(QUEUE)} == {"default", "root"}
            )
            specs = {each["metadata"]["name"]: each["spec"] for each in live.store.list(QUEUE)}
            assert specs["root"]["reclaimable"] is False
            assert (specs["default"]["weight"], specs["default"]["reclaimable"]) == (1, True)
            await live.client.delete(QUEUES, "default")
            await live.until(lambda: any(each["metadata"]["name"] == "default" for each in live.store.list(QUEUE)))

    virtual.run(story())


def test_a_queue_without_jobs_opens_counts_its_groups_and_closes_when_they_are_gone() -> None:
    async def story() -> None:
        async with living() as live:

            def status() -> Json:
                found = live.store.get(QUEUE, "", "q")
                return {} if found is None else dict(found.get("status", {}))

            await live.client.create(QUEUES, object_of(QUEUES, "q", {}))
            await live.until(lambda: status().get("state") == "Open")
            await live.client.create(VOLCANO_GROUPS, object_of(VOLCANO_GROUPS, "g", {"queue": "q"}), "default")
            await live.until(lambda: status().get("pending", 0) + status().get("inqueue", 0) == 1)
            await live.client.patch_status(QUEUES, "q", "", {"state": "Closing"}, kind=MERGE_PATCH)
            await asyncio.sleep(5)
            assert status()["state"] == "Closing"
            await live.client.delete(VOLCANO_GROUPS, "g", "default")
            await live.until(lambda: status()["state"] == "Closed")
            assert status().get("pending", 0) + status().get("inqueue", 0) == 0
            await live.client.delete(QUEUES, "q")
            await live.client.create(QUEUES, object_of(QUEUES, "q", {}))
            await live.until(lambda: status().get("state") == "Open")

    virtual.run(story())


def test_queues_that_are_there_are_left_as_they_are() -> None:
    async def story(stage: Stage) -> None:
        await stage.add_queue("default", weight=7)
        await stage.queues.complete()
        assert stage.queue("default")["spec"]["weight"] == 7
        assert stage.way.writes == [f"POST {PATH}"]

    play(story)


def test_a_server_without_queues_is_not_asked_to_make_some() -> None:
    async def story(stage: Stage) -> None:
        stage.feed.queues.present = False
        await stage.queues.complete()
        assert not stage.way.writes

    play(story)


def test_a_queue_that_cannot_be_made_yet_is_made_later() -> None:
    async def story(stage: Stage) -> None:
        troubles = [refuse(500), refuse(404), refuse(500)]

        async def disturb(request: Request, answer: Answering) -> Response:
            return troubles.pop() if request.method == "POST" and troubles else await answer()

        stage.way.disturb = disturb
        await stage.queues.complete()
        assert {each["metadata"]["name"] for each in stage.store.list(QUEUE)} == {"default", "root"}

    play(story)
