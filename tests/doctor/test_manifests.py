"""The rights that the manifests give our programs."""

from __future__ import annotations

from pathlib import Path

import yaml

from subak.doctor.manifests import Right, folder, rights

CONTROLLER = ("subak-system", "subak-controller")


def test_the_controller_has_the_rights_of_all_its_roles() -> None:
    known = rights(folder())[CONTROLLER]
    assert Right("create", "", "pods/binding", "", "") in known
    assert Right("patch", "coordination.k8s.io", "leases", "subak-controller", "subak-system") in known
    assert Right("get", "", "configmaps", "hami-scheduler-device", "kube-system") in known
    assert Right("create", "", "secrets", "", "subak-system") in known  # of admission.yaml


def test_a_cluster_role_counts_where_it_is_bound(tmp_path: Path) -> None:
    rule = {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"], "resourceNames": ["a"]}
    role = {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [rule]}
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "here"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [
            {"kind": "ServiceAccount", "namespace": "there", "name": "it"},
            {"kind": "Group", "name": "everybody"},
        ],
    }
    parts = (yaml.safe_dump(binding), "# nothing\n", yaml.safe_dump(role))
    (tmp_path / "a.yaml").write_text("---\n".join(parts))
    assert rights(tmp_path) == {
        ("there", "it"): [Right(verb, group, "pods", "a", "here") for group in ("", "apps") for verb in ("get", "list")]
    }
    assert [each.object for each in rights(tmp_path)["there", "it"]][:1] == ["pods a in here"]


def test_no_manifests_no_rights(tmp_path: Path) -> None:
    assert rights(tmp_path) == {}
