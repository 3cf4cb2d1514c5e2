"""Watches: what a client hears, in which order, and from when on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.client import JSON, METADATA, TABLE, Refused
from tests.contracts.space import Space, plain


def add(space: Space, name: str, **labels: str) -> str:
    """A config map; its revision."""
    made = space.post("configmaps", {"metadata": {"name": name, "labels": labels}}).must(201)
    return str(made["metadata"]["resourceVersion"])


def revision(event: Any) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


def now(space: Space, what: str = "configmaps") -> str:
    return str(space.get(what).must(200)["metadata"]["resourceVersion"])


def heard(space: Space, what: str = "configmaps", **query: Any) -> list[tuple[str, str]]:
    """All that a watch of one second hears, as type and name."""
    with space.watch(what, timeoutSeconds=1, **query) as watch:
        return [(each["type"], each["object"]["metadata"].get("name", "")) for each in watch.rest()]


def test_a_watch_tells_of_creation_change_and_deletion(space: Space) -> None:
    with space.watch("configmaps", resourceVersion=now(space)) as watch:
        made = space.post("configmaps", {"metadata": {"name": "a"}}).must()
        changed = space.merge("configmaps/a", {"data": {"x": "1"}}).must()
        space.delete("configmaps/a").must()
        added, modified, deleted = watch.next(), watch.next(), watch.next()
    assert added == {"type": "ADDED", "object": made}
    assert modified == {"type": "MODIFIED", "object": changed}
    assert deleted["type"] == "DELETED"
    assert deleted["object"]["data"] == {"x": "1"}
    assert revision(added) < revision(modified) < revision(deleted)


def test_a_watch_without_a_revision_begins_with_what_is_there(space: Space) -> None:
    add(space, "b")
    add(space, "a")
    assert heard(space) == [("ADDED", "a"), ("ADDED", "b")]
    assert heard(space, resourceVersion="0") == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_from_a_revision_begins_after_it(space: Space) -> None:
    first = add(space, "a")
    add(space, "b")
    space.delete("configmaps/a").must()
    assert heard(space, resourceVersion=first) == [("ADDED", "b"), ("DELETED", "a")]


def test_a_write_that_changes_nothing_is_not_told(space: Space) -> None:
    before = add(space, "a", x="1")
    same = space.merge("configmaps/a", {"metadata": {"labels": {"x": "1"}}}).must(200)
    assert same["metadata"]["resourceVersion"] == before
    assert heard(space, resourceVersion=before) == []


def test_a_watch_of_all_namespaces(space: Space) -> None:
    before = now(space)
    everywhere = space.everywhere("configmaps")
    with space.watch(everywhere, resourceVersion=before, labelSelector=f"of={space}") as watch:
        add(space, "a", of=space.name)
        assert watch.take(1) == [("ADDED", "a")]


def test_a_watch_of_one_object(space: Space) -> None:
    with space.watch("configmaps", resourceVersion=now(space), fieldSelector="metadata.name=b") as watch:
        add(space, "a")
        add(space, "b")
        space.delete("configmaps/a").must()
        space.delete("configmaps/b").must()
        assert watch.take(2) == [("ADDED", "b"), ("DELETED", "b")]


def test_objects_start_and_stop_to_match_labels(space: Space) -> None:
    with space.watch("configmaps", resourceVersion=now(space), labelSelector="x=1") as watch:
        add(space, "a", x="1")
        changed = space.merge("configmaps/a", {"metadata": {"labels": {"x": "2"}}}).must()
        space.merge("configmaps/a", {"metadata": {"labels": {"x": "3"}}}).must()
        space.merge("configmaps/a", {"metadata": {"labels": {"x": "1"}}}).must()
        space.delete("configmaps/a").must()
        events = [watch.next() for _ in range(4)]
    assert [each["type"] for each in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    gone = events[1]["object"]
    assert gone["metadata"]["labels"] == {"x": "1"}, "what stops to match is shown as it was while it matched"
    assert gone["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


def test_pods_without_a_node_stop_to_match_when_they_are_bound(space: Space) -> None:
    with space.watch("pods", resourceVersion=now(space, "pods"), fieldSelector="spec.nodeName=") as watch:
        space.pod("a", node=True)
        assert watch.take(2) == [("ADDED", "a"), ("DELETED", "a")]


def test_a_pod_that_is_given_time_is_modified_and_then_deleted(space: Space) -> None:
    space.pod("a", node=True)
    with space.watch("pods", resourceVersion=now(space, "pods")) as watch:
        space.delete("pods/a").must()
        space.delete("pods/a", gracePeriodSeconds=0).must()
        events = [watch.next() for _ in range(3)]
    graces = [(each["type"], each["object"]["metadata"]["deletionGracePeriodSeconds"]) for each in events]
    assert graces == [("MODIFIED", 30), ("MODIFIED", 0), ("DELETED", 0)]


def test_an_object_that_was_made_anew_is_another_one(space: Space) -> None:
    with space.watch("configmaps", resourceVersion=now(space)) as watch:
        for _ in range(2):
            add(space, "a")
            space.delete("configmaps/a").must()
        events = [watch.next() for _ in range(4)]
    assert [each["type"] for each in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    assert events[0]["object"]["metadata"]["uid"] != events[2]["object"]["metadata"]["uid"]


def test_nothing_is_missed_while_much_happens(space: Space) -> None:
    with space.watch("configmaps", resourceVersion=now(space)) as watch:
        for index in range(100):
            add(space, f"m-{index:03}")
        events = [watch.next() for _ in range(100)]
    assert [each["object"]["metadata"]["name"] for each in events] == [f"m-{index:03}" for index in range(100)]
    assert sorted(map(revision, events)) == list(map(revision, events))


def test_initial_events_end_with_a_bookmark(space: Space) -> None:
    add(space, "a")
    last = add(space, "b")
    asked: dict[str, Any] = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    with space.watch("configmaps", allowWatchBookmarks="true", **asked) as watch:
        assert watch.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        bookmark = watch.next()
        add(space, "c")
        assert watch.take(1) == [("ADDED", "c")]
    assert bookmark["type"] == "BOOKMARK"
    assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("ConfigMap", "v1")
    assert set(bookmark["object"]["metadata"]) == {"annotations", "resourceVersion"}
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert revision(bookmark) >= int(last)


def test_initial_events_without_bookmarks(space: Space) -> None:
    add(space, "a")
    asked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    assert heard(space, **asked) == [("ADDED", "a")]


def test_no_initial_events(space: Space) -> None:
    add(space, "a")
    asked = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "resourceVersion": now(space)}
    with space.watch("configmaps", allowWatchBookmarks="true", **asked) as watch:
        add(space, "b")
        assert watch.take(1) == [("ADDED", "b")]


def test_a_bookmark_comes_before_a_watch_ends(space: Space) -> None:
    with space.watch("configmaps", resourceVersion=now(space), allowWatchBookmarks="true", timeoutSeconds=3) as watch:
        last = add(space, "a")
        events = watch.rest()
    assert [each["type"] for each in events[:2]] == ["ADDED", "BOOKMARK"]
    assert revision(events[1]) >= int(last)
    assert set(events[1]["object"]["metadata"]) == {"resourceVersion"}


def test_a_watch_from_a_revision_that_is_forgotten(space: Space, forget: Callable[[Space], None]) -> None:
    forget(space)
    with space.watch("configmaps", resourceVersion="1") as watch:
        (event,) = watch.rest()
    assert event["type"] == "ERROR"
    assert event["object"].pop("message").startswith("too old resource version: 1 (")
    assert event["object"] == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
    }


def test_a_watch_of_tables(space: Space) -> None:
    accept = f"{TABLE},{JSON}"
    with space.watch("configmaps", resourceVersion=now(space), accept=accept) as watch:
        add(space, "a")
        add(space, "b")
        first, second = watch.next()["object"], watch.next()["object"]
    assert [each["name"] for each in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] is None, "columns are told once"
    assert (first["kind"], first["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    (row,) = second["rows"]
    assert row["cells"][:2] == ["b", 0]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "b"
    assert second["metadata"]["resourceVersion"] == row["object"]["metadata"]["resourceVersion"]


def test_a_watch_of_tables_with_whole_objects(space: Space) -> None:
    accept = f"{TABLE},{JSON}"
    add(space, "a")
    with space.watch("configmaps", accept=accept, includeObject="Object") as watch:
        (row,) = watch.next()["object"]["rows"]
    assert row["object"]["kind"] == "ConfigMap"


def test_a_watch_of_metadata(space: Space) -> None:
    with space.watch("pods", accept=METADATA) as watch:
        space.pod("a")
        event = watch.next()
    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert event["object"]["apiVersion"] == "meta.k8s.io/v1"
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


def test_a_watch_of_custom_resources(space: Space) -> None:
    with space.watch("podgroups", resourceVersion=now(space, "podgroups")) as watch:
        made = space.post("podgroups", {"metadata": {"name": "a"}, "spec": {"minMember": 1}}).must(201)
        space.merge("podgroups/a", {"spec": {"minMember": 2}}).must()
        space.delete("podgroups/a").must()
        events = [watch.next() for _ in range(3)]
    assert events[0] == {"type": "ADDED", "object": made}
    assert [each["type"] for each in events[1:]] == ["MODIFIED", "DELETED"]


def test_a_watch_that_asks_for_nonsense_does_not_start(space: Space) -> None:
    with pytest.raises(Refused) as refused, space.watch("configmaps", labelSelector="==="):
        pass
    assert refused.value.answer.code == 400


def test_a_pod_is_seen_bound_with_its_annotations_at_once(space: Space) -> None:
    space.post("pods", {"metadata": {"name": "a"}, "spec": plain()}).must(201)
    with space.watch("pods", resourceVersion=now(space, "pods")) as watch:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "a", "annotations": {"gpu": "0"}},
            "target": {"kind": "Node", "name": "n"},
        }
        space.post("pods/a/binding", binding).must(201)
        event = watch.next()
    assert event["object"]["spec"]["nodeName"] == "n"
    assert event["object"]["metadata"]["annotations"] == {"gpu": "0"}
    assert [each["type"] for each in event["object"]["status"]["conditions"]] == ["PodScheduled"]
