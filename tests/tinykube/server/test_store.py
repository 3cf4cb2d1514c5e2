"""What is stored, in what order it is told, and how far back it is remembered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinykube.server.kinds import CONFIG_MAP, NODE, POD
from tinykube.server.store import HISTORY_BYTES, Change, Store, Stored
from tinykube.status import ApiError


def named(name: str, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **fields}


def version(stored: Stored) -> str:
    text: str = stored.object["metadata"]["resourceVersion"]
    return text


def test_one_counter_numbers_the_changes_of_all_kinds() -> None:
    store = Store()
    first = store.create(POD, named("a"))
    second = store.create(NODE, named("n", ""))
    third = store.delete(POD, "default", "a")
    assert [int(version(each)) for each in (first, second, third)] == [first.revision + step for step in range(3)]
    assert store.revision == third.revision


def test_an_object_is_encoded_with_kind_and_version_in_front() -> None:
    stored = Store().create(CONFIG_MAP, {"data": {"k": "v"}, **named("c"), "kind": "ConfigMap", "apiVersion": "v1"})
    assert stored.data.startswith(b'{"kind":"ConfigMap","apiVersion":"v1",')
    assert msgspec.json.decode(stored.data) == stored.object


def test_what_the_caller_holds_is_not_changed() -> None:
    mine = named("a")
    Store().create(POD, mine)
    assert mine == named("a")


def test_a_name_is_taken_once_per_namespace() -> None:
    store = Store()
    store.create(POD, named("a"))
    store.create(POD, named("a", "other"))
    with pytest.raises(ApiError, match='pods "a" already exists'):
        store.create(POD, named("a"))


def test_an_update_that_expects_another_version_is_a_conflict() -> None:
    store = Store()
    old = store.create(POD, named("a"))
    store.update(POD, named("a", spec={"x": 1}), version(old))
    with pytest.raises(ApiError, match="the object has been modified") as caught:
        store.update(POD, named("a", spec={"x": 2}), version(old))
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    found = store.get(POD, "default", "a")
    assert found is not None
    assert found["spec"] == {"x": 1}


def test_what_is_not_there_cannot_be_updated_or_deleted() -> None:
    store = Store()
    with pytest.raises(ApiError, match='pods "a" not found'):
        store.update(POD, named("a"))
    with pytest.raises(ApiError, match='pods "a" not found'):
        store.delete(POD, "default", "a")


def test_lists_are_ordered_as_etcd_orders_keys() -> None:
    store = Store()
    for namespace in ("a", "a-b", "b"):
        for name in ("z", "x"):
            store.create(POD, named(name, namespace))
    keys = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in store.list(POD)]
    assert keys == [("a-b", "x"), ("a-b", "z"), ("a", "x"), ("a", "z"), ("b", "x"), ("b", "z")]
    assert [each["metadata"]["name"] for each in store.list(POD, "a")] == ["x", "z"]


def test_changes_are_told_in_order_even_if_a_subscriber_writes() -> None:
    store, heard = Store(), list[tuple[str, str]]()

    def follow(change: Change) -> None:
        if change.type == "ADDED" and change.kind is NODE:
            store.create(POD, named("follower"))

    store.subscribe(follow)
    stop = store.subscribe(lambda change: heard.append((change.type, change.object["metadata"]["name"])))
    store.create(NODE, named("n", ""))
    stop()
    store.delete(NODE, "", "n")
    assert heard == [("ADDED", "n"), ("ADDED", "follower")]


def test_a_deletion_has_a_revision_of_its_own() -> None:
    store = Store()
    created = store.create(POD, named("a"))
    store.delete(POD, "default", "a")
    added, deleted = store.log(POD).since(0)
    assert (added.type, deleted.type) == ("ADDED", "DELETED")
    assert deleted.object["metadata"]["resourceVersion"] == str(created.revision + 1)
    assert deleted.old == created.object


def test_the_log_of_one_kind_is_bounded_and_not_filled_by_another() -> None:
    store = Store(history=8)
    first = store.create(POD, named("a"))
    for number in range(50):
        store.create(CONFIG_MAP, named(f"c{number}"))
    assert store.log(POD).forgotten <= first.revision
    assert store.log(CONFIG_MAP).forgotten > first.revision
    kept = store.log(CONFIG_MAP).since(store.log(CONFIG_MAP).forgotten)
    assert 8 <= len(kept) <= 10
    assert kept[-1].revision == store.revision
    assert kept[0].revision == store.log(CONFIG_MAP).forgotten + 1, "nothing is missing in between"


def test_of_large_objects_fewer_changes_are_remembered() -> None:
    store = Store()
    store.create(CONFIG_MAP, named("c"))
    for number in range(100):
        store.update(CONFIG_MAP, named("c", data={"number": str(number), "load": "x" * 1_000_000}))
    log = store.log(CONFIG_MAP)
    kept = log.since(log.forgotten)
    assert HISTORY_BYTES // 2 < sum(len(change.now.data) for change in kept) < HISTORY_BYTES * 1.3
    assert [change.revision for change in kept] == list(range(log.forgotten + 1, store.revision + 1))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30), st.integers(0, 30))
def test_the_state_at_an_earlier_revision_can_be_read(writes: list[tuple[str, bool]], when: int) -> None:
    store = Store()
    expected: list[tuple[str, Stored]] = []
    revision = store.revision
    for index, (name, remove) in enumerate(writes):
        if index == when:
            expected, revision = list(store.range(POD, "default")), store.revision
        there = store.get(POD, "default", name) is not None
        if remove and there:
            store.delete(POD, "default", name)
        elif there:
            store.update(POD, named(name, spec={"n": index}))
        else:
            store.create(POD, named(name))
    if when >= len(writes):
        expected, revision = list(store.range(POD, "default")), store.revision
    assert list(store.range_at(POD, revision, "default")) == expected
