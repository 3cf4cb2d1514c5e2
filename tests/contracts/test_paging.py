"""Lists in pages, and lists of a moment."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from tests.contracts.space import Space


def fill(space: Space, names: str) -> None:
    for name in names:
        space.post("configmaps", {"metadata": {"name": name, "labels": {"odd": str(ord(name) % 2)}}}).must(201)


def page(space: Space, what: str = "configmaps", **query: Any) -> tuple[list[str], dict[str, Any]]:
    """Names, and the metadata of the list."""
    found = space.get(what, **query).must(200)
    return [each["metadata"]["name"] for each in found["items"]], found["metadata"]


def test_pages_follow_each_other(space: Space) -> None:
    fill(space, "abcde")
    first, metadata = page(space, limit=2)
    assert (first, metadata["remainingItemCount"]) == (["a", "b"], 3)
    second, after = page(space, limit=2, **{"continue": metadata["continue"]})
    assert (second, after["remainingItemCount"]) == (["c", "d"], 1)
    assert after["resourceVersion"] == metadata["resourceVersion"]
    last, end = page(space, limit=2, **{"continue": after["continue"]})
    assert last == ["e"]
    assert set(end) == {"resourceVersion"}


def test_a_page_as_large_as_the_list_is_the_last(space: Space) -> None:
    fill(space, "ab")
    names, metadata = page(space, limit=2)
    assert names == ["a", "b"]
    assert set(metadata) == {"resourceVersion"}


def test_a_limit_of_nothing_is_no_limit(space: Space) -> None:
    fill(space, "ab")
    assert page(space, limit=0)[0] == ["a", "b"]


def test_pages_show_one_moment_while_objects_change(space: Space) -> None:
    fill(space, "abcd")
    names, metadata = page(space, limit=2)
    space.delete("configmaps/c").must()
    space.merge("configmaps/d", {"data": {"x": "new"}}).must()
    fill(space, "e")
    answer = space.get("configmaps", limit=5, **{"continue": metadata["continue"]}).must(200)
    assert names == ["a", "b"]
    assert [(each["metadata"]["name"], each.get("data")) for each in answer["items"]] == [("c", None), ("d", None)]


def test_the_second_page_may_have_another_size(space: Space) -> None:
    fill(space, "abcde")
    _, metadata = page(space, limit=1)
    assert page(space, **{"continue": metadata["continue"]})[0] == ["b", "c", "d", "e"]


def test_pages_of_a_selection_do_not_say_how_many_remain(space: Space) -> None:
    fill(space, "abcdef")
    first, metadata = page(space, limit=2, labelSelector="odd=1")
    assert first == ["a", "c"]
    assert set(metadata) == {"resourceVersion", "continue"}
    rest, end = page(space, limit=2, labelSelector="odd=1", **{"continue": metadata["continue"]})
    assert rest == ["e"]
    assert set(end) == {"resourceVersion"}


def test_pages_of_custom_resources(space: Space) -> None:
    for name in "abc":
        space.post("podgroups", {"metadata": {"name": name}, "spec": {"minMember": 1}}).must(201)
    first, metadata = page(space, "podgroups", limit=2)
    assert (first, metadata["remainingItemCount"]) == (["a", "b"], 1)
    assert page(space, "podgroups", limit=2, **{"continue": metadata["continue"]})[0] == ["c"]


def test_pages_of_tables(space: Space) -> None:
    fill(space, "abc")
    first = space.table("configmaps", limit=2).must(200)
    assert [each["cells"][0] for each in first["rows"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = space.table("configmaps", limit=2, **{"continue": first["metadata"]["continue"]}).must(200)
    assert [each["cells"][0] for each in rest["rows"]] == ["c"]


def test_pages_of_all_namespaces(space: Space) -> None:
    fill(space, "abc")
    where = space.everywhere("configmaps")
    seen: list[str] = []
    query: dict[str, Any] = {}
    while True:
        answer = space.get(where, limit=2, **query).must(200)
        assert len(answer["items"]) <= 2
        seen += [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in answer["items"]]
        token = answer["metadata"].get("continue")
        if not token:
            break
        query = {"continue": token}
    assert [each for each in seen if each.startswith(f"{space}/")] == [f"{space}/{name}" for name in "abc"]
    assert seen == sorted(seen)


def test_a_list_at_a_moment(space: Space) -> None:
    fill(space, "a")
    moment = space.get("configmaps").must(200)["metadata"]["resourceVersion"]
    fill(space, "b")
    space.delete("configmaps/a").must()
    assert page(space)[0] == ["b"]
    names, metadata = page(space, resourceVersion=moment, resourceVersionMatch="Exact")
    assert (names, metadata["resourceVersion"]) == (["a"], moment)


def test_a_list_that_is_at_least_as_new(space: Space) -> None:
    fill(space, "a")
    moment = space.get("configmaps/a").must(200)["metadata"]["resourceVersion"]
    fill(space, "b")
    for asked in ({"resourceVersion": moment}, {"resourceVersion": moment, "resourceVersionMatch": "NotOlderThan"}):
        names, metadata = page(space, **asked)
        assert "a" in names
        assert int(metadata["resourceVersion"]) >= int(moment)
    assert space.get("configmaps/a", resourceVersion=moment).must(200)["metadata"]["resourceVersion"] == moment
    assert space.get("configmaps/a", resourceVersion="0").code == 200


def test_a_token_of_a_moment_that_is_forgotten(space: Space, forget: Callable[[Space], None]) -> None:
    fill(space, "abc")
    _, metadata = page(space, limit=1)
    forget(space)
    token = metadata["continue"]
    place = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    old = base64.urlsafe_b64encode(json.dumps({**place, "rv": 1}).encode()).decode().rstrip("=")
    answer = space.get("configmaps", limit=1, **{"continue": old})
    assert (answer.code, answer.reason) == (410, "Expired")
    assert answer.message.startswith("The provided continue parameter is too old to display a consistent list result.")
    names, _ = page(space, **{"continue": answer.json["metadata"]["continue"]})
    assert {"b", "c"} <= set(names)


def test_a_moment_that_is_forgotten(space: Space, forget: Callable[[Space], None]) -> None:
    forget(space)
    answer = space.get("configmaps", resourceVersion="1", resourceVersionMatch="Exact")
    assert (answer.code, answer.reason) == (410, "Expired")
    assert answer.message == "The resourceVersion for the provided list is too old."


def test_a_moment_that_has_not_come(space: Space) -> None:
    for asked in ({}, {"resourceVersionMatch": "Exact"}):
        answer = space.get("configmaps", resourceVersion="999999999", **asked)
        assert (answer.code, answer.reason) == (504, "Timeout")
        assert answer.message.startswith("Timeout: Too large resource version: 999999999, current: ")
        assert answer.json["details"] == {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }
        assert answer.headers["Retry-After"] == "1"
