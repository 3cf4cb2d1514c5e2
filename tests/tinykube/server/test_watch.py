"""Watches tell what happens, in order and completely, or say that they cannot."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import examples
from tests.support.talk import CONFIG_MAPS, PODS, TABLE, Json, Talk, config_map, pod
from tinykube.server import watch
from tinykube.server.kinds import CONFIG_MAP
from tinykube.server.options import ListOptions
from tinykube.server.paging import page
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.server.watch import ChangeSignal, Watch

ALL_CONFIG_MAPS = "/api/v1/configmaps"


@pytest.fixture
def talk() -> Talk:
    return Talk()


def now(talk: Talk) -> int:
    return talk.server.registry.store.revision


async def test_what_happens_after_a_version_is_told(talk: Talk) -> None:
    await talk.create(CONFIG_MAPS, config_map("before"))
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    await talk.create(CONFIG_MAPS, config_map("a"))
    await talk.patch(f"{CONFIG_MAPS}/a", "merge", {"data": {"x": "1"}})
    await talk.send("DELETE", f"{CONFIG_MAPS}/a")
    assert await watching.take(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_events_carry_kind_and_rising_versions(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    await talk.create(CONFIG_MAPS, config_map("a"))
    await talk.send("DELETE", f"{CONFIG_MAPS}/a")
    added, deleted = await watching.next(), await watching.next()
    assert (added["object"]["kind"], added["object"]["apiVersion"]) == ("ConfigMap", "v1")
    first, last = (int(each["object"]["metadata"]["resourceVersion"]) for each in (added, deleted))
    assert last == first + 1


async def test_a_watch_waits_for_what_comes(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    waiting = asyncio.create_task(watching.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    await talk.create(CONFIG_MAPS, config_map("a"))
    assert (await waiting)["type"] == "ADDED"


async def test_what_happens_while_an_event_is_being_read_is_told_next(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    for name in ("a", "b", "c"):
        await talk.create(CONFIG_MAPS, config_map(name))
        assert await watching.take(1) == [("ADDED", name)]


@pytest.mark.parametrize("version", ["", "0"])
async def test_without_a_version_the_present_comes_first(talk: Talk, version: str) -> None:
    await talk.create(CONFIG_MAPS, config_map("a"))
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=version)
    await talk.create(CONFIG_MAPS, config_map("b"))
    assert await watching.take(2) == [("ADDED", "a"), ("ADDED", "b")]


async def test_the_end_of_the_present_is_marked_for_those_who_ask(talk: Talk) -> None:
    await talk.create(CONFIG_MAPS, config_map("a"))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    watching = await talk.watch(CONFIG_MAPS, **options)
    assert await watching.take(1) == [("ADDED", "a")]
    mark = await watching.next()
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["object"]["metadata"]["resourceVersion"] == str(now(talk))


async def test_what_happens_while_the_present_is_read_comes_after_it(talk: Talk) -> None:
    await talk.create(CONFIG_MAPS, config_map("a"))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    watching = await talk.watch(CONFIG_MAPS, **options)
    first = await watching.next()
    await talk.create(CONFIG_MAPS, config_map("b"))
    mark = await watching.next()
    late = await watching.next()
    assert [first["type"], mark["type"], late["type"]] == ["ADDED", "BOOKMARK", "ADDED"]
    assert int(mark["object"]["metadata"]["resourceVersion"]) < int(late["object"]["metadata"]["resourceVersion"])


@pytest.mark.parametrize("version", ["", "0"])
async def test_who_does_not_want_the_present_hears_only_what_is_new(talk: Talk, version: str) -> None:
    await talk.create(CONFIG_MAPS, config_map("old"))
    options = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "resourceVersion": version}
    watching = await talk.watch(CONFIG_MAPS, **options)
    await talk.create(CONFIG_MAPS, config_map("new"))
    assert await watching.take(1) == [("ADDED", "new")]


async def test_the_last_bookmark_comes_before_the_end(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LAST_BOOKMARK_SECONDS", 0.9)
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk), allowWatchBookmarks="true", timeoutSeconds=1)
    assert (await watching.next())["type"] == "BOOKMARK"
    with pytest.raises(StopAsyncIteration):
        await watching.next()


async def test_bookmarks_come_from_time_to_time(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.01)
    start = now(talk)
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=start, allowWatchBookmarks="true")
    await talk.create(PODS, pod())
    mark = await watching.next()
    assert mark["type"] == "BOOKMARK"
    assert int(mark["object"]["metadata"]["resourceVersion"]) > start, "what happens to others moves it on too"
    assert "name" not in mark["object"]["metadata"]


async def test_objects_enter_and_leave_a_selection(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk), labelSelector="tier=x")
    await talk.create(CONFIG_MAPS, config_map("a", {"tier": "y"}))
    for tier in ("x", "x", "y"):
        await talk.patch(f"{CONFIG_MAPS}/a", "merge", {"metadata": {"labels": {"tier": tier}}, "data": {tier: "1"}})
    await talk.patch(f"{CONFIG_MAPS}/a", "merge", {"metadata": {"labels": {"tier": "x"}}})
    await talk.send("DELETE", f"{CONFIG_MAPS}/a")
    events = [await watching.next() for _ in range(4)]
    assert [each["type"] for each in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    left = events[1]["object"]["metadata"]
    assert left["labels"] == {"tier": "x"}, "as it was when it still matched"
    assert int(left["resourceVersion"]) > int(events[0]["object"]["metadata"]["resourceVersion"])


async def test_only_one_namespace_is_watched(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    await talk.create("/api/v1/namespaces/kube-system/configmaps", config_map("other"))
    await talk.create(CONFIG_MAPS, config_map("mine"))
    assert await watching.take(1) == [("ADDED", "mine")]


async def test_who_asks_for_what_is_forgotten_is_told_so() -> None:
    talk = Talk(Server(Store(history=8)))
    start = now(talk)
    for number in range(40):
        await talk.create(CONFIG_MAPS, config_map(f"c{number}"))
    event = await (await talk.watch(CONFIG_MAPS, resourceVersion=start)).next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {start} (")


async def test_a_reader_that_falls_too_far_behind_is_told_so_and_holds_nobody_up() -> None:
    talk = Talk(Server(Store(history=8)))
    slow = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    quick = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    for number in range(40):
        await talk.create(CONFIG_MAPS, config_map(f"c{number}"))
        assert await quick.take(1) == [("ADDED", f"c{number}")]
    assert (await slow.next())["object"]["code"] == 410


async def test_a_watch_ends_in_time(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk), timeoutSeconds=1)
    with pytest.raises(StopAsyncIteration):
        await watching.next()


async def test_a_server_that_closes_ends_its_watches(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk))
    waiting = asyncio.create_task(watching.next())
    await asyncio.sleep(0)
    await talk.server.close()
    with pytest.raises(StopAsyncIteration):
        await waiting


class Mirror:
    """A client that knows the selected objects from a list, and keeps up by watching.  It lists again if it must."""

    def __init__(self, store: Store, signal: ChangeSignal) -> None:
        self.store = store
        self.signal = signal
        self.known: dict[str, str] = {}

    async def follow(self) -> None:
        while True:
            found = page(self.store, CONFIG_MAP, "d", ListOptions(labels="l=x"))
            self.known = {each.object["metadata"]["name"]: str(each.revision) for each in found.items}
            options = ListOptions(labels="l=x", watch=True, version=str(found.revision))
            async for chunk in Watch(self.store, self.signal, CONFIG_MAP, "d", options).stream():
                for line in chunk.splitlines():
                    self.take_in(msgspec.json.decode(line))

    def take_in(self, event: Json) -> None:
        if event["type"] == "ERROR":
            return  # the watch ends with it
        metadata = event["object"]["metadata"]
        assert (metadata["name"] in self.known) == (event["type"] != "ADDED")
        if event["type"] == "DELETED":
            del self.known[metadata["name"]]
        else:
            self.known[metadata["name"]] = metadata["resourceVersion"]


def relabel(store: Store, name: str, label: str) -> None:
    """Have an object with a label; none if the label is empty."""
    there = store.get(CONFIG_MAP, "d", name) is not None
    object = {"metadata": {"name": name, "namespace": "d", "labels": {"l": label}}}
    if not label and there:
        store.delete(CONFIG_MAP, "d", name)
    elif there:
        store.update(CONFIG_MAP, object)
    elif label:
        store.create(CONFIG_MAP, object)


@examples(quick=20, ci=100)
@given(st.lists(st.integers(1, 6) | st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", ""])), max_size=60))
def test_a_list_and_its_watch_always_lead_to_the_present(steps: list[int | tuple[str, str]]) -> None:
    """A number lets the watcher read for so many turns of the loop; else an object gets a label, or goes."""

    async def story() -> None:
        store = Store(history=6)
        mirror = Mirror(store, ChangeSignal(store))
        following = asyncio.create_task(mirror.follow())
        for step in [*steps, 30]:
            if isinstance(step, tuple):
                relabel(store, *step)
            else:
                for _ in range(step):
                    await asyncio.sleep(0)
        assert not following.done(), following.exception()
        following.cancel()
        present = [(each.object["metadata"], each.revision) for _, each in store.range(CONFIG_MAP)]
        assert mirror.known == {each["name"]: str(number) for each, number in present if each["labels"]["l"] == "x"}

    asyncio.run(story())


async def test_tables_come_with_their_columns_once(talk: Talk) -> None:
    watching = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk), headers={"accept": TABLE})
    await talk.create(CONFIG_MAPS, config_map("a", x="1"))
    await talk.create(CONFIG_MAPS, config_map("b"))
    first, second = (await watching.next())["object"], (await watching.next())["object"]
    assert [each["name"] for each in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] is None
    assert first["rows"][0]["cells"][:2] == ["a", 1]
    assert first["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_options_that_contradict_each_other(talk: Talk) -> None:
    answer = await talk.send("GET", ALL_CONFIG_MAPS, watch="1", sendInitialEvents="true")
    assert answer.code == 422
    assert "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in answer.body["message"]


async def test_versions_that_are_none(talk: Talk) -> None:
    answer = await talk.send("GET", ALL_CONFIG_MAPS, watch="1", resourceVersion="x")
    assert (answer.code, answer.body.get("reason")) == (500, None)
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    fresh = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk), **options)
    assert (await fresh.next())["type"] == "BOOKMARK", "the present is new enough"
    future = await talk.watch(CONFIG_MAPS, resourceVersion=now(talk) + 1, **options)
    assert (await future.next())["object"]["code"] == 504
