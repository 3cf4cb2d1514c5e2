"""What the content of a request says, and what is odd about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.custom import POD_GROUP
from tests.tinykube.server.rules.objects import named, pod
from tinykube.server import kinds, rules
from tinykube.status import ApiError

ODD = (
    b'{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "name": "b"}, "Data": {}, "data": {"k": "v"}}'
)
COMPACT = ODD.replace(b": ", b":").replace(b", ", b",")
TOLD = ['duplicate field "metadata.name"', 'unknown field "Data"']


@pytest.mark.parametrize("written", [ODD, COMPACT])
def test_strict_reading_refuses_what_is_unknown_or_there_twice(written: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        rules.read(kinds.CONFIG_MAP, written, "Strict")
    assert refused.value.code == 400
    assert refused.value.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: ' + ", ".join(TOLD)
    )


@pytest.mark.parametrize(("validation", "warnings"), [("Warn", TOLD), ("Ignore", [])])
def test_otherwise_it_is_dropped(validation: str, warnings: list[str]) -> None:
    object, told = rules.read(kinds.CONFIG_MAP, ODD, validation)
    assert told == warnings
    assert object["metadata"]["name"] == "b"
    assert object["data"] == {"k": "v"}
    assert "Data" not in object


def test_an_object_reads_as_its_bytes_do() -> None:
    given = pod({"spec.containers[0].resources": {"limits": {"cpu": 3000}}})
    assert rules.read(kinds.POD, given, "Strict") == rules.read(kinds.POD, json.dumps(given).encode(), "Strict")


def test_what_is_read_is_not_what_was_given() -> None:
    given = pod({"metadata.labels": {"a": "b"}, "spec.containers[0].command": ["x"]})
    before = json.dumps(given)
    object, _ = rules.read(kinds.POD, given, "Strict")
    object["metadata"]["labels"]["c"] = "d"
    object["spec"]["containers"][0]["command"].append("y")
    object["spec"]["containers"][0]["resources"]["limits"] = {}
    assert json.dumps(given) == before


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("3000", "3k"),
        (3000, "3k"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.0001", "1m"),
        (1.5, "1500m"),
    ],
)
def test_amounts_are_written_in_one_way(written: Any, canonical: str) -> None:
    given = pod({"spec.containers[0].resources": {"limits": {"memory": written}}})
    object, _ = rules.read(kinds.POD, given)
    assert object["spec"]["containers"][0]["resources"] == {
        "limits": {"memory": canonical},
        "requests": {"memory": canonical},
    }


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z"),
        ("2024-02-29T23:59:59.999+00:30", "2024-02-29T23:29:59Z"),
        ("2024-12-31T23:59:59-00:30", "2025-01-01T00:29:59Z"),
    ],
)
def test_times_are_in_utc(written: str, canonical: str) -> None:
    object, _ = rules.read(kinds.EVENT, named("Event", {"firstTimestamp": written}))
    assert object["firstTimestamp"] == canonical


def test_texts_of_a_secret_become_its_data() -> None:
    given = named("Secret", {"stringData": {"a": "x"}, "data": {"a": "eQ==", "b": "eg=="}})
    object, _ = rules.read(kinds.SECRET, given)
    assert object["data"] == {"a": "eA==", "b": "eg=="}
    assert "stringData" not in object


@pytest.mark.parametrize("text", [b"{", b'{"a" 1}', b"{'a':1}", b'{"a":[1 2]}', b'{"a":01}', b"{} x", b"", b"[]"])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(ApiError, match="the object provided is unrecognized .must be of type Pod") as refused:
        rules.read(kinds.POD, text)
    assert refused.value.code == 400


GROUP = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "a", "namespace": "default", "labels": None},
    "spec": {"queue": None, "minMember": None, "minTaskMember": {"a": None}},
}


def test_nulls_of_custom_kinds_are_dropped() -> None:
    object, _ = rules.read(POD_GROUP, GROUP, "Strict")
    assert object["metadata"] == {"name": "a", "namespace": "default"}
    assert object["spec"] == {"queue": "default", "minTaskMember": {}}


def test_nulls_of_applied_custom_kinds_stay_where_there_is_no_default() -> None:
    object, _ = rules.read(POD_GROUP, GROUP, "Strict", applied=True)
    assert object["metadata"] == {"name": "a", "namespace": "default"}
    assert object["spec"] == {"queue": "default", "minMember": None, "minTaskMember": {"a": None}}


def test_of_several_wrong_fields_of_metadata_custom_kinds_tell_the_first_by_name() -> None:
    with pytest.raises(ApiError) as refused:
        rules.read(POD_GROUP, {**GROUP, "metadata": {"name": 0, "labels": {"x": {}}}})
    assert "ObjectMeta.labels of type string" in refused.value.message


@pytest.mark.parametrize("value", [False, 0, [], {}])
def test_a_kind_is_a_text(value: Any) -> None:
    with pytest.raises(ApiError) as refused:
        rules.read(POD_GROUP, {**GROUP, "kind": value})
    assert refused.value.code == 400
    assert "into Go struct field .kind of type string" in refused.value.message


@pytest.mark.parametrize(
    ("escaped", "kept"),
    [
        (r"\ud800", "\ufffd"),
        (r"\uDC00x", "\ufffdx"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\\ud800", r"\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\"\ud7ff", '"\ud7ff'),
    ],
)
def test_half_a_character_becomes_a_mark_as_in_go(escaped: str, kept: str) -> None:
    content = f'{{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {{}}, "data": {{"x": "{escaped}"}}}}'
    assert rules.read(kinds.CONFIG_MAP, content.encode())[0]["data"] == {"x": kept}


@pytest.mark.parametrize("content", ["{}".encode("utf-16"), b'{"a": "\xed\xa0\x80"}', b"\xef\xbb\xbf{}"])
def test_a_text_must_be_utf_8(content: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        rules.read(kinds.CONFIG_MAP, content)
    assert caught.value.code == 400
