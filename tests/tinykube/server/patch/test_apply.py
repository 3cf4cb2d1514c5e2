from __future__ import annotations

import json
from typing import Any

import pytest

from tinykube.server.kinds import CONFIG_MAP, NODE, POD, Kind
from tinykube.server.patch import apply, managed_fields
from tinykube.status import ApiError

Json = dict[str, Any]

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def applied(
    live: Json | None,
    *,
    by: str = "me",
    kind: Kind = CONFIG_MAP,
    force: bool = False,
    now: str = NOW,
    subresource: str = "",
    metadata: Json | None = None,
    **fields: Any,
) -> Json:
    wanted = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "x", **(metadata or {})},
        **fields,
    }
    return apply.apply(live, wanted, kind, manager=by, force=force, now=now, subresource=subresource)


def updated(live: Json | None, by: str = "updater", now: str = THEN, **fields: Any) -> Json:
    start = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "uid": "1"}}
    return managed_fields.updated(live, {**(live or start), **fields}, CONFIG_MAP, manager=by, now=now)


def owned(object: Json) -> dict[str, Any]:
    return {each["manager"]: each["fieldsV1"] for each in object["metadata"].get("managedFields", [])}


def conflict(*arguments: Any, **more: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        applied(*arguments, **more)
    return caught.value


def test_what_is_applied_is_created_and_owned() -> None:
    created = applied(None, data={"a": "1"}, metadata={"labels": {"l": "1"}})
    assert created["data"] == {"a": "1"}
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "me", "operation": "Apply", "apiVersion": "v1", "time": NOW, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
        }
    ]  # fmt: skip


def test_managers_share_an_object_field_by_field() -> None:
    both = applied(applied(None, data={"a": "1"}), by="you", data={"b": "2"})
    assert both["data"] == {"a": "1", "b": "2"}
    assert owned(both) == {"me": {"f:data": {"f:a": {}}}, "you": {"f:data": {"f:b": {}}}}


def test_equal_values_are_shared_and_a_new_owner_of_the_same_has_no_time() -> None:
    both = applied(applied(None, data={"a": "1"}, now=THEN), by="you", data={"a": "1"})
    assert owned(both) == {"me": {"f:data": {"f:a": {}}}, "you": {"f:data": {"f:a": {}}}}
    assert {each["manager"]: each.get("time") for each in both["metadata"]["managedFields"]} == {
        "me": THEN,
        "you": None,
    }


def test_another_value_is_a_conflict() -> None:
    error = conflict(applied(None, data={"a": "1", "b": "1"}), by="you", data={"a": "2", "c": "1"})
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message == 'Apply failed with 1 conflict: conflict with "me": .data.a'
    assert error.details == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": ".data.a"}]
    }


def test_many_conflicts_are_listed_by_manager() -> None:
    live = updated(applied(None, data={"a": "1", "b": "1"}), data={"a": "1", "b": "1", "c": "1"})
    error = conflict(live, by="you", data={"c": "2", "b": "2", "a": "2"})
    assert error.message == (
        'Apply failed with 3 conflicts: conflicts with "me":\n- .data.a\n- .data.b\n'
        'conflicts with "updater" using v1:\n- .data.c'
    )
    assert len(error.details["causes"]) == 3


def test_force_takes_the_field_away() -> None:
    after = applied(applied(None, data={"a": "1", "b": "1"}), by="you", force=True, data={"a": "2"})
    assert after["data"] == {"a": "2", "b": "1"}
    assert owned(after) == {"me": {"f:data": {"f:b": {}}}, "you": {"f:data": {"f:a": {}}}}


def test_what_is_applied_no_longer_goes_away() -> None:
    after = applied(applied(None, data={"a": "1", "b": "1"}), data={"a": "1"})
    assert after["data"] == {"a": "1"}
    assert owned(after) == {"me": {"f:data": {"f:a": {}}}}


def test_what_somebody_else_owns_stays() -> None:
    both = applied(applied(None, data={"a": "1"}), by="you", data={"a": "1"})
    after = applied(both, metadata={"labels": {"l": "1"}})
    assert after["data"] == {"a": "1"}
    assert owned(after) == {"me": {"f:metadata": {"f:labels": {"f:l": {}}}}, "you": {"f:data": {"f:a": {}}}}


def test_what_nobody_applied_stays() -> None:
    live = updated(applied(None, data={"a": "1"}), data={"a": "1", "b": "1"})
    after = applied(live, metadata={})
    assert after["data"] == {"b": "1"}
    assert owned(after) == {"updater": {"f:data": {"f:b": {}}}}


def test_names_survive_when_all_other_metadata_is_given_up() -> None:
    after = applied(applied(None, metadata={"labels": {"l": "1"}}, data={"a": "1"}), data={"a": "1"})
    assert after["metadata"]["name"] == "x"
    assert "labels" not in after["metadata"]


def test_the_first_apply_finds_fields_that_nobody_was_noted_for() -> None:
    live = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "uid": "1"},
        "data": {"a": "1", "b": "1"},
    }
    after = applied(live, data={"a": "1"})
    assert owned(after) == {
        "me": {"f:data": {"f:a": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
    }
    error = conflict(live, data={"a": "2"})
    assert error.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'


CONTAINERS: list[Json] = [{"name": "m", "image": "x", "ports": [{"containerPort": 80}]}, {"name": "n", "image": "y"}]


def test_items_of_lists_are_owned_one_by_one() -> None:
    live = applied(None, kind=POD, spec={"containers": CONTAINERS[:1]})
    both = applied(live, by="you", kind=POD, spec={"containers": CONTAINERS[1:]})
    assert [each["name"] for each in both["spec"]["containers"]] == ["m", "n"]
    alone = applied(both, kind=POD, spec={})
    assert [each["name"] for each in alone["spec"]["containers"]] == ["n"]


def test_a_port_without_a_protocol_is_the_one_with_the_default() -> None:
    live = applied(None, kind=POD, spec={"containers": CONTAINERS[:1]})
    stored = {**live, "spec": {"containers": [{**CONTAINERS[0], "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}
    again = applied(stored, by="you", kind=POD, spec={"containers": CONTAINERS[:1]})
    assert again["spec"] == stored["spec"]
    other = [{"containerPort": 80, "protocol": "UDP"}]
    two = applied(stored, by="you", kind=POD, spec={"containers": [{**CONTAINERS[0], "ports": other}]})
    assert len(two["spec"]["containers"][0]["ports"]) == 2


def test_an_atomic_list_is_owned_as_a_whole() -> None:
    live = applied(None, kind=POD, spec={"tolerations": [{"key": "a"}]})
    error = conflict(live, by="you", kind=POD, spec={"tolerations": [{"key": "b"}]})
    assert error.message == 'Apply failed with 1 conflict: conflict with "me": .spec.tolerations'


def test_a_status_is_applied_through_its_subresource_only() -> None:
    live = applied(None, kind=NODE, spec={"unschedulable": True}, status={"phase": "Running"})
    assert owned(live) == {"me": {"f:spec": {"f:unschedulable": {}}}}
    after = applied(
        live, by="kubelet", kind=NODE, subresource="status", spec={"podCIDR": "x"}, status={"phase": "Running"}
    )
    assert owned(after)["kubelet"] == {"f:status": {"f:phase": {}}}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"apiVersion": "v2", "kind": "Pod"}, "invalid object type: /v2, Kind=Pod"),
        ({"apiVersion": "a.io/v1", "kind": "Pod"}, "invalid object type: a.io/v1, Kind=Pod"),
        ({"apiVersion": "v1", "kind": "Zork"}, "invalid object type: /v1, Kind=Zork"),
        ({}, "invalid object type: /, Kind="),
    ],
)
def test_only_objects_of_the_kind_are_applied(wanted: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        apply.apply(None, wanted, POD, manager="me", force=False, now=NOW)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (400, "BadRequest", message)


def test_managed_fields_cannot_be_applied() -> None:
    error = conflict(None, metadata={"managedFields": []})
    assert (error.code, error.reason, error.message) == (400, "BadRequest", "metadata.managedFields must be nil")


def test_what_is_not_as_the_schema_says_cannot_be_applied() -> None:
    error = conflict(None, kind=POD, metadata={"namespace": "n"}, spec={"zork": 1})
    where = "failed to create typed patch object (n/x; /v1, Kind=Pod)"
    assert (error.code, error.reason, error.message) == (500, "", f"{where}: .spec.zork: field not declared in schema")


def test_a_name_that_is_no_text_is_not_told() -> None:
    error = conflict(None, metadata={"name": -1})
    where = "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata.name"
    assert error.message == f"{where}: expected string, got &value.valueUnstructured{{Value:-1}}"


def test_what_was_written_in_another_version_belongs_to_nobody() -> None:
    live = applied(None, data={"a": "1", "b": "1"})
    live["metadata"]["managedFields"][0]["apiVersion"] = "v0"
    after = applied(live, by="you", data={"a": "2"})
    assert owned(after) == {"you": {"f:data": {"f:a": {}}}}
    assert applied(live, data={"a": "1"})["data"] == {"a": "1", "b": "1"}


def test_nothing_is_applied_to_an_object_whose_items_cannot_be_told_apart() -> None:
    live = updated(None, data={"a": "1"})
    live["metadata"]["finalizers"] = [None]
    error = conflict(live, data={"a": "1"})
    assert error.message.startswith(
        "failed to create typed live object (/x; /v1, Kind=ConfigMap): .metadata.finalizers"
    )


def last_applied(data: Json) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data})


def client_side(data: Json) -> Json:
    """An object that `kubectl apply` made in its older way."""
    metadata = {"name": "x", "uid": "1", "annotations": {apply.LAST_APPLIED: last_applied(data)}}
    return updated(None, by="kubectl-client-side-apply", metadata=metadata, data=data)


def test_kubectl_takes_over_what_it_applied_in_its_older_way() -> None:
    live = client_side({"a": "1"})
    assert conflict(live, by="other", data={"a": "2"}).code == 409
    after = applied(live, by="kubectl", data={"a": "2"})
    assert after["data"] == {"a": "2"}
    assert owned(after)["kubectl"] == {"f:data": {"f:a": {}}}


def test_kubectl_does_not_take_what_was_changed_since() -> None:
    live = updated(client_side({"a": "1", "b": "1"}), data={"a": "9", "b": "1"})
    error = conflict(live, by="kubectl", data={"a": "2", "b": "2"})
    assert error.message == 'Apply failed with 1 conflict: conflict with "updater" using v1: .data.a'


def test_kubectl_keeps_its_annotation_up_to_date() -> None:
    after = applied(client_side({"a": "1"}), by="kubectl", data={"a": "<2>"})
    expected = '{"apiVersion":"v1","data":{"a":"\\u003c2\\u003e"},"kind":"ConfigMap","metadata":{"name":"x"}}\n'
    assert after["metadata"]["annotations"] == {apply.LAST_APPLIED: expected}
    assert "annotations" not in applied(None, by="kubectl", data={"a": "1"})["metadata"]


def test_an_annotation_that_grows_too_large_is_dropped() -> None:
    after = applied(client_side({"a": "1"}), by="kubectl", data={"a": "x" * 300_000})
    assert after["metadata"]["annotations"] == {}
