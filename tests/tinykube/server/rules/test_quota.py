"""What a namespace may have; the words are those of a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.custom import POD_GROUP
from tests.tinykube.server.rules.objects import named, pod, service
from tests.tinykube.server.rules.world import World, with_system_fields
from tinykube.server import kinds, rules
from tinykube.server.kinds import Kind
from tinykube.server.rules import quota
from tinykube.status import ApiError

Json = dict[str, Any]


class Namespace:
    """A namespace with one quota."""

    def __init__(self, hard: Json, **spec: Any) -> None:
        self.world = World()
        self.quota, _ = rules.read(kinds.RESOURCE_QUOTA, named("ResourceQuota", {"spec": {"hard": hard, **spec}}))
        self.world.put(kinds.RESOURCE_QUOTA, self.quota)
        self.count = 0

    def add(self, kind: Kind, given: Json) -> str:
        """Create something; why not, if it is refused."""
        self.count += 1
        given = {**given, "metadata": {"name": f"o{self.count}", "namespace": "default"}}
        object, _ = rules.read(kind, given, "Strict")
        try:
            self.world.put(kind, rules.create(kind, with_system_fields(object, kind), self.world))
        except ApiError as error:
            if error.code != 403:
                raise
            return error.message.partition("is forbidden: ")[2]
        return ""

    def pod(self, **resources: Any) -> str:
        return self.add(kinds.POD, pod({"spec.containers[0].resources": resources}))

    @property
    def used(self) -> Json:
        return dict(quota.status(self.quota, self.world)["used"])


def test_pods_are_counted() -> None:
    namespace = Namespace({"pods": "2"})
    assert [namespace.pod(), namespace.pod()] == ["", ""]
    assert namespace.pod() == "exceeded quota: one, requested: pods=1, used: pods=2, limited: pods=2"
    assert namespace.used == {"pods": "2"}


def test_finished_pods_count_no_more_as_pods_but_as_objects() -> None:
    namespace = Namespace({"pods": "1", "count/pods": "2"})
    assert namespace.pod() == ""
    key = next(key for key in namespace.world.objects if key[0] is kinds.POD)
    done = namespace.world.objects[key]
    namespace.world.objects[key] = {**done, "status": {**done["status"], "phase": "Succeeded"}}
    assert namespace.used == {"pods": "0", "count/pods": "1"}
    assert namespace.pod() == ""
    assert namespace.pod() == (
        "exceeded quota: one, requested: count/pods=1,pods=1, used: count/pods=2,pods=1, limited: count/pods=2,pods=1"
    )


def test_whoever_is_counted_by_cpu_must_ask_for_cpu() -> None:
    namespace = Namespace({"requests.cpu": "1", "limits.memory": "1Gi"})
    assert namespace.pod() == "failed quota: one: must specify limits.memory for: main; requests.cpu for: main"
    assert namespace.pod(requests={"cpu": "500m"}, limits={"memory": "512Mi"}) == ""
    assert namespace.pod(requests={"cpu": "600m"}, limits={"memory": "512Mi"}) == (
        "exceeded quota: one, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
    )
    assert namespace.used == {"requests.cpu": "500m", "limits.memory": "512Mi"}


def test_cards_are_counted_by_their_requests() -> None:
    namespace = Namespace({"requests.nvidia.com/gpu": "2", "requests.nvidia.com/gpumem": 5000})
    assert namespace.pod() == "", "cards need not be asked for"
    assert namespace.pod(limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}) == ""
    assert namespace.pod(limits={"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}) == (
        "exceeded quota: one, requested: requests.nvidia.com/gpu=2,requests.nvidia.com/gpumem=3k, "
        "used: requests.nvidia.com/gpu=1,requests.nvidia.com/gpumem=3k, "
        "limited: requests.nvidia.com/gpu=2,requests.nvidia.com/gpumem=5k"
    )


def test_the_largest_init_container_counts_and_sidecars_add_up() -> None:
    namespace = Namespace({"cpu": "10", "memory": "10Gi"})
    containers = [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    early = [
        {"name": "i", "image": "i", "resources": {"requests": {"cpu": "3", "memory": "1"}}},
        {
            "name": "s",
            "image": "s",
            "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
        },
    ]
    assert namespace.add(kinds.POD, pod({"spec.containers": containers, "spec.initContainers": early})) == ""
    assert namespace.used == {"cpu": "3", "memory": "2Gi"}


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        ("BestEffort", {}, {"limits": {"cpu": "1"}}),
        ("NotBestEffort", {"limits": {"cpu": "1"}}, {}),
    ],
)
def test_a_scope_counts_only_its_pods(scope: str, inside: Json, outside: Json) -> None:
    namespace = Namespace({"pods": "1"}, scopes=[scope])
    assert [namespace.pod(**outside), namespace.pod(**inside), namespace.pod(**outside)] == ["", "", ""]
    assert namespace.pod(**inside).startswith("exceeded quota: one")
    assert namespace.used == {"pods": "1"}


def test_a_selector_counts_pods_of_a_priority_class() -> None:
    line = {"scopeName": "PriorityClass", "operator": "In", "values": ["important"]}
    namespace = Namespace({"pods": "1"}, scopeSelector={"matchExpressions": [line]})
    important = pod({"spec.priorityClassName": "important"})
    assert [namespace.pod(), namespace.add(kinds.POD, important), namespace.pod()] == ["", "", ""]
    assert namespace.add(kinds.POD, important).startswith("exceeded quota: one")


def test_objects_of_any_kind_are_counted() -> None:
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    namespace = Namespace({"count/podgroups.scheduling.volcano.sh": "1", "configmaps": "1"})
    assert [namespace.add(POD_GROUP, group), namespace.add(kinds.CONFIG_MAP, named("ConfigMap"))] == ["", ""]
    assert namespace.add(POD_GROUP, group) == (
        "exceeded quota: one, requested: count/podgroups.scheduling.volcano.sh=1, "
        "used: count/podgroups.scheduling.volcano.sh=1, limited: count/podgroups.scheduling.volcano.sh=1"
    )
    assert namespace.add(kinds.CONFIG_MAP, named("ConfigMap")).startswith("exceeded quota: one")


def test_ports_of_services_are_counted() -> None:
    namespace = Namespace({"services": "3", "services.nodeports": "1", "services.loadbalancers": "0"})
    assert namespace.add(kinds.SERVICE, service({"spec.type": "NodePort"})) == ""
    assert namespace.add(kinds.SERVICE, service({"spec.type": "LoadBalancer"})) == (
        "exceeded quota: one, requested: services.loadbalancers=1,services.nodeports=1, "
        "used: services.loadbalancers=0,services.nodeports=1, limited: services.loadbalancers=0,services.nodeports=1"
    )
    assert namespace.used == {"services": "2", "services.nodeports": "1", "services.loadbalancers": "0"}
