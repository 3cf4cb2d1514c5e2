from __future__ import annotations

import pytest

from tinykube.resource import LEASES, NODES, PODS


def test_paths_are_those_of_kubernetes() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("default") == "/api/v1/namespaces/default/pods"
    assert PODS.path("default", "a", "binding") == "/api/v1/namespaces/default/pods/a/binding"
    assert NODES.path("", "n1", "status") == "/api/v1/nodes/n1/status"
    assert LEASES.path("kube-system", "l") == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l"


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../nodes/n1", "a%2fb"])
def test_a_name_cannot_lead_to_another_object(name: str) -> None:
    with pytest.raises(ValueError, match="can be no name of pods"):
        PODS.path("default", name)
    with pytest.raises(ValueError, match="can be no name of pods"):
        PODS.path(name, "a")


def test_a_pod_without_its_namespace_is_not_looked_for_elsewhere() -> None:
    with pytest.raises(ValueError, match="pods 'a': the namespace is missing"):
        PODS.path("", "a")
