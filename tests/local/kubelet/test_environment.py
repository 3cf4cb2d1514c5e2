from __future__ import annotations

from typing import Any

import pytest

from subak.local.kubelet.content import ConfigMap, Contents, Secret
from subak.local.kubelet.environment import BadConfig, complete, environment, references
from subak.local.kubelet.expansion import TooLong
from subak.local.kubelet.recipe import command
from tests.support.kubelet.pods import UID, container, pod

CONTENTS: Contents = {
    (ConfigMap, "settings"): ConfigMap(data={"LEVEL": "info", "COLOUR": "blue"}),
    (Secret, "keys"): Secret(data={"TOKEN": b"s3cret"}),
    (ConfigMap, "missing"): None,
}
SERVICES = {"REDIS_SERVICE_HOST": "10.0.0.1"}
ALLOCATABLE: dict[str, Any] = {"cpu": "8", "memory": "16Gi"}


def env(*variables: dict[str, Any], **fields: Any) -> dict[str, str]:
    made = pod(
        container(env=list(variables), **fields),
        metadata={"labels": {"app": "web", "tier": "1"}, "annotations": {"note": 'say "hi"'}},
        serviceAccountName="robot",
    )
    return environment(made, made.spec.containers[0], CONTENTS, SERVICES, ALLOCATABLE)


def value(source: dict[str, Any], **fields: Any) -> str | None:
    return env({"name": "X", "valueFrom": source}, **fields).get("X")


def field(path: str) -> str | None:
    return value({"fieldRef": {"fieldPath": path}})


def test_values_refer_to_what_was_defined_before_and_to_services() -> None:
    found = env(
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)/$(REDIS_SERVICE_HOST)/$(C)/$$(A)"},
        {"name": "C", "value": "late"},
        {"name": "A", "value": "2"},
    )
    assert found["B"] == "1/10.0.0.1/$(C)/$(A)"
    assert found["A"] == "2"
    assert found["REDIS_SERVICE_HOST"] == "10.0.0.1"


def test_few_words_do_not_fill_the_memory() -> None:
    grown = [{"name": "A0", "value": "x" * 100_000}, *({"name": f"A{each}", "value": "$(A0)"} for each in range(1, 90))]
    with pytest.raises(TooLong, match="longer than 6 MiB"):
        env(*grown)
    made = pod(container(command=["echo"], args=["$(A)"] * 90))
    with pytest.raises(TooLong, match="longer than 6 MiB"):
        command(made.spec.containers[0], {"A": "x" * 100_000})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.uid", UID),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['nope']", ""),
        ("metadata.annotations['note']", 'say "hi"'),
        ("metadata.labels", 'app="web"\ntier="1"'),
        ("metadata.annotations", r'note="say \"hi\""'),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "127.0.0.1"),
        ("status.podIPs", "127.0.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_a_pod_may_read_its_own_fields(path: str, expected: str) -> None:
    assert field(path) == expected


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("limits.cpu", "0", "1"),
        ("limits.cpu", "1m", "250"),
        ("requests.cpu", "1m", "100"),
        ("limits.memory", "1Mi", "64"),
        ("limits.memory", "1Gi", "1"),
        ("requests.memory", "1", "0"),
    ],
)
def test_a_container_may_read_its_amounts(resource: str, divisor: str, expected: str) -> None:
    resources = {"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"cpu": "100m"}}
    ref = {"resourceFieldRef": {"resource": resource, "divisor": divisor}}
    assert value(ref, resources=resources) == expected


def test_what_has_no_limit_is_limited_by_the_node() -> None:
    assert value({"resourceFieldRef": {"resource": "limits.cpu"}}) == "8"
    assert value({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}}) == "16"


def test_config_maps_and_secrets_give_values() -> None:
    assert value({"configMapKeyRef": {"name": "settings", "key": "LEVEL"}}) == "info"
    assert value({"secretKeyRef": {"name": "keys", "key": "TOKEN"}}) == "s3cret"


def test_whole_config_maps_come_with_a_prefix_and_env_wins_over_them() -> None:
    sources = [{"prefix": "APP_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}]
    found = env({"name": "TOKEN", "value": "mine"}, envFrom=sources)
    assert (found["APP_LEVEL"], found["APP_COLOUR"], found["TOKEN"]) == ("info", "blue", "mine")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "missing", "key": "a"}}, 'configmap "missing" not found'),
        ({"secretKeyRef": {"name": "nope", "key": "a"}}, 'secret "nope" not found'),
        ({"configMapKeyRef": {"name": "settings", "key": "a"}}, "couldn't find key a in ConfigMap default/settings"),
        ({"secretKeyRef": {"name": "keys", "key": "a"}}, "couldn't find key a in Secret default/keys"),
    ],
)
def test_what_is_missing_is_named_unless_it_is_optional(source: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        value(source)
    (kind,) = source
    assert value({kind: {**source[kind], "optional": True}}) is None


def test_a_missing_source_of_many_variables_is_named_unless_it_is_optional() -> None:
    with pytest.raises(BadConfig, match='configmap "missing" not found'):
        env(envFrom=[{"configMapRef": {"name": "missing"}}])
    assert "LEVEL" not in env(envFrom=[{"configMapRef": {"name": "missing", "optional": True}}])


def test_everything_that_is_referred_to_is_looked_up() -> None:
    (made,) = pod(
        container(
            env=[
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "two", "key": "k"}}},
            ],
            envFrom=[{"configMapRef": {"name": "three"}}, {"secretRef": {"name": "four"}}],
        )
    ).spec.containers
    assert set(references(made)) == {(ConfigMap, "one"), (Secret, "two"), (ConfigMap, "three"), (Secret, "four")}


def test_the_share_of_the_cards_wins_over_the_pod_and_the_pod_over_the_runtime() -> None:
    said = {"PATH": "/mine", "NVIDIA_VISIBLE_DEVICES": "all"}
    found = complete(pod(), 0, said, {"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
    assert found == {"PATH": "/mine", "HOSTNAME": "web", "HOME": "/root", "NVIDIA_VISIBLE_DEVICES": "GPU-1"}


def test_commands_and_arguments_are_expanded() -> None:
    (made,) = pod(container(command=["echo", "$(A)"], args=["$(B)", "$$(A)"])).spec.containers
    assert command(made, {"A": "1"}) == ["echo", "1", "$(B)", "$(A)"]
