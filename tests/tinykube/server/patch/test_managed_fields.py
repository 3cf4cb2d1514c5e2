from __future__ import annotations

from typing import Any

import pytest

from tests.support.custom import QUEUE
from tinykube.server.kinds import CONFIG_MAP, LEASE, NODE, POD, Kind
from tinykube.server.patch import managed_fields

Json = dict[str, Any]

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def written(
    old: Json | None, new: Json, *, kind: Kind = CONFIG_MAP, manager: str = "me", now: str = NOW, subresource: str = ""
) -> Json:
    new = {"apiVersion": kind.api_version, "kind": kind.kind, **new}
    new["metadata"] = {"name": "x", **({} if old is None else {"uid": "1"}), **new.get("metadata", {})}
    return managed_fields.updated(old, new, kind, manager=manager, now=now, subresource=subresource)


def changed(old: Json, manager: str = "me", now: str = NOW, kind: Kind = CONFIG_MAP, **fields: Any) -> Json:
    """The object after somebody wrote some fields, keeping the rest, as a patch does."""
    return written(old, {**old, **fields}, manager=manager, now=now, kind=kind)


def owned(object: Json) -> dict[str, Any]:
    """Who owns what, by `manager` or `manager/subresource`."""
    return {
        each["manager"] + (f"/{each['subresource']}" if "subresource" in each else ""): each["fieldsV1"]
        for each in object["metadata"].get("managedFields", [])
    }


def times(object: Json) -> dict[str, str]:
    return {each["manager"]: each["time"] for each in object["metadata"]["managedFields"]}


def test_who_creates_an_object_owns_what_is_in_it() -> None:
    created = written(None, {"metadata": {"labels": {"a": "1"}}, "data": {"k": "v"}})
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "me", "operation": "Update", "apiVersion": "v1", "time": NOW, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:data": {".": {}, "f:k": {}}},
        }
    ]  # fmt: skip


def test_what_a_type_always_has_is_not_gained() -> None:
    """`spec` and `spec.containers` are there before anything is set, so they get no dot of their own."""
    created = written(None, {"spec": {"containers": [{"name": "m", "image": "x"}]}}, kind=POD)
    container: Json = {".": {}, "f:name": {}, "f:image": {}}
    assert owned(created) == {"me": {"f:spec": {"f:containers": {'k:{"name":"m"}': container}}}}


def test_of_a_custom_kind_nothing_is_always_there() -> None:
    assert owned(written(None, {"spec": {"weight": 1}}, kind=QUEUE)) == {"me": {"f:spec": {".": {}, "f:weight": {}}}}


def test_an_update_takes_what_it_changes() -> None:
    created = written(None, {"data": {"a": "1", "b": "1"}}, manager="first", now=THEN)
    after = changed(created, "second", data={"a": "2", "b": "1", "c": "1"})
    assert owned(after) == {
        "first": {"f:data": {".": {}, "f:b": {}}},
        "second": {"f:data": {"f:a": {}, "f:c": {}}},
    }
    assert times(after) == {"first": THEN, "second": NOW}


def test_what_is_removed_belongs_to_nobody() -> None:
    created = written(None, {"data": {"a": "1", "b": "1"}}, manager="first", now=THEN)
    assert owned(changed(created, "second", data={"b": "1"})) == {"first": {"f:data": {".": {}, "f:b": {}}}}


def test_writing_what_is_there_gains_nothing_and_keeps_the_time() -> None:
    created = written(None, {"data": {"a": "1"}}, manager="first", now=THEN)
    after = changed(created, "second", data={"a": "1"})
    assert after["metadata"]["managedFields"] == created["metadata"]["managedFields"]


def test_a_second_update_adds_to_the_first_and_renews_its_time() -> None:
    created = written(None, {"data": {"a": "1"}}, now=THEN)
    after = changed(created, data={"a": "1", "b": "1"})
    assert owned(after) == {"me": {"f:data": {".": {}, "f:a": {}, "f:b": {}}}}
    assert times(after) == {"me": NOW}


def test_names_and_other_stamps_belong_to_nobody() -> None:
    stamps = {"uid": "1", "resourceVersion": "7", "generation": 2, "creationTimestamp": THEN, "selfLink": "/x"}
    assert owned(written(None, {"metadata": stamps, "data": {"a": "1"}})) == {"me": {"f:data": {".": {}, "f:a": {}}}}


def test_a_status_that_is_sent_with_the_object_belongs_to_nobody() -> None:
    created = written(None, {"spec": {}, "status": {"phase": "Running"}}, kind=NODE, manager="first", now=THEN)
    assert owned(created) == {}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (NODE, {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:status": {"f:phase": {}}}),
        (POD, {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:status": {"f:phase": {}}}),
        (QUEUE, {"f:status": {"f:phase": {}}}),
    ],
)
def test_what_a_write_of_a_status_owns(kind: Kind, expected: Any) -> None:
    """Labels can be written with a status, but not those of custom kinds; a pod's owners never."""
    created = written(None, {"metadata": {"annotations": {"b": "1"}}, "spec": {}, "status": {}}, kind=kind, now=THEN)
    metadata = {**created["metadata"], "labels": {"a": "1"}}
    if kind is POD:
        metadata["ownerReferences"] = [{"uid": "2"}]
    sent = {**created, "metadata": metadata, "spec": {"x": 1}, "status": {"phase": "Running"}}
    after = written(created, sent, kind=kind, manager="kubelet", subresource="status")
    assert owned(after)["kubelet/status"] == expected


def test_a_client_that_knows_nothing_of_managed_fields_does_not_remove_them() -> None:
    created = written(None, {"data": {"a": "1"}}, manager="first", now=THEN)
    metadata = {key: value for key, value in created["metadata"].items() if key != "managedFields"}
    assert owned(changed(created, "second", metadata=metadata)) == owned(created)


@pytest.mark.parametrize("nothing", [[], [{}]])
def test_managed_fields_can_be_given_up(nothing: list[Json]) -> None:
    created = written(None, {"data": {"a": "1"}}, now=THEN)
    without = changed(created, metadata={**created["metadata"], "managedFields": nothing})
    assert "managedFields" not in without["metadata"]
    assert "managedFields" not in changed(without, data={"a": "2"})["metadata"]


def test_managed_fields_can_be_rewritten_as_kubectl_does_to_migrate() -> None:
    """`kubectl apply --server-side` renames its older entry by a JSON patch of managedFields."""
    created = written(None, {"data": {"a": "1"}}, manager="kubectl-client-side-apply", now=THEN)
    [entry] = created["metadata"]["managedFields"]
    entry = {**entry, "manager": "kubectl", "operation": "Apply"}
    after = changed(created, metadata={**created["metadata"], "managedFields": [entry]})
    assert after["metadata"]["managedFields"] == [entry]


def test_managed_fields_that_mean_nothing_are_ignored() -> None:
    created = written(None, {"data": {"a": "1"}}, now=THEN)
    broken = [{"manager": "x", "operation": "Steal"}]
    after = changed(created, metadata={**created["metadata"], "managedFields": broken})
    assert owned(after) == owned(created)


def test_a_subresource_cannot_rewrite_managed_fields() -> None:
    created = written(None, {"spec": {"unschedulable": True}}, kind=NODE, now=THEN)
    sent = {**created, "metadata": {**created["metadata"], "managedFields": [{}]}}
    assert owned(written(created, sent, kind=NODE, subresource="status")) == owned(created)


def test_entries_of_versions_that_are_gone_go_too() -> None:
    created = written(None, {"data": {"a": "1"}}, now=THEN)
    [entry] = created["metadata"]["managedFields"]
    entries = [entry, {**entry, "manager": "old", "apiVersion": "v0"}]
    after = changed(created, metadata={**created["metadata"], "managedFields": entries})
    assert owned(after) == owned(created)


def test_a_list_that_cannot_be_tracked_ends_the_tracking() -> None:
    created = written(None, {"data": {"a": "1"}}, now=THEN)
    broken = {**created["metadata"], "ownerReferences": [3]}
    assert "managedFields" not in changed(created, metadata=broken)["metadata"]


def test_a_manager_without_a_name_is_unknown() -> None:
    assert owned(written(None, {"data": {"a": "1"}}, manager="")).keys() == {"unknown"}


def test_times_alone_are_no_change() -> None:
    created = written(None, {"spec": {"holderIdentity": "a"}}, kind=LEASE, now=THEN)
    entries = [{**each, "time": NOW} for each in created["metadata"]["managedFields"]]
    renewed = {**created, "metadata": {**created["metadata"], "managedFields": entries}}
    assert managed_fields.settled(created, renewed) == created
    other = {**renewed, "spec": {"holderIdentity": "b"}}
    assert managed_fields.settled(created, other) == other


def test_the_objects_that_are_given_stay_as_they_are() -> None:
    created = written(None, {"data": {"a": "1"}}, now=THEN)
    before, sent = repr(created), {**created, "data": {"a": "2"}}
    told = repr(sent)
    managed_fields.updated(created, sent, CONFIG_MAP, manager="me", now=NOW)
    assert (repr(created), repr(sent)) == (before, told)
