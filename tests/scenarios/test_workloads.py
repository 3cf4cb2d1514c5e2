"""Deployments, Jobs and DaemonSets on `subak up`, as people use them with kubectl."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.live import PATIENCE, Live, live

pytestmark = pytest.mark.long

NODES = 8
DOCUMENT = Path(__file__).parents[1] / "data/koordinator_daemonset.yaml"
"""The first manifest of Koordinator's document, word for word."""


def deployment(name: str, replicas: int, **limits: object) -> str:
    return workload("apps/v1", "Deployment", name, {"replicas": replicas}, ["sleep", "86399"], **limits)


def workload(version: str, kind: str, name: str, spec: dict[str, Any], command: list[str], **limits: object) -> str:
    container = {"name": "c", "image": "busybox", "command": command, "resources": {"limits": limits}}
    # One of the nodes has a taint.
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}]}
    if kind == "Job":
        template: dict[str, Any] = {"spec": {**pod, "restartPolicy": "Never"}}
    else:
        spec = {**spec, "selector": {"matchLabels": {"app": name}}}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {**spec, "template": template}}
    return yaml.safe_dump(whole)


def apply(cluster: Live, text: str) -> None:
    cluster.run("kubectl", "apply", "-f", "-", stdin=text)


def rolled_out(cluster: Live, what: str) -> None:
    cluster.run("kubectl", "rollout", "status", what, f"--timeout={PATIENCE:.0f}s")


def pods(cluster: Live, app: str) -> list[Any]:
    """The pods of an app that are not being deleted."""
    found = json.loads(cluster.run("kubectl", "get", "pods", "-l", f"app={app}", "-o", "json").stdout)["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def memory_of(found: list[Any]) -> list[str]:
    return [pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] for pod in found]


def until(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, f"it never happened: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster() -> Any:
    with live() as started:
        yield started


def test_replicas_share_cards_and_are_replaced_when_their_template_changes(cluster: Live) -> None:
    share = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000}
    apply(cluster, deployment("share", 2, **share))
    rolled_out(cluster, "deployment/share")
    assert memory_of(pods(cluster, "share")) == ["4k"] * 2
    cluster.run("kubectl", "scale", "deployment", "share", "--replicas=4")
    rolled_out(cluster, "deployment/share")
    held = json.loads(cluster.subak("top", "-o", "json").stdout)
    assert json.dumps(held).count("default/share-") >= 4
    apply(cluster, deployment("share", 4, **{**share, "nvidia.com/gpumem": 2000}))
    rolled_out(cluster, "deployment/share")
    assert memory_of(pods(cluster, "share")) == ["2k"] * 4
    cluster.run("kubectl", "rollout", "undo", "deployment/share")
    rolled_out(cluster, "deployment/share")
    cluster.run("kubectl", "delete", "deployment", "share", "--cascade=foreground")
    assert cluster.run("kubectl", "get", "rs,pods", "-l", "app=share", "-o", "name").stdout == ""


def test_a_deployment_that_no_card_can_serve_says_why(cluster: Live) -> None:
    apply(cluster, deployment("odd", 1, **{"koordinator.sh/gpu": 150}))
    cluster.run("kubectl", "wait", "--for=condition=ReplicaFailure", "deployment/odd", "--timeout=30s")
    found = cluster.subak("describe", "deployment", "odd").stdout
    assert "150 is more than one card and not whole cards" in found
    cluster.subak("delete", "deployment", "odd")


def test_a_job_runs_to_its_end(cluster: Live) -> None:
    command = ["sh", "-c", "echo $((6 * 7))"]
    apply(cluster, workload("batch/v1", "Job", "sum", {"completions": 3, "parallelism": 2}, command))
    cluster.run("kubectl", "wait", "--for=condition=complete", "job/sum", f"--timeout={PATIENCE:.0f}s")
    assert cluster.run("kubectl", "logs", "job/sum").stdout == "42\n"
    assert "3/3" in cluster.subak("get", "jobs").stdout
    apply(cluster, workload("batch/v1", "Job", "bad", {"backoffLimit": 0}, ["false"]))
    cluster.run("kubectl", "wait", "--for=condition=failed", "job/bad", f"--timeout={PATIENCE:.0f}s")
    cluster.subak("delete", "job", "sum", "bad")
    until(lambda: cluster.subak("get", "pods", "-o", "name").stdout == "", "the pods go with their jobs")


def test_a_daemon_set_is_on_every_node(cluster: Live) -> None:
    apply(cluster, workload("apps/v1", "DaemonSet", "agent", {}, ["sleep", "86399"]))
    rolled_out(cluster, "daemonset/agent")
    assert len({pod["spec"]["nodeName"] for pod in pods(cluster, "agent")}) == NODES
    cluster.run("kubectl", "delete", "daemonset", "agent")


def test_koordinators_daemon_set_runs_where_nodes_are_labelled(cluster: Live, tmp_path: Path) -> None:
    folders = {"/usl/local/vgpu": tmp_path / "vgpu", "/tmp/vgpulock": tmp_path / "lock"}
    text = DOCUMENT.read_text()
    for before, after in folders.items():  # hostPath is of this machine: only the tests' own may be made there
        text = text.replace(f"path: {before}\n", f"path: {after}\n")
    apply(cluster, text)
    assert "0 " in cluster.run("kubectl", "get", "daemonset", "hami-core-distribute", "--no-headers").stdout
    cluster.run("kubectl", "label", "node", "a10", "p40", "node-type=gpu")

    def started() -> bool:
        found = cluster.run("kubectl", "get", "pods", "-l", "koord-app=hami-core-distribute", "-o", "json").stdout
        return sorted(each["spec"].get("nodeName", "") for each in json.loads(found)["items"]) == ["a10", "p40"]

    until(started, "its pods are placed on both nodes")
    cluster.run("kubectl", "delete", "daemonset", "hami-core-distribute")


def test_kinds_that_are_not_served_are_told_as_a_real_server_tells_them(cluster: Live) -> None:
    text = deployment("set", 1).replace("Deployment", "StatefulSet")
    answer = cluster.run("kubectl", "apply", "-f", "-", stdin=text, check=False)
    assert answer.returncode == 1
    assert 'no matches for kind "StatefulSet" in version "apps/v1"' in answer.stderr


def test_pods_that_are_killed_and_a_cluster_that_is_killed_end_in_the_exact_number(tmp_path: Path) -> None:
    chance = random.Random(7)
    state = tmp_path / "state"
    for round in range(3):
        with live("--state", state) as cluster:
            if round == 0:
                apply(cluster, deployment("web", 3))
                apply(cluster, workload("apps/v1", "DaemonSet", "agent", {}, ["sleep", "86399"]))
                apply(cluster, workload("batch/v1", "Job", "work", {"completions": 6}, ["sleep", "0.5"]))
            cluster.run("kubectl", "scale", "deployment", "web", f"--replicas={3 + round}")
            for pod in chance.sample([*pods(cluster, "web"), *pods(cluster, "agent")], 3) if round else ():
                cluster.run("kubectl", "delete", "pod", pod["metadata"]["name"], "--now", "--wait=false")
            if round < 2:
                cluster.stop(signal.SIGKILL)
                continue
            rolled_out(cluster, "deployment/web")
            rolled_out(cluster, "daemonset/agent")
            until(lambda: len(pods(cluster, "web")) == 5, "five replicas are there")
            until(lambda: len(pods(cluster, "agent")) == NODES, "one pod is there for each node")
            cluster.run("kubectl", "wait", "--for=condition=complete", "job/work", f"--timeout={PATIENCE:.0f}s")
            succeeded = cluster.run("kubectl", "get", "job", "work", "-o", "jsonpath={.status.succeeded}").stdout
            assert succeeded == "6"
