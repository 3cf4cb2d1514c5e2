from __future__ import annotations

from typing import Any

import pytest

from tinykube.server import schema
from tinykube.server.kinds import POD
from tinykube.server.patch import conformity
from tinykube.server.schema import ANY, Field


def wrong(**spec: Any) -> str:
    return conformity.problem(schema.of(POD), {"metadata": {"name": "p"}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"zork": 1}, ".spec.zork: field not declared in schema"),
        ({"restartPolicy": 1}, ".spec.restartPolicy: expected string, got &value.valueUnstructured{Value:1}"),
        ({"activeDeadlineSeconds": "x"}, ".spec.activeDeadlineSeconds: expected numeric (int or float), got string"),
        ({"activeDeadlineSeconds": True}, ".spec.activeDeadlineSeconds: expected numeric (int or float), got bool"),
        ({"hostNetwork": "x"}, ".spec.hostNetwork: expected boolean, got &{x}"),
        ({"containers": {}}, ".spec.containers: expected list, got &{map[]}"),
        ({"nodeSelector": []}, ".spec.nodeSelector: expected map, got &{[]}"),
        ({"nodeSelector": {"a": 1}}, ".spec.nodeSelector.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"overhead": {"cpu": {}}}, ".spec.overhead.cpu: expected any scalar, got &{map[]}"),
        ({"containers": [{"name": "x"}, {"name": "x"}]}, '.spec.containers: duplicate entries for key [name="x"]'),
        (
            {"containers": [None]},
            ".spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (
            {"containers": [{"name": "x", "args": [1]}]},
            '.spec.containers[name="x"].args[0]: expected string, got &value.valueUnstructured{Value:1}',
        ),
        (
            {"restartPolicy": 1, "hostNetwork": 1},
            "errors:\n  .spec.restartPolicy: expected string, got &value.valueUnstructured{Value:1}\n"
            "  .spec.hostNetwork: expected boolean, got &{1}",
        ),
    ],
)
def test_what_is_not_as_the_schema_says_is_told_with_its_path(spec: Any, problem: str) -> None:
    assert wrong(**spec) == problem


def test_null_and_amounts_of_both_kinds_are_fine() -> None:
    assert (
        wrong(hostNetwork=None, containers=[{"name": "x", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]) == ""
    )


def test_a_port_by_name_or_number_is_looked_at_by_others() -> None:
    port = {"name": "x", "livenessProbe": {"httpGet": {"port": [1]}}}
    assert wrong(containers=[port]) == ""


def test_a_stored_object_may_have_items_twice() -> None:
    pod = {"spec": {"containers": [{"name": "x"}, {"name": "x"}]}}
    assert conformity.problem(schema.of(POD), pod, stored=True) == ""


def test_anything_goes_where_the_schema_says_nothing() -> None:
    assert conformity.problem(Field("object", properties={"a": ANY}), {"a": [{"b": 1}, 2]}) == ""
    assert conformity.problem(Field("object"), {"a": [{"b": 1}, 2]}) == ""
    assert conformity.problem(Field("object", properties={}, preserve_unknown=True), {"a": 1}) == ""
