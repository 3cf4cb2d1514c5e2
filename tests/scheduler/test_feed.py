"""What a server says of groups, queues and priorities becomes events, however malformed some of it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from subak.model.group import PRIORITY_CLASSES, QUEUES, VOLCANO_GROUPS
from subak.scheduler.messages import GroupGone, GroupSeen, PriorityClassGone, PriorityClassSeen, QueueGone, QueueSeen
from tests.scheduler.live import Answering, refuse
from tests.scheduler.shows import Stage, object_of, play
from tests.support import virtual
from tests.support.custom import POD_GROUP, QUEUE
from tinykube.transport import Request, Response


def seen(stage: Stage, *kinds: type) -> list[Any]:
    return [event for event in stage.events if isinstance(event, kinds)]


def test_groups_queues_and_priority_classes_come_change_and_go() -> None:
    async def story(stage: Stage) -> None:
        await stage.add_group("a", minMember=3, minTaskMember={"ps": 1}, queue="q", priorityClassName="high")
        await stage.add_queue("q", weight=3, capability={"cpu": 4})
        await stage.client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 7})
        await virtual.until(lambda: any(each.priority_class.value == 7 for each in seen(stage, PriorityClassSeen)))
        (group,) = (event.group for event in seen(stage, GroupSeen))
        assert (group.words, group.key, group.min_member, group.min_roles) == ("volcano", "default/a", 3, {"ps": 1})
        assert (group.queue, group.priority_class, group.phase) == ("q", "high", "")
        (queue,) = (event.queue for event in seen(stage, QueueSeen))
        assert (queue.name, queue.spec.weight, queue.spec.capability) == ("q", 3, {"cpu": 4})
        await stage.client.patch(VOLCANO_GROUPS, "a", "default", {"status": {"phase": "Running"}})
        await virtual.until(lambda: seen(stage, GroupSeen)[-1].group.phase == "Running")
        await stage.client.delete(VOLCANO_GROUPS, "a", "default")
        await stage.client.delete(QUEUES, "q")
        await stage.client.delete(PRIORITY_CLASSES, "high")
        await virtual.until(lambda: len(seen(stage, GroupGone, QueueGone, PriorityClassGone)) == 3)

    play(story)


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A definition of another version may let anything pass: here the store is written behind the server's back."""

    async def story(stage: Stage) -> None:
        specs: list[dict[str, Any]] = [
            {"minMember": "three"},
            {"minMember": [3]},
            {"minTaskMember": {"ps": "x"}},
            {"queue": 7},
        ]
        for number, spec in enumerate(specs):
            metadata = named(f"bad-{number}", "default")
            stage.store.create(POD_GROUP, object_of(VOLCANO_GROUPS, "", spec) | {"metadata": metadata})
        await virtual.until(lambda: caplog.text.count("podgroups.scheduling.volcano.sh default/bad-") == len(specs))
        stage.store.create(QUEUE, object_of(QUEUES, "bad", {"weight": "heavy"}) | {"metadata": named("bad", "")})
        await virtual.until(lambda: "queues.scheduling.volcano.sh bad" in caplog.text)
        await stage.add_group("good")
        await stage.add_queue("good")
        assert [event.group.key for event in seen(stage, GroupSeen)] == ["default/good"]
        assert [event.queue.name for event in seen(stage, QueueSeen)] == ["good"]

    play(story)
    assert "cannot be read and is left as it was" in caplog.text


def named(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "uid": f"u-{name}", **({"namespace": namespace} if namespace else {})}


def test_kinds_that_come_later_are_noticed_and_those_that_go_are_missed() -> None:
    async def main() -> None:
        stage = Stage()
        absent = [True]

        async def disturb(request: Request, answer: Answering) -> Response:
            return refuse(404) if absent and "volcano" in request.path else await answer()

        stage.way.disturb = disturb
        stage.begin(stage.feed.run())
        await stage.feed.complete()
        queues = stage.feed.queues
        before = queues.present
        await stage.client.create(QUEUES, object_of(QUEUES, "q", {}))
        await asyncio.sleep(60)
        assert not seen(stage, QueueSeen)
        absent.clear()
        await virtual.until(lambda: bool(seen(stage, QueueSeen)), 20)
        assert (before, queues.present) == (False, True)
        absent.append(True)
        stage.way.cut()
        queues._list_again()
        await virtual.until(lambda: bool(seen(stage, QueueGone)), 20)
        for task in stage.tasks:
            task.cancel()
        await asyncio.gather(*stage.tasks, return_exceptions=True)
        await stage.server.close()

    virtual.run(main())
