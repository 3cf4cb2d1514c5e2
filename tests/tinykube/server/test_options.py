"""What queries ask for, and how they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tinykube.server import options
from tinykube.server.options import DeleteOptions, ListOptions, WriteOptions
from tinykube.status import ApiError


def test_a_plain_list() -> None:
    assert options.listing({}) == ListOptions()
    asked = options.listing({"labelSelector": "a=b", "limit": "5", "continue": "t", "timeoutSeconds": "9"})
    assert (asked.labels, asked.limit, asked.continued, asked.timeout) == ("a=b", 5, "t", 9)


@pytest.mark.parametrize(
    ("query", "initial"),
    [
        ({}, True),
        ({"resourceVersion": "0"}, True),
        ({"resourceVersion": "5"}, None),
        ({"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}, False),
    ],
)
def test_a_watch_without_a_version_begins_with_the_present(query: dict[str, str], initial: bool | None) -> None:
    assert options.listing({"watch": "true", **query}).initial is initial


@pytest.mark.parametrize(
    ("query", "messages"),
    [
        ({"resourceVersionMatch": "Exact"}, ["resourceVersionMatch is forbidden unless resourceVersion is provided"]),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, ['"exact" is forbidden for resourceVersion "0"']),
        ({"resourceVersionMatch": "Some", "resourceVersion": "1"}, ['Unsupported value: "Some"']),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "1", "continue": "x"},
            ["resourceVersionMatch is forbidden when continue is provided"],
        ),
        ({"sendInitialEvents": "true"}, ["sendInitialEvents is forbidden for list"]),
        (
            {"watch": "1", "resourceVersionMatch": "Exact"},
            ["is forbidden for watch unless sendInitialEvents is provided", 'supported values: "NotOlderThan"'],
        ),
        ({"watch": "1", "sendInitialEvents": "1"}, ["requires setting resourceVersionMatch to NotOlderThan"]),
    ],
)
def test_lists_and_watches_that_contradict_themselves(query: dict[str, str], messages: list[str]) -> None:
    with pytest.raises(ApiError) as caught:
        options.listing(query)
    assert caught.value.code == 422
    assert len(caught.value.details["causes"]) == len(messages)
    for message in messages:
        assert message in caught.value.message


def test_who_writes() -> None:
    agent = "kubectl/v1.36.3 (linux/amd64)"
    assert options.writing({}, agent, options.CREATE) == WriteOptions("kubectl")
    assert options.writing({"fieldManager": "me", "dryRun": "All"}, agent, options.CREATE) == WriteOptions("me", True)
    assert options.writing({}, "ü" * 100, options.CREATE).manager == "ü" * 64, "at most 128 bytes"


@pytest.mark.parametrize(
    ("query", "applied", "message"),
    [
        ({"dryRun": "Some"}, False, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        ({"fieldValidation": "Some"}, False, "fieldValidation: Unsupported value"),
        ({"fieldManager": "x" * 129}, False, "fieldManager: Too long: may not be more than 128 bytes"),
        ({"fieldManager": "a\x07"}, False, "invalid character U+0007 (at position 1)"),
        ({"force": "true"}, False, "force: Forbidden: may not be specified for non-apply patch"),
        ({}, True, "fieldManager: Required value: is required for apply patch"),
    ],
)
def test_writes_that_make_no_sense(query: dict[str, str], applied: bool, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        options.writing(query, "", options.PATCH, applied)
    assert caught.value.message.startswith('PatchOptions.meta.k8s.io "" is invalid: ')
    assert message in caught.value.message


def test_deletions_by_query_and_by_body() -> None:
    query = {"gracePeriodSeconds": "5", "propagationPolicy": "Orphan", "dryRun": "All"}
    assert options.deleting(query) == DeleteOptions(5, policy="Orphan", dry_run=True)
    body: dict[str, Any] = {"gracePeriodSeconds": 0, "preconditions": {"uid": "u", "resourceVersion": "7"}}
    assert options.deletion({"apiVersion": "v1", "kind": "DeleteOptions", **body}) == DeleteOptions(0, "u", "7")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"propagationPolicy": "Some"}, 422, 'propagationPolicy: Unsupported value: "Some"'),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"dryRun": ["Some"]}, 422, "dryRun: Unsupported value"),
        ({"gracePeriodSeconds": "x"}, 400, "json: cannot unmarshal string into Go struct field"),
        ({"kind": "Pod", "apiVersion": "v1"}, 400, 'no kind "Pod" is registered for version "v1"'),
    ],
)
def test_deletions_that_make_no_sense(body: dict[str, Any], code: int, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        options.deletion(body)
    assert caught.value.code == code
    assert message in caught.value.message
