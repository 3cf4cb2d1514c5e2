"""What is said about objects that are stored all the same; the words are those of a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.custom import POD_GROUP
from tests.tinykube.server.rules.objects import named, pod, service
from tests.tinykube.server.rules.world import World, with_system_fields
from tinykube.server import kinds, rules
from tinykube.server.kinds import Kind

Json = dict[str, Any]
NO_MATCH = "a null labelSelector results in matching no pod"


def told(kind: Kind, given: Json, *, new: bool = True) -> list[str]:
    object, _ = rules.read(kind, given, "Strict")
    stored = rules.create(kind, with_system_fields(object, kind), World())
    return rules.warnings(kind, stored, new=new)


def test_an_ordinary_pod_is_nothing_to_talk_about() -> None:
    assert told(kinds.POD, pod({"spec.containers[0].env": [{"name": "A"}, {"name": "B", "value": "$(A)"}]})) == []


@pytest.mark.parametrize(
    ("changes", "warnings"),
    [
        ({"spec.nodeSelector": {"beta.kubernetes.io/arch": "x"}},
         ['spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "kubernetes.io/arch" instead']),
        ({"spec.containers[0].env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
         ['spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply']),
        ({"spec.containers[0].env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}, []),
        ({"spec.containers[0].ports": [{"containerPort": 80}, {"containerPort": 80}]},
         ["spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"]),
        ({"spec.containers[0].ports": [{"containerPort": 80, "hostIP": "1.2.3.4"}]},
         ["spec.containers[0].ports[0]: hostIP set without hostPort: "
          "{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}"]),
        ({"spec.containers[0].resources": {"requests": {"memory": "1500m"}}},
         ["spec.containers[0].resources.requests[memory]: "
          'fractional byte value "1500m" is invalid, must be an integer']),
        ({"spec.imagePullSecrets": [{"name": ""}]}, ['spec.imagePullSecrets[0].name: invalid empty name ""']),
        ({"spec.hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}]},
         ['spec.hostAliases[1].ip: duplicate ip "1.2.3.4"']),
        ({"spec.topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
         [f"spec.topologySpreadConstraints[0].labelSelector: {NO_MATCH}"]),
        ({"metadata.name": "a.b"},
         ["metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
          "a DNS label is recommended: [must not contain dots]"]),
    ],
)  # fmt: skip
def test_a_pod_that_may_surprise_its_author(changes: Json, warnings: list[str]) -> None:
    assert told(kinds.POD, pod(changes)) == warnings
    assert told(kinds.POD, pod(changes), new=False) == []


def test_services_secrets_and_quotas() -> None:
    lonely = service({"spec.clusterIP": "None", "spec.sessionAffinity": "ClientIP"})
    assert told(kinds.SERVICE, lonely) == ["spec.SessionAffinity is ignored for headless services"]
    keys = named("Secret", {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "", "tls.key": ""}})
    assert told(kinds.SECRET, keys) == ["tls: failed to find any PEM data in certificate input"]
    quota = named("ResourceQuota", {"spec.hard": {"requests.cpu": "2", "limits.cpu": "1"}})
    assert told(kinds.RESOURCE_QUOTA, quota) == ["ResourceQuota requests.cpu (2) should be less than limits.cpu (1)"]


def test_a_finalizer_of_a_custom_kind_that_anybody_could_have() -> None:
    meta = {"name": "one", "namespace": "default", "finalizers": ["mine", "example.com/mine"]}
    given = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta}
    assert told(POD_GROUP, given) == [
        'metadata.finalizers: "mine": prefer a domain-qualified finalizer name '
        "to avoid accidental conflicts with other finalizer writers"
    ]
