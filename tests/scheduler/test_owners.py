"""Owners say how many of their pods start together; one that cannot be read has no gang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from subak.scheduler.messages import AskOwner, OwnerSeen
from subak.scheduler.owners import ANNOTATION, OWNERS, Owners
from tests.scheduler.live import Answering, Json, Live, refuse
from tests.support import virtual
from tinykube.client import Client
from tinykube.transport import Request, Response, Unreachable

JOBS = OWNERS["batch/v1", "Job"]


class Stage:
    """A server with owners, and what was answered about them."""

    def __init__(self) -> None:
        self.live = Live()
        self.way = self.live.way
        self.answers: list[OwnerSeen] = []
        self.reads = 0
        self.disturb: Callable[[Answering], Coroutine[Any, Any, Response]] | None = None
        self.owners = Owners(Client(self.way), self.answers.append)
        self.way.disturb = self._see

    async def _see(self, request: Request, answer: Answering) -> Response:
        self.reads += 1
        return await answer() if self.disturb is None else await self.disturb(answer)

    async def job(self, name: str, value: str | None) -> AskOwner:
        """A Job that says so much."""
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
        metadata: Json = {"name": name, "annotations": {} if value is None else {ANNOTATION: value}}
        made = await self.live.client.create(JOBS, {"metadata": metadata, "spec": {"template": template}}, "default")
        return AskOwner("default", "batch/v1", "Job", name, made["metadata"]["uid"])


def play(story: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        stage = Stage()
        await story(stage)
        await stage.live.server.close()

    virtual.run(main())


@pytest.mark.parametrize(
    ("value", "min_member", "warned"),
    [
        ("4", 4, False),
        ("0", 1, False),
        (None, 1, False),
        ("-3", 1, True),
        ("four", 1, True),
        ("2.5", 1, True),
        ("9" * 30, 1, True),
        ("", 1, False),
    ],
)
def test_the_annotation_says_how_many(
    value: str | None, min_member: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        ask = await stage.job("train", value)
        await stage.owners.ask(ask)
        assert stage.answers == [OwnerSeen(ask.uid, min_member)]

    play(story)
    assert ("which is no number of pods; it counts as 1" in caplog.text) is warned


def test_an_owner_is_read_once() -> None:
    async def story(stage: Stage) -> None:
        ask = await stage.job("train", "4")

        async def slowly(answer: Answering) -> Response:
            await asyncio.sleep(1)
            return await answer()

        stage.disturb = slowly
        await asyncio.gather(*(stage.owners.ask(ask) for _ in range(5)))
        assert stage.answers == [OwnerSeen(ask.uid, 4)]
        await stage.owners.ask(ask)
        assert stage.answers == [OwnerSeen(ask.uid, 4)] * 2
        assert stage.reads == 1

    play(story)


def test_owners_of_other_kinds_are_not_asked() -> None:
    async def story(stage: Stage) -> None:
        await stage.owners.ask(AskOwner("default", "example.com/v1", "Robot", "r", "u"))
        assert stage.answers == [OwnerSeen("u", 1)]
        assert stage.reads == 0

    play(story)


def test_an_owner_that_is_gone_or_another_one_has_no_gang(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        ask = await stage.job("train", "4")
        await stage.owners.ask(AskOwner("default", "batch/v1", "Job", "train", "another"))
        await stage.owners.ask(AskOwner("default", "apps/v1", "ReplicaSet", "none", "u"))
        await stage.owners.ask(AskOwner("default", "batch/v1", "Job", "../x", "v"))
        assert [answer.min_member for answer in stage.answers] == [1, 1, 1]
        await stage.owners.ask(ask)
        assert stage.answers[-1].min_member == 4

    play(story)
    assert "ReplicaSet default/none could not be asked for its group" in caplog.text


def test_a_right_that_is_missing_is_said_once_for_each_owner(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        ask = await stage.job("train", "4")

        async def forbid(answer: Answering) -> Response:
            return refuse(403)

        stage.disturb = forbid
        for _ in range(3):
            await stage.owners.ask(ask)
        assert stage.answers == [OwnerSeen(ask.uid, 1)] * 3

    play(story)
    assert caplog.text.count("Job default/train could not be asked for its group: refused with 403") == 1


def test_a_server_that_is_away_is_asked_until_it_answers() -> None:
    async def story(stage: Stage) -> None:
        ask = await stage.job("train", "4")
        troubles: list[Response | Exception] = [Unreachable("away"), refuse(500), TimeoutError()]

        async def disturb(answer: Answering) -> Response:
            if not troubles:
                return await answer()
            trouble = troubles.pop()
            if isinstance(trouble, Response):
                return trouble
            raise trouble

        stage.disturb = disturb
        await stage.owners.ask(ask)
        assert stage.answers == [OwnerSeen(ask.uid, 4)]

    play(story)
