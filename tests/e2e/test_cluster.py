"""The rig itself: a real control plane whose parts can be hurt and come back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.e2e import PARTS
from tests.e2e.cluster import Cluster


def kubectl(cluster: Cluster, *arguments: str) -> str:
    command = [str(Path(os.environ[PARTS]) / "kubectl"), f"--kubeconfig={cluster.kubeconfig}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_what_is_written_survives_a_restart_of_each_part(cluster: Cluster) -> None:
    kubectl(cluster, "create", "configmap", "kept", "--from-literal=a=b")
    for part in ("etcd", "kube-apiserver", "kube-controller-manager"):
        cluster.restart(part)
        assert kubectl(cluster, "get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
    kubectl(cluster, "delete", "configmap", "kept")
