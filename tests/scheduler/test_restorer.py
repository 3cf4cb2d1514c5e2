"""Records that somebody changed all the same, where nobody guards the API server: they are put back."""

from __future__ import annotations

import logging

import pytest

from tests.scheduler.live import MEMORY, Answering, Live, living, refuse
from tests.support import virtual
from tinykube.client import MERGE_PATCH
from tinykube.resource import PODS
from tinykube.transport import Request, Response, Unreachable

INDEX = "volcano.sh/gpu-index"


async def annotate(live: Live, name: str, value: str | None) -> None:
    body = {"metadata": {"annotations": {INDEX: value}}}
    await live.client.patch(PODS, name, "default", body, kind=MERGE_PATCH)


def record(live: Live, name: str) -> str | None:
    text: str | None = live.pod(name)["metadata"]["annotations"].get(INDEX)
    return text


@pytest.mark.parametrize("edited", ["7", "nonsense", "", None])
def test_a_record_that_was_changed_is_put_back_and_counts_all_the_while(
    edited: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with living() as live:
            await live.create("a", {MEMORY: "800"})
            await live.until(lambda: "a" in live.placed())
            await live.until(lambda: live.service.core.snapshot.cards("n1")[0].memory_free == 200 << 20)
            await annotate(live, "a", edited)
            await live.create("b", {MEMORY: "800"})
            await live.until(lambda: live.condition("b").get("status") == "False")
            await live.until(lambda: record(live, "a") == "0")
            assert live.placed() == {"a": "n1"}

    with caplog.at_level(logging.WARNING):
        virtual.run(story())
    assert f"pod default/a: somebody changed {INDEX}" in caplog.text


def test_a_server_that_cannot_be_reached_is_asked_again() -> None:
    async def story() -> None:
        async with living() as live:
            await live.create("a", {MEMORY: "800"})
            await live.until(lambda: "a" in live.placed())
            failures: list[Response | Exception] = [Unreachable("away"), refuse(429)]

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method == "PATCH" and request.path.endswith("/pods/a") and failures:
                    failure = failures.pop()
                    if isinstance(failure, Response):
                        return failure
                    raise failure
                return await answer()

            live.way.disturb = disturb
            await annotate(live, "a", "7")
            await live.until(lambda: record(live, "a") == "0")
            assert not failures

    virtual.run(story())
