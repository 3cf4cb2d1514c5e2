"""Events reach the server, are counted, and never hold anybody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from subak.model import manifest
from tests.support import virtual
from tests.tinykube.scripted import answer, refusal
from tinykube import events
from tinykube.client import Client
from tinykube.events import NORMAL, WARNING, Recorder, Reference
from tinykube.resource import NODES, PODS
from tinykube.transport import Request, Response

POD = Reference("v1", "Pod", "a", "team", "uid-a")


class EventStore:
    """Keeps events as a server does; fails as often as told."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.failures: list[Response | Exception] = []

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(0.001)
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        body = msgspec.json.decode(request.body)
        if request.method == "POST":
            assert request.path == f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
            self.events[body["metadata"]["name"]] = body
            return answer(body, 201)
        known = self.events.get(request.path.rpartition("/")[2])
        if known is None:
            return refusal(404, "NotFound", "events not found")
        known.update(body)
        return answer(known)

    async def close(self) -> None:
        pass


@asynccontextmanager
async def recording(store: EventStore) -> AsyncIterator[Recorder]:
    recorder = Recorder(Client(store), "tester")
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        await recorder.flush(60)
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_an_event_says_what_happened_to_whom() -> None:
    async def story() -> None:
        store = EventStore()
        async with recording(store) as recorder:
            recorder.record(POD, NORMAL, "Scheduled", "assigned")
        (event,) = store.events.values()
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "a",
            "namespace": "team",
            "uid": "uid-a",
        }
        assert (event["type"], event["reason"], event["message"]) == ("Normal", "Scheduled", "assigned")
        assert (event["count"], event["source"]) == (1, {"component": "tester"})

    virtual.run(story())


def test_bytes_that_are_no_text_end_no_writer() -> None:
    """As Python reads them from others: half a character, of which no JSON can be made."""

    async def story() -> None:
        store = EventStore()
        async with recording(store) as recorder:
            recorder.record(POD, WARNING, "Unhealthy", "it said \udce4")
        assert [event["message"] for event in store.events.values()] == ["it said ?"]

    virtual.run(story())


def test_the_same_again_is_counted() -> None:
    async def story() -> None:
        store = EventStore()
        async with recording(store) as recorder:
            for _ in range(3):
                recorder.record(POD, WARNING, "FailedScheduling", "full")
            await recorder.flush()
            recorder.record(POD, WARNING, "FailedScheduling", "full")
            recorder.record(POD, WARNING, "FailedScheduling", "fuller")
        assert sorted((event["message"], event["count"]) for event in store.events.values()) == [
            ("full", 4),
            ("fuller", 1),
        ]

    virtual.run(story())


def test_an_event_that_the_server_has_forgotten_is_written_anew() -> None:
    async def story() -> None:
        store = EventStore()
        async with recording(store) as recorder:
            recorder.record(POD, NORMAL, "Started", "x")
            await recorder.flush()
            store.events.clear()
            recorder.record(POD, NORMAL, "Started", "x")
        assert [event["count"] for event in store.events.values()] == [1]

    virtual.run(story())


def test_a_server_that_fails_for_a_while_loses_nothing() -> None:
    async def story() -> None:
        store = EventStore()
        busy = refusal(429, "TooManyRequests", "later")
        store.failures = [ConnectionError("reset"), refusal(500, "InternalError", "etcd"), busy]
        async with recording(store) as recorder:
            recorder.record(POD, NORMAL, "Started", "x")
            await recorder.flush(60)
        assert len(store.events) == 1
        assert recorder.lost == 0

    virtual.run(story())


def test_an_event_that_is_refused_is_lost_and_counted() -> None:
    async def story() -> None:
        store = EventStore()
        store.failures = [refusal(403, "Forbidden", "the namespace is being terminated")]
        async with recording(store) as recorder:
            recorder.record(POD, NORMAL, "Started", "x")
            recorder.record(POD, NORMAL, "Started", "y")
        assert len(store.events) == 1
        assert recorder.lost == 1

    virtual.run(story())


def test_more_events_than_anybody_can_write_cost_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 3)

    async def story() -> None:
        store = EventStore()
        recorder = Recorder(Client(store), "tester")
        for i in range(5):
            recorder.record(POD, NORMAL, "Started", str(i))
        assert recorder.lost == 2
        task = asyncio.create_task(recorder.run())
        await recorder.flush()
        task.cancel()
        assert {event["message"] for event in store.events.values()} == {"2", "3", "4"}

    virtual.run(story())


def test_a_long_message_is_cut_to_what_the_server_takes() -> None:
    async def story() -> None:
        store = EventStore()
        async with recording(store) as recorder:
            recorder.record(POD, NORMAL, "Started", "x" * 5000)
        (event,) = store.events.values()
        assert len(event["message"]) == 1024
        assert event["message"].endswith("x ...")

    virtual.run(story())


def test_events_about_nodes_are_kept_in_the_default_namespace() -> None:
    async def story() -> None:
        store = EventStore()
        node = msgspec.convert({"metadata": {"name": "n1", "uid": "u"}}, manifest.Node)
        async with recording(store) as recorder:
            recorder.record(Reference.to(NODES, node), NORMAL, "NodeReady", "ready")
        (event,) = store.events.values()
        assert event["metadata"]["namespace"] == "default"
        assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}

    virtual.run(story())


def test_a_reference_names_the_pod_and_its_container() -> None:
    pod = msgspec.convert({"metadata": {"name": "a", "namespace": "team", "uid": "uid-a"}}, manifest.Pod)
    assert Reference.to(PODS, pod) == POD
    assert Reference.to(PODS, pod, "spec.containers{c}").content()["fieldPath"] == "spec.containers{c}"
