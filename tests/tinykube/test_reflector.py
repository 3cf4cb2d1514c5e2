"""The picture stays true, whatever happens on the way; every change is told once, in an order that makes sense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from tests.support import virtual
from tests.support.fuzz import examples
from tests.tinykube.tiny import TinyServer
from tinykube.client import Client
from tinykube.reflector import ADDED, DELETED, MODIFIED, Reflector
from tinykube.resource import PODS


class Listener:
    """Replays what it is told, and complains about what cannot be."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.picture: dict[str, manifest.Pod] = {}
        self.lists = 0

    def on_event(self, change: str, pod: manifest.Pod) -> None:
        self.told.append((change, pod.name))
        known = self.picture.get(pod.name)
        assert (known is None) == (change == ADDED), f"{change} of {pod.name}, which was {known}"
        if known is not None:
            assert known.metadata.uid == pod.metadata.uid, "another pod under the same name is deleted and added"
        if change == MODIFIED:
            assert known is not None
            assert int(known.metadata.resource_version) < int(pod.metadata.resource_version)
        if change == DELETED:
            del self.picture[pod.name]
        else:
            self.picture[pod.name] = pod

    def on_synced(self) -> None:
        self.lists += 1


@asynccontextmanager
async def reflecting(
    server: TinyServer, *, optional: bool = False
) -> AsyncIterator[tuple[Reflector[manifest.Pod], Listener]]:
    listener = Listener()
    reflector = Reflector(Client(server), PODS, manifest.Pod, listener.on_event, listener.on_synced, optional=optional)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector, listener
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def agrees(server: TinyServer, listener: Listener) -> bool:
    wanted = {name: item["metadata"]["resourceVersion"] for name, item in server.objects.items()}
    return wanted == {name: pod.metadata.resource_version for name, pod in listener.picture.items()}


FAULTS = st.sampled_from(["unreachable", "lost", "malformed", "cut", 410, 429, 500, 503, 404])
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abcd")),
    st.tuples(st.just("remove"), st.sampled_from("abcd")),
    st.tuples(st.just("compact"), st.just("")),
    st.tuples(st.just("end"), st.just("")),
    st.tuples(st.just("fault"), FAULTS),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.05, 5.0, 400.0])),
)


@given(st.lists(STEPS, max_size=30))
@examples(quick=60, ci=300)
def test_nothing_is_lost_or_told_twice_whatever_happens_on_the_way(steps: list[tuple[str, object]]) -> None:
    async def story() -> None:
        server = TinyServer()
        server.page = 2
        server.put("a")
        async with reflecting(server) as (_, listener):
            for what, argument in steps:
                match what, argument:
                    case "put", str(name):
                        server.put(name)
                    case "remove", str(name):
                        server.remove(name)
                    case "compact", _:
                        server.compact()
                    case "end", _:
                        server.end_watches()
                    case "fault", (str() | int()) as fault:
                        server.faults.append(fault)
                        server.end_watches()
                    case "wait", float(seconds):
                        await asyncio.sleep(seconds)
            server.faults.clear()
            await virtual.until(lambda: agrees(server, listener), 1000, pause=1.0)

    virtual.run(story())


def test_changes_after_the_list_come_by_the_watch_alone() -> None:
    async def story() -> None:
        server = TinyServer()
        server.put("a")
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            server.put("a", nodeName="n1")
            server.put("b")
            server.remove("a")
            await virtual.until(lambda: agrees(server, listener))
            assert listener.told == [(ADDED, "a"), (MODIFIED, "a"), (ADDED, "b"), (DELETED, "a")]
            assert set(reflector.objects) == {"default/b"}
            assert listener.lists == 1

    virtual.run(story())


def test_a_watch_that_ends_goes_on_where_it_ended() -> None:
    async def story() -> None:
        server = TinyServer()
        async with reflecting(server) as (_, listener):
            for i in range(5):
                await asyncio.sleep(2)
                server.put(f"p{i}")
                server.end_watches()
            await virtual.until(lambda: agrees(server, listener))
            assert listener.lists == 1

    virtual.run(story())


def test_a_line_that_was_cut_comes_again_whole() -> None:
    async def story() -> None:
        server = TinyServer()
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            server.faults.append("cut")
            server.end_watches()
            server.put("a")
            await virtual.until(lambda: agrees(server, listener))
            assert listener.told == [(ADDED, "a")]
            assert listener.lists == 1

    virtual.run(story())


def test_after_a_gap_deletions_are_told_too() -> None:
    async def story() -> None:
        server = TinyServer()
        server.put("a")
        server.put("b")
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            server.end_watches()
            server.remove("a")
            server.put("b")
            server.remove("b")
            server.put("b")  # another one
            server.compact()
            await virtual.until(lambda: agrees(server, listener))
            assert listener.told[2:] == [(DELETED, "a"), (DELETED, "b"), (ADDED, "b")]
            assert listener.lists == 2

    virtual.run(story())


def test_a_kind_that_the_server_lacks_counts_as_empty_until_it_comes() -> None:
    async def story() -> None:
        server = TinyServer()
        server.absent = True
        async with reflecting(server, optional=True) as (reflector, listener):
            await reflector.synced.wait()
            server.put("a")
            server.absent = False
            await virtual.until(lambda: agrees(server, listener))
            server.absent = True
            server.end_watches()
            await virtual.until(lambda: not listener.picture)

    virtual.run(story())


def test_a_silent_connection_is_given_up() -> None:
    async def story() -> None:
        server = TinyServer()
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            await asyncio.sleep(1)
            server._changed = asyncio.Event()  # the watch hears nothing of what happens from now on
            server.put("a")
            await virtual.until(lambda: agrees(server, listener), 400)
            assert listener.lists == 1

    virtual.run(story())


def test_an_object_that_cannot_be_read_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        server = TinyServer()
        server.put("bad", containers="none")
        server.put("good")
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            server.put("worse", containers=7)
            server.put("better")
            await virtual.until(lambda: set(listener.picture) == {"good", "better"})

    virtual.run(story())
    assert "pods default/bad" in caplog.text
    assert "pods default/worse" in caplog.text


def test_a_server_that_always_refuses_is_not_asked_in_a_hurry() -> None:
    async def story() -> None:
        server = TinyServer()
        server.faults.extend([500] * 1000)
        async with reflecting(server):
            await asyncio.sleep(60)
        assert 5 < len(server.requests) < 15

    virtual.run(story())


def test_a_watch_that_ends_at_once_is_not_asked_in_a_hurry() -> None:
    async def story() -> None:
        server = TinyServer()
        server.hangs_up = True
        async with reflecting(server):
            await asyncio.sleep(60)
        assert len(server.requests) < 15

    virtual.run(story())


def test_a_watch_on_which_something_happens_is_left_alone() -> None:
    async def story() -> None:
        server = TinyServer()
        async with reflecting(server) as (_, listener):
            for i in range(20):
                server.put(f"p{i}")
                await asyncio.sleep(60)
            assert agrees(server, listener)
        assert len(server.requests) == 2, "one list and one watch"

    virtual.run(story())


def test_a_refresh_waits_for_the_watch_if_that_is_quick() -> None:
    async def story() -> None:
        server = TinyServer()
        server.put("a")
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            await asyncio.sleep(5)
            server.put("b")
            await reflector.refresh(asyncio.get_running_loop().time())
            assert agrees(server, listener)
            assert listener.lists == 1

    virtual.run(story())


def test_a_refresh_lists_anew_if_the_watch_is_silent() -> None:
    async def story() -> None:
        server = TinyServer()
        server.put("a")
        server.put("b")
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            await asyncio.sleep(5)
            server.hold_back()
            server.remove("a")
            server.put("b", nodeName="n1")
            server.put("c")
            server.faults.extend([500, "lost", 503])
            await reflector.refresh(asyncio.get_running_loop().time())
            assert agrees(server, listener)
            assert listener.lists == 2
            assert not reflector.stuck

    virtual.run(story())


def test_a_list_that_was_begun_later_is_fresh_enough() -> None:
    async def story() -> None:
        server = TinyServer()
        now = asyncio.get_running_loop().time()
        async with reflecting(server) as (reflector, _):
            await reflector.refresh(now)
            assert [bool(each.query.get("watch")) for each in server.requests][:1] == [False]
            assert len([each for each in server.requests if each.query.get("limit") == "1"]) == 0

    virtual.run(story())


@given(st.lists(STEPS, max_size=12), st.booleans())
@examples(quick=40, ci=300)
def test_after_a_refresh_all_that_happened_before_is_known(steps: list[tuple[str, object]], silent: bool) -> None:
    async def story() -> None:
        server = TinyServer()
        server.page = 2
        server.put("a")
        async with reflecting(server) as (reflector, listener):
            await reflector.synced.wait()
            await asyncio.sleep(1)
            if silent:
                server.hold_back()
            for what, argument in steps:
                match what, argument:
                    case "put", str(name):
                        server.put(name)
                    case "remove", str(name):
                        server.remove(name)
                    case "fault", (str() | int()) as fault:
                        server.faults.append(fault)
            await reflector.refresh(asyncio.get_running_loop().time())
            assert agrees(server, listener)

    virtual.run(story())


def test_a_reflector_that_neither_hears_nor_tries_is_stuck() -> None:
    async def story() -> None:
        server = TinyServer()
        assert not Reflector(Client(server), PODS, manifest.Pod, Listener().on_event).stuck, "it was not started yet"
        async with reflecting(server) as (reflector, _):
            await reflector.synced.wait()
            server.absent = True
            server.end_watches()
            for _ in range(100):  # an absent kind is tried again and again
                await asyncio.sleep(60)
                assert not reflector.stuck
        await asyncio.sleep(600)
        assert reflector.stuck

    virtual.run(story())
