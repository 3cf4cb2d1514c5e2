from pathlib import Path

import msgspec
import pytest

from tests.e2e.schema import lines
from tests.support.custom import QUEUE
from tinykube.server import kinds, schema
from tinykube.server.schema import Field


def at(kind: kinds.Kind, path: str) -> Field:
    found = schema.of(kind)
    for step in path.split("."):
        inner = found.items if step == "[]" else found.values if step == "{}" else (found.properties or {})[step]
        assert inner is not None
        found = inner
    return found


def test_every_served_kind_has_a_schema() -> None:
    for kind in kinds.KINDS:
        found = schema.of(kind)
        assert found.properties is not None
        assert {"apiVersion", "kind", "metadata"} <= set(found.properties)


def test_containers_merge_by_name_and_their_ports_by_two_keys() -> None:
    containers = at(kinds.POD, "spec.containers")
    assert (containers.list_type, containers.keys) == ("map", ("name",))
    assert (containers.merge_key, containers.strategies) == ("name", ("merge",))
    ports = at(kinds.POD, "spec.containers.[].ports")
    assert (ports.keys, ports.merge_key) == (("containerPort", "protocol"), "containerPort")
    assert at(kinds.POD, "spec.containers.[].ports.[].protocol").default == "TCP"


def test_a_volume_keeps_only_the_keys_of_its_new_type() -> None:
    assert at(kinds.POD, "spec.volumes").strategies == ("merge", "retainKeys")


def test_special_values_are_told_apart() -> None:
    assert at(kinds.POD, "spec.containers.[].resources.limits.{}").type == "quantity"
    assert at(kinds.SERVICE, "spec.ports.[].targetPort").type == "int-or-string"
    assert at(kinds.LEASE, "spec.renewTime").format == "micro-time"
    assert at(kinds.POD, "metadata.creationTimestamp").format == "date-time"
    assert at(kinds.SECRET, "data.{}").format == "byte"
    assert at(kinds.POD, "metadata.managedFields.[].fieldsV1").properties is None


def test_a_selector_is_replaced_as_a_whole() -> None:
    assert at(kinds.POD, "spec.nodeSelector").atomic
    assert at(kinds.POD, "spec.containers.[].env.[].valueFrom.fieldRef").atomic
    assert not at(kinds.POD, "metadata.labels").atomic


@pytest.mark.parametrize(
    ("path", "empty"),
    [
        ("spec.hostNetwork", "omit"),
        ("spec.automountServiceAccountToken", "keep"),
        ("spec.containers.[].resources", "always"),
        ("spec.containers.[].name", "always"),
        ("status.conditions.[].lastProbeTime", "always"),
        ("metadata.creationTimestamp", "keep"),
    ],
)
def test_what_becomes_of_an_empty_value_is_known(path: str, empty: str) -> None:
    assert at(kinds.POD, path).empty == empty


def test_types_have_the_names_that_messages_use() -> None:
    assert at(kinds.POD, "spec.containers").go == "[]v1.Container"
    assert at(kinds.POD, "spec.terminationGracePeriodSeconds").go == "int64"
    assert at(kinds.POD, "spec.nodeSelector").go == "map[string]string"
    assert at(kinds.SECRET, "data").go == "map[string][]uint8"
    assert at(kinds.POD, "spec.volumes.[].emptyDir").embedded == "VolumeSource"


def test_constraints_of_custom_kinds_are_kept() -> None:
    weight = at(QUEUE, "spec.weight")
    assert (weight.default, weight.extra) == (1, {"minimum": 1, "maximum": 65535})
    assert at(QUEUE, "spec").preserve_unknown


def test_a_subresource_s_kind_has_a_schema_too() -> None:
    binding = schema.of(kinds.Kind("", "v1", "Binding", "bindings"))
    assert binding.required == ("target",)


def test_schema_json_has_one_definition_a_line() -> None:
    text = Path(schema.__file__).with_name("schema.json").read_text()
    assert lines(schema.definitions()) in text
    assert set(msgspec.json.decode(text)) == {"definitions", "types"}
