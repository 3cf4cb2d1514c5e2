"""The rig itself: a real node whose pods run, and go on while its parts are killed and started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cgroups, images, settings
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl
from tests.e2e.node import TUNED, RealNode


def run(node: RealNode, name: str, resources: dict[str, Any] | None = None) -> None:
    """Create a pod that sleeps on the node, and wait until it is ready."""
    create(node, name, resources)
    kubectl(node.cluster, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=50s")


def create(
    node: RealNode, name: str, resources: dict[str, Any] | None = None, annotations: dict[str, str] | None = None
) -> None:
    container = {
        "name": "main",
        "image": images.PLAIN,
        "command": ["sleep", "10000"],
        "env": [{"name": "GREETING", "value": "hello"}],
        "resources": resources or {},
    }
    spec = {"nodeName": node.name, "containers": [container], "terminationGracePeriodSeconds": 0}
    given = json.dumps({"metadata": {"annotations": annotations or {}}, "spec": spec})
    kubectl(node.cluster, "run", name, f"--image={images.PLAIN}", f"--overrides={given}")


def started(cluster: Cluster, name: str) -> str:
    """What would change if the pod's container were started again."""
    form = "jsonpath={.status.phase} {.status.containerStatuses[0].containerID}"
    return kubectl(cluster, "get", "pod", name, "-o", form)


def test_a_pod_runs_and_can_be_entered(node: RealNode) -> None:
    run(node, "entered")
    inside = kubectl(node.cluster, "exec", "entered", "--", "env")
    assert "GREETING=hello" in inside.splitlines()
    assert started(node.cluster, "entered").startswith("Running containerd://")
    kubectl(node.cluster, "delete", "pod", "entered")


def test_logs_can_be_read(node: RealNode) -> None:
    spec = {"nodeName": node.name, "restartPolicy": "Never"}
    options = [f"--image={images.STATIC}", "--restart=Never", f"--overrides={json.dumps({'spec': spec})}"]
    kubectl(node.cluster, "run", "said", *options, "--", "sh", "-c", "echo what was said")
    kubectl(node.cluster, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/said", "--timeout=60s")
    assert kubectl(node.cluster, "logs", "said") == "what was said\n"
    kubectl(node.cluster, "delete", "pod", "said")


def test_a_pod_runs_with_a_resource_that_was_patched_into_the_status_of_its_node(node: RealNode) -> None:
    amount = {"status": {"capacity": {"example.com/card": "2"}}}
    kubectl(node.cluster, "patch", "node", node.name, "--subresource=status", f"--patch={json.dumps(amount)}")
    form = "jsonpath={.status.allocatable.example\\.com/card}"
    node.until(lambda: kubectl(node.cluster, "get", "node", node.name, "-o", form) == "2", "kubelet allots the cards")
    run(node, "holder", resources={"limits": {"example.com/card": "1"}})
    kubectl(node.cluster, "delete", "pod", "holder")


def test_kubelet_ignores_a_resource_that_nobody_advertises(node: RealNode) -> None:
    run(node, "unknown", resources={"limits": {"example.com/nowhere": "1"}})
    kubectl(node.cluster, "delete", "pod", "unknown")


def test_containerd_refuses_a_pod_that_requires_a_plugin_which_is_not_there(node: RealNode) -> None:
    required = {"required-plugins.noderesource.dev": '["nobody"]'}
    create(node, "requiring", annotations=required)
    form = "jsonpath={.status.containerStatuses[0].state.waiting.message}"

    def is_refused() -> bool:
        return "nobody" in kubectl(node.cluster, "get", "pod", "requiring", "-o", form)

    node.until(is_refused, "the container is refused for want of the plugin")
    kubectl(node.cluster, "delete", "pod", "requiring")


@pytest.mark.parametrize("part", ["kubelet", "containerd"])
def test_a_pod_goes_on_while_a_part_is_killed_and_started_again(part: str, node: RealNode) -> None:
    run(node, "going")
    before = started(node.cluster, "going")
    node.restart(part)
    run(node, "next")  # so the node does its work again
    assert started(node.cluster, "going") == before
    assert "GREETING=hello" in kubectl(node.cluster, "exec", "going", "--", "env")
    kubectl(node.cluster, "delete", "pod", "going", "next")


def test_programs_of_a_node_see_its_own_files(node: RealNode) -> None:
    assert node.path(settings.NRI_SOCKET).is_socket()
    ran = node.run(["sh", "-c", f"test -S {settings.SOCKET} && echo own > /etc/cdi/own && hostname"])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert node.path("/etc/cdi/own").read_text() == "own\n"
    assert not Path("/etc/cdi/own").exists()


def test_two_nodes_stand_beside_each_other_and_nothing_is_left_of_them(node: RealNode) -> None:
    tuned = [Path("/proc/sys", each).read_text() for each in TUNED]
    with RealNode(node.cluster, number=1, nri=False) as second:
        run(second, "far")
        assert not second.path(settings.NRI_SOCKET).exists()
        assert "GREETING=hello" in kubectl(node.cluster, "exec", "far", "--", "env")
        assert cgroups.found(second.cgroup)
    assert not second.directory.exists()
    assert not cgroups.found(second.cgroup)
    assert str(second.directory) not in Path("/proc/mounts").read_text()
    assert [Path("/proc/sys", each).read_text() for each in TUNED] == tuned
    names = kubectl(node.cluster, "get", "nodes", "-o", "name").split()
    assert f"node/{node.name}" in names
    assert f"node/{second.name}" not in names
