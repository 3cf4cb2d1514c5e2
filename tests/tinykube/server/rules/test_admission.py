"""What is added to objects, and what is refused, because of what else is there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tinykube.server.rules.objects import named, pod
from tests.tinykube.server.rules.world import World, with_system_fields
from tinykube.server import kinds, rules
from tinykube.server.kinds import Kind
from tinykube.status import ApiError

Json = dict[str, Any]


def created(kind: Kind, given: Json, world: World) -> Json:
    object, _ = rules.read(kind, given, "Strict")
    return rules.create(kind, with_system_fields(object, kind), world)


def refusal(kind: Kind, given: Json, world: World) -> str:
    with pytest.raises(ApiError) as refused:
        created(kind, given, world)
    assert refused.value.code == 403
    return refused.value.message


def test_a_pod_runs_under_the_default_account_and_pulls_with_its_secrets() -> None:
    world = World()
    account = {"metadata": {"name": "default", "namespace": "default"}, "imagePullSecrets": [{"name": "registry"}]}
    world.put(kinds.SERVICE_ACCOUNT, account)
    spec = created(kinds.POD, pod(), world)["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert "volumes" not in spec, "no token: none are issued here"
    own = created(kinds.POD, pod({"spec.imagePullSecrets": [{"name": "mine"}]}), world)["spec"]
    assert own["imagePullSecrets"] == [{"name": "mine"}]


def test_a_pod_of_an_account_that_is_not_there_is_refused() -> None:
    assert refusal(kinds.POD, pod({"spec.serviceAccountName": "nobody"}), World()) == (
        'pods "one" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found'
    )


def test_a_refused_pod_is_called_by_the_name_that_was_given() -> None:
    given = pod({"metadata.generateName": "gen-", "spec.serviceAccountName": "nobody"})
    del given["metadata"]["name"]
    assert refusal(kinds.POD, given, World()).startswith('pods "gen-" is forbidden')


def test_the_default_priority_class_is_that_of_pods_without_one() -> None:
    world = World()
    assert created(kinds.POD, pod(), world)["spec"]["priority"] == 0
    usual = {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True, "preemptionPolicy": "Never"}
    world.put(kinds.PRIORITY_CLASS, usual)
    spec = created(kinds.POD, pod(), world)["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("usual", 50, "Never")
    assert created(kinds.POD, pod({"spec.priorityClassName": "important"}), world)["spec"]["priority"] == 100


def test_there_is_one_default_priority_class() -> None:
    world = World()
    given = named("PriorityClass", {"value": 1, "globalDefault": True}, "scheduling.k8s.io/v1", namespace="")
    world.put(kinds.PRIORITY_CLASS, {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True})
    assert refusal(kinds.PRIORITY_CLASS, given, world) == (
        'priorityclasses.scheduling.k8s.io "one" is forbidden: '
        "PriorityClass usual is already marked as default. Only one default can exist"
    )


def test_a_pod_that_is_born_on_a_node_knows_its_zone() -> None:
    world = World()
    labels = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"}
    world.put(kinds.NODE, {"metadata": {"name": "n", "labels": labels}})
    meta = created(kinds.POD, pod({"spec.nodeName": "n"}), world)["metadata"]
    assert meta["labels"] == {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    assert "labels" not in created(kinds.POD, pod(), world)["metadata"]


def test_a_new_node_takes_no_pods_yet() -> None:
    node = created(kinds.NODE, named("Node", namespace=""), World())
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


def test_nothing_new_comes_into_a_namespace_that_goes() -> None:
    with pytest.raises(ApiError) as refused:
        created(kinds.CONFIG_MAP, named("ConfigMap", namespace="dying"), World())
    assert refused.value.status()["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace dying is being terminated",
            "field": "metadata.namespace",
        }
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"nvidia.com/gpu": "1"}}], "BestEffort"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"limits": {"cpu": "0", "memory": "0"}}], "BestEffort"),
    ],
)  # fmt: skip
def test_the_class_of_service_follows_from_what_is_asked(resources: list[Json], expected: str) -> None:
    containers = [{"name": f"c{index}", "image": "a", "resources": each} for index, each in enumerate(resources)]
    status = created(kinds.POD, pod({"spec.containers": containers}), World())["status"]
    assert status == {"phase": "Pending", "qosClass": expected}
