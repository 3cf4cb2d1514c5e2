"""Lists that are read in pages show one moment."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest

from tests.support.talk import CONFIG_MAPS, Json, Talk, config_map
from tinykube.server.kinds import CONFIG_MAP
from tinykube.server.server import Server
from tinykube.server.store import Store


async def filled(count: int, history: int = 8192) -> Talk:
    talk = Talk(Server(Store(history=history)))
    for number in range(count):
        await talk.create(CONFIG_MAPS, config_map(f"c{number}", {"odd": str(number % 2)}))
    return talk


def names(listed: Json) -> list[str]:
    return [each["metadata"]["name"] for each in listed["items"]]


def token(**fields: Any) -> str:
    """A token to continue with, made by somebody else."""
    content = msgspec.json.encode({"v": "meta.k8s.io/v1", **fields})
    return urlsafe_b64encode(content).decode().rstrip("=")


async def test_pages_follow_each_other() -> None:
    talk = await filled(5)
    first = await talk.get(CONFIG_MAPS, limit=2)
    assert names(first) == ["c0", "c1"]
    assert first["metadata"]["remainingItemCount"] == 3
    second = await talk.get(CONFIG_MAPS, limit=2, **{"continue": first["metadata"]["continue"]})
    third = await talk.get(CONFIG_MAPS, limit=2, **{"continue": second["metadata"]["continue"]})
    assert names(second) + names(third) == ["c2", "c3", "c4"]
    assert "continue" not in third["metadata"]


async def test_a_page_that_holds_everything_is_the_last() -> None:
    talk = await filled(2)
    only = await talk.get(CONFIG_MAPS, limit=2)
    assert (names(only), only["metadata"].keys()) == (["c0", "c1"], {"resourceVersion"})


async def test_a_page_of_a_version_shows_exactly_that() -> None:
    talk = await filled(1)
    then = talk.server.registry.store.revision
    await talk.create(CONFIG_MAPS, config_map("a"))
    assert names(await talk.get(CONFIG_MAPS, limit=1, resourceVersion=then)) == ["c0"]
    assert names(await talk.get(CONFIG_MAPS, resourceVersion=then)) == ["a", "c0"], "without a limit it is the least"


async def test_pages_of_one() -> None:
    talk = await filled(2)
    assert names(await talk.get(CONFIG_MAPS, limit=1)) == ["c0"]


async def test_an_object_can_be_listed_by_its_name() -> None:
    talk = await filled(2)
    for path in (CONFIG_MAPS, "/api/v1/configmaps"):
        for name, found in (("c1", ["c1"]), ("missing", [])):
            assert names(await talk.get(path, fieldSelector=f"metadata.name={name}")) == found


async def test_the_oldest_version_that_is_remembered() -> None:
    talk = await filled(40, history=8)
    oldest = talk.server.registry.store.log(CONFIG_MAP).forgotten
    exact = {"resourceVersionMatch": "Exact"}
    assert (await talk.send("GET", CONFIG_MAPS, resourceVersion=oldest - 1, **exact)).code == 410
    assert len(names(await talk.get(CONFIG_MAPS, resourceVersion=oldest, **exact))) < 40
    first = await talk.get(CONFIG_MAPS, limit=1, resourceVersion=oldest)
    rest = await talk.get(CONFIG_MAPS, **{"continue": first["metadata"]["continue"]})
    assert rest["metadata"]["resourceVersion"] == str(oldest)
    present = talk.server.registry.store.revision
    assert len(names(await talk.get(CONFIG_MAPS, resourceVersion=present))) == 40


async def test_later_pages_show_the_moment_of_the_first() -> None:
    talk = await filled(4)
    first = await talk.get(CONFIG_MAPS, limit=2)
    await talk.send("DELETE", f"{CONFIG_MAPS}/c2")
    await talk.patch(f"{CONFIG_MAPS}/c3", "merge", {"data": {"new": "1"}})
    await talk.create(CONFIG_MAPS, config_map("c9"))
    second = await talk.get(CONFIG_MAPS, **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c2", "c3"]
    assert "data" not in second["items"][1]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_moment_that_is_forgotten_can_be_continued_with_the_present() -> None:
    talk = await filled(4, history=8)
    first = await talk.get(CONFIG_MAPS, limit=2)
    for number in range(30):
        await talk.patch(f"{CONFIG_MAPS}/c3", "merge", {"data": {"n": str(number)}})
    answer = await talk.send("GET", CONFIG_MAPS, **{"continue": first["metadata"]["continue"]})
    assert (answer.code, answer.body["reason"]) == (410, "Expired")
    rest = await talk.get(CONFIG_MAPS, **{"continue": answer.body["metadata"]["continue"]})
    assert names(rest) == ["c2", "c3"]
    assert rest["items"][1]["data"] == {"n": "29"}


async def test_pages_of_a_selection_do_not_count_what_remains() -> None:
    talk = await filled(6)
    first = await talk.get(CONFIG_MAPS, limit=2, labelSelector="odd=1")
    assert names(first) == ["c1", "c3"]
    assert "remainingItemCount" not in first["metadata"]
    rest = await talk.get(CONFIG_MAPS, labelSelector="odd=1", **{"continue": first["metadata"]["continue"]})
    assert names(rest) == ["c5"]


async def test_the_limit_does_not_count_for_any_version() -> None:
    talk = await filled(3)
    assert len(names(await talk.get(CONFIG_MAPS, limit=1, resourceVersion="0"))) == 3


async def test_a_list_of_an_exact_moment() -> None:
    talk = await filled(2)
    then = talk.server.registry.store.revision
    await talk.create(CONFIG_MAPS, config_map("later"))
    exact = await talk.get(CONFIG_MAPS, resourceVersion=then, resourceVersionMatch="Exact")
    assert names(exact) == ["c0", "c1"]
    assert "later" in names(await talk.get(CONFIG_MAPS, resourceVersion=then, resourceVersionMatch="NotOlderThan"))


async def test_versions_of_the_future() -> None:
    talk = await filled(1)
    for path in (CONFIG_MAPS, f"{CONFIG_MAPS}/c0"):
        answer = await talk.send("GET", path, resourceVersion="99999")
        assert (answer.code, answer.body["reason"]) == (504, "Timeout")
        assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"continue": "x"}, "invalid continue token: continue key is not valid"),
        (
            {"continue": token(rv=1, start="../secrets")},
            "invalid continue token: continue key is not valid: ../secrets",
        ),
        ({"continue": token(rv=1, start="a//b")}, "invalid continue token: continue key is not valid: a//b"),
        ({"continue": token(rv=0, start="x")}, "invalid continue token: continue key is not valid: incorrect encoded"),
        ({"continue": token(rv=1, start="")}, "invalid continue token: continue key is not valid: encoded start key"),
        ({"continue": token(v="x")}, "invalid continue token: continue key is not valid: server does not recognize"),
        ({"resourceVersion": "x"}, "invalid resource version: resourceVersion: Invalid value"),
        ({"limit": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"continue": token(rv=1, start="x"), "resourceVersion": "5"},
            "specifying resource version is not allowed when using continue",
        ),
    ],
)
async def test_what_makes_no_sense_is_a_bad_request(query: dict[str, str], message: str) -> None:
    answer = await (await filled(0)).send("GET", CONFIG_MAPS, **query)
    assert answer.code == 400
    assert answer.body["message"].startswith(message)
