"""Users of `subak up` can read the record of a pod's cards, and give the cards back, but not change the record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.live import Live, live

pytestmark = pytest.mark.long

RECORD = "hami.io/vgpu-devices-allocated"
FORGED = "GPU-forged,NVIDIA,1,0:;"
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "annotations": {"hami.io/gpu-scheduler-policy": "binpack"}},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "c",
                "image": "busybox",
                "command": ["sleep", "1000"],
                "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20000"}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Live]:
    with live("--runtime", "none") as running:
        yield running


@pytest.fixture
def held(cluster: Live) -> Iterator[dict[str, Any]]:
    """A pod that has its card."""
    cluster.run("kubectl", "apply", "-f", "-", stdin=yaml.safe_dump(POD))
    cluster.run("kubectl", "wait", "--for=condition=Ready", "pod/a", "--timeout=60s")
    yield stored(cluster)
    cluster.run("kubectl", "delete", "pod", "a", "--ignore-not-found")


def stored(cluster: Live) -> dict[str, Any]:
    return dict(json.loads(cluster.run("kubectl", "get", "pod", "a", "-o", "json").stdout))


def used(cluster: Live) -> list[int]:
    """The memory that the ledger counts as used, of the cards in use."""
    top = json.loads(cluster.subak("top", "-o", "json").stdout)
    return [card["memory_used_mib"] for node in top["nodes"] for card in node["cards"] if card["tenants"]]


def refused(cluster: Live, *command: str, stdin: str | None = None) -> str:
    done = cluster.run("kubectl", *command, stdin=stdin, check=False)
    assert done.returncode == 1, done.stdout
    assert "(Forbidden): " in done.stderr
    return done.stderr


def test_kubectl_cannot_change_a_record_by_any_command(cluster: Live, held: dict[str, Any]) -> None:
    real = held["metadata"]["annotations"][RECORD]
    answer = refused(cluster, "annotate", "pod", "a", "--overwrite", f"{RECORD}={FORGED}")
    assert answer == (
        'Error from server (Forbidden): admission webhook "pods.subak.io" denied the request: pod default/a: '
        f'user "admin" may not change metadata.annotations[{RECORD}] from "{real}" to "{FORGED}": it records an '
        "allocation, which only the scheduler and the agents of nodes write: leave it as it is; to give its cards "
        "back, delete the pod\n"
    )
    refused(cluster, "annotate", "pod", "a", f"{RECORD}-")
    refused(cluster, "annotate", "pod", "a", f"{RECORD}-", "--as=system:subak-scheduler")
    refused(cluster, "annotate", "pod", "a", "volcano.sh/gpu-index=0")
    change = {"metadata": {"annotations": {RECORD: FORGED}}}
    for kind in ("merge", "strategic"):
        for door in ((), ("--subresource", "status")):
            refused(cluster, "patch", "pod", "a", "--type", kind, *door, "-p", json.dumps(change))
    path = f"/metadata/annotations/{RECORD.replace('/', '~1')}"
    refused(cluster, "patch", "pod", "a", "--type", "json", "-p", json.dumps([{"op": "remove", "path": path}]))
    forged = {**held, "metadata": {"name": "a", "annotations": {RECORD: FORGED}}}
    refused(cluster, "replace", "-f", "-", stdin=json.dumps(forged))
    refused(cluster, "replace", "--subresource", "status", "-f", "-", stdin=json.dumps(forged))
    applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {RECORD: FORGED}}}
    refused(cluster, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(applied))
    assert stored(cluster)["metadata"]["annotations"] == held["metadata"]["annotations"]
    assert used(cluster) == [20_000]


def test_a_binding_cannot_carry_a_record_of_ones_own(cluster: Live, held: dict[str, Any]) -> None:
    waiting = {**POD, "metadata": {"name": "b"}, "spec": {**POD["spec"], "schedulingGates": [{"name": "later"}]}}
    cluster.run("kubectl", "apply", "-f", "-", stdin=yaml.safe_dump(waiting))
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "b", "annotations": {RECORD: held["metadata"]["annotations"][RECORD]}},
        "target": {"kind": "Node", "name": held["spec"]["nodeName"]},
    }
    for path in ("pods/b/binding", "bindings"):
        answer = refused(
            cluster, "create", "--raw", f"/api/v1/namespaces/default/{path}", "-f", "-", stdin=json.dumps(body)
        )
        assert "let the scheduler bind the pod" in answer
    cluster.run("kubectl", "delete", "pod", "b")
    assert used(cluster) == [20_000]


def test_all_that_leaves_the_record_alone_works_as_ever(cluster: Live, held: dict[str, Any]) -> None:
    cluster.run("kubectl", "label", "pod", "a", "team=x")
    cluster.run("kubectl", "annotate", "pod", "a", "--overwrite", "hami.io/gpu-scheduler-policy=spread", "note=mine")
    cluster.run("kubectl", "apply", "-f", "-", stdin=yaml.safe_dump(POD))
    forced = ("kubectl", "apply", "--server-side", "--force-conflicts")
    cluster.run(*forced, "-f", "-", stdin=json.dumps(saved(cluster)))
    cluster.run("kubectl", "replace", "-f", "-", stdin=json.dumps(saved(cluster)))
    cluster.run("subak", "apply", "-f", "-", stdin=json.dumps(saved(cluster)))
    now = stored(cluster)
    assert now["metadata"]["labels"] == {"team": "x", "hami.io/vgpu-node": "p40"}
    assert now["metadata"]["annotations"][RECORD] == held["metadata"]["annotations"][RECORD]


def saved(cluster: Live) -> dict[str, Any]:
    """The pod as saved in a file; a kubelet may still write its status."""
    pod = stored(cluster)
    for field in ("managedFields", "resourceVersion", "uid", "creationTimestamp"):
        pod["metadata"].pop(field, None)
    return pod


def test_the_administrator_gives_the_card_back_by_deleting_the_pod(cluster: Live, held: dict[str, Any]) -> None:
    cluster.run("kubectl", "delete", "pod", "a")
    assert used(cluster) == []


def test_the_administrator_is_a_user_like_any_other(cluster: Live) -> None:
    me = json.loads(cluster.run("kubectl", "auth", "whoami", "-o", "json").stdout)["status"]["userInfo"]
    assert (me["username"], me["groups"]) == ("admin", ["system:masters", "system:authenticated"])
