"""Patches in requests: what is odd about them, and whose fault it is if the patched object makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.talk import CONFIG_MAPS, PODS, Talk, config_map, pod


@pytest.fixture
async def talk() -> Talk:
    talk = Talk()
    await talk.create(CONFIG_MAPS, config_map("a", x="1"))
    await talk.create(PODS, pod())
    return talk


async def refused(talk: Talk, path: str, kind: str, body: Any, **options: Any) -> Any:
    answer = await talk.send("PATCH", path, body, patch=kind, **options)
    assert answer.code >= 400, answer.body
    return answer.body


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("merge", {"data": {"x": None, "y": "2"}}, {"y": "2"}),
        ("json", [{"op": "add", "path": "/data/y", "value": "2"}], {"x": "1", "y": "2"}),
        ("strategic", {"data": {"y": "2"}}, {"x": "1", "y": "2"}),
    ],
)
async def test_three_ways_to_change_an_object(talk: Talk, kind: str, body: Any, expected: dict[str, str]) -> None:
    assert (await talk.patch(f"{CONFIG_MAPS}/a", kind, body))["data"] == expected


async def test_lists_of_built_in_kinds_merge_by_key(talk: Talk) -> None:
    patch = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    (container,) = (await talk.patch(f"{PODS}/p", "strategic", patch))["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("other", "Always")


@pytest.mark.parametrize("kind", ["merge", "strategic"])
async def test_keys_that_come_twice(talk: Talk, kind: str) -> None:
    body = b'{"data": {"x": "2", "x": "3"}}'
    answer = await talk.send("PATCH", f"{CONFIG_MAPS}/a", body, patch=kind)
    assert answer.body["data"] == {"x": "3"}
    assert answer.headers["warning"] == '299 - "duplicate field \\"data.x\\""'
    told = await refused(talk, f"{CONFIG_MAPS}/a", kind, body, fieldValidation="Strict")
    assert 'strict decoding error: duplicate field "data.x"' in told["message"]


async def test_what_a_patch_spoils_is_its_own_fault(talk: Talk) -> None:
    told = await refused(talk, f"{CONFIG_MAPS}/a", "merge", {"data": {"x": 5}})
    assert (told["code"], told["details"]["causes"][0]["field"]) == (422, "patch")
    assert told["message"].endswith("json: cannot unmarshal number into Go struct field ConfigMap.data of type string")


@pytest.mark.parametrize("value", [{"spec": {"containers": "x"}}, {"spec": "x"}, {"spec": {"hostNetwork": "x"}}])
async def test_strategic_patches_name_the_field_of_a_wrong_type(talk: Talk, value: Any) -> None:
    told = await refused(talk, f"{PODS}/p", "strategic", value)
    assert (told["code"], told["details"]["causes"][0]["field"]) == (422, "patch")
    assert "cannot unmarshal string into Go struct field" in told["message"]


@pytest.mark.parametrize("kind", ["merge", "json", "strategic"])
async def test_text_that_is_no_patch(talk: Talk, kind: str) -> None:
    told = await refused(talk, f"{CONFIG_MAPS}/a", kind, b"x")
    assert (told["code"], told["reason"]) == (400, "BadRequest")
    assert (await refused(talk, f"{CONFIG_MAPS}/missing", kind, b"x"))["code"] == 404, "nobody reads it then"


async def test_operations_that_do_not_apply(talk: Talk) -> None:
    told = await refused(talk, f"{CONFIG_MAPS}/a", "json", [{"op": "test", "path": "/data/x", "value": "9"}])
    assert (told["code"], told["reason"], told["details"]) == (422, "Invalid", {})


async def test_keys_that_come_twice_in_an_apply_are_named_by_line(talk: Talk) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\ndata:\n  k: a\n  k: b\n"
    answer = await talk.send("PATCH", f"{CONFIG_MAPS}/b", text, patch="apply", fieldManager="me")
    assert (answer.code, answer.headers["warning"]) == (201, '299 - "line 7: key \\"k\\" already set in map"')
    options = {"fieldManager": "me", "fieldValidation": "Strict"}
    told = await refused(talk, f"{CONFIG_MAPS}/b", "apply", text, **options)
    assert told["message"].startswith(
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:"
    )
    told = await refused(talk, f"{CONFIG_MAPS}/b", "apply", b": {", fieldManager="me")
    assert told["message"] == "error decoding YAML: error converting YAML to JSON: yaml: did not find expected key"


@pytest.mark.parametrize("media", ["merge", "strategic", "json"])
async def test_half_a_character_in_a_patch_becomes_a_mark_as_in_an_object(talk: Talk, media: str) -> None:
    value = rb'{"x": "\ud800 \ud83d\ude00"}'
    patch = b'[{"op": "add", "path": "/data", "value": %b}]' if media == "json" else b'{"data": %b}'
    answer = await talk.send("PATCH", f"{CONFIG_MAPS}/a", patch % value, patch=media)
    assert (answer.code, answer.body["data"]["x"]) == (200, "\ufffd \U0001f600")
