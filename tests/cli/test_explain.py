"""`subak explain`: every node's answer to a pod, grouped by reason, with numbers."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import asking, explain, node, offering, pod, running

NODES = [offering("a", 512), offering("b", 300), offering("c", 2048), node("d")]


def test_groups_carry_numbers(tmp_path: Path) -> None:
    answer = explain(tmp_path, asking(1024), NODES)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "default/p: 1 of 4 nodes fit",
        "  fits: c",
        "  2 nodes: largest free slice 512 MiB, 1,024 MiB asked (CardInsufficientMemory)",
        "    a, b",
        "  1 node: volcano-share not offered (NodeUnregistered)",
        "    d",
    ]


def test_json_says_the_same(tmp_path: Path) -> None:
    answer = explain(tmp_path, asking(1024), NODES, "-o", "json")
    assert answer.data == {
        "explained": [
            {
                "namespace": "default",
                "name": "p",
                "message": "1 of 4 nodes fit: "
                "2 nodes: largest free slice 512 MiB, 1,024 MiB asked (CardInsufficientMemory); "
                "1 node: volcano-share not offered (NodeUnregistered)",
                "fitting": ["c"],
                "groups": [
                    {
                        "reason": "CardInsufficientMemory",
                        "detail": "largest free slice 512 MiB, 1,024 MiB asked",
                        "nodes": ["a", "b"],
                    },
                    {"reason": "NodeUnregistered", "detail": "volcano-share not offered", "nodes": ["d"]},
                ],
            }
        ],
        "rejected": [],
    }


def test_running_pods_count(tmp_path: Path) -> None:
    answer = explain(tmp_path, asking(1024), [offering("n", 2048), running(1536, "n")])
    assert answer.code == 1
    assert "1 node: largest free slice 512 MiB, 1,024 MiB asked (CardInsufficientMemory)" in answer.out


def test_a_node_whose_agent_died_says_so(tmp_path: Path) -> None:
    register = '[{"id": "GPU-a", "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-T4", "health": true}]'
    silent = node("n", {"nvidia.com/gpu": 0}, register)
    silent["metadata"]["annotations"]["hami.io/node-handshake"] = "Requesting_2024-01-02 00:00:00"
    answer = explain(tmp_path, pod({"nvidia.com/gpu": 1}), silent)
    assert answer.code == 1
    assert (
        "1 node: agent dead: 0 nvidia.com/gpu allocatable beside 1 registered card, hami.io/node-handshake unanswered "
        "for more than 60 s; restart it on the node (NodeAgentDead)"
    ) in answer.out


def test_each_pod_is_looked_at_alone(tmp_path: Path) -> None:
    answer = explain(tmp_path, [asking(400, "a"), asking(400, "b")], offering("n", 500))
    assert answer.code == 0
    assert answer.out.count("1 of 1 nodes fit") == 2


def test_what_else_keeps_a_pod_off(tmp_path: Path) -> None:
    tainted = {**offering("tainted", 2048), "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
    cordoned = {**offering("cordoned", 2048), "spec": {"unschedulable": True}}
    down = offering("down", 2048)
    down["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    busy = offering("busy", 2048)
    busy["status"]["capacity"]["cpu"] = "2"
    asks = pod({"volcano.sh/gpu-memory": 1024, "cpu": "4"})
    out = explain(tmp_path, asks, [tainted, cordoned, down, busy]).out
    assert "1 node: taint gpu:NoSchedule not tolerated (NodeTaintNotTolerated)" in out
    assert "1 node: cordoned (unschedulable) (NodeUnschedulable)" in out
    assert "1 node: not ready (NodeNotReady)" in out
    assert "1 node: at most 2 cpu free, 4 asked (NodeInsufficientResource)" in out


def test_many_nodes_are_cut_short_unless_asked_for(tmp_path: Path) -> None:
    nodes = [offering(f"n{i}", 512) for i in range(8)]
    assert "    n0, n1, n2, n3, n4 and 3 more (-o wide shows all)" in explain(tmp_path, asking(1024), nodes).out
    assert "    n0, n1, n2, n3, n4, n5, n6, n7\n" in explain(tmp_path, asking(1024), nodes, "-o", "wide").out


def test_bad_pods_are_told_beside_the_good_ones(tmp_path: Path) -> None:
    answer = explain(tmp_path, [asking("16gb", "wrong"), asking(100, "right")], offering("n", 512))
    assert answer.code == 2
    assert "default/right: 1 of 1 nodes fit" in answer.out
    assert "error: pod default/wrong: '16gb' is not a quantity" in answer.err


def test_a_used_up_quota_comes_before_all_nodes(tmp_path: Path) -> None:
    quota = {"kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"limits.volcano.sh/gpu-memory": 50}}}
    answer = explain(tmp_path, asking(100), [offering("n", 512), quota])
    assert answer.code == 1
    assert "1 node: namespace default: quota limits.volcano.sh/gpu-memory allows 50 MiB, 0 used, 100" in answer.out


def test_what_is_not_supported_yet_is_said(tmp_path: Path) -> None:
    answer = explain(tmp_path, asking(100, resourceClaims=[{"name": "c"}]), offering("n", 512))
    assert answer.code == 1
    assert "1 node: resource claims not supported yet (NotSupportedYet)" in answer.out


def test_a_pod_goes_where_its_volume_is(tmp_path: Path) -> None:
    pod = asking(100, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    nodes = [offering("n", 512), offering("m", 512)]
    nodes[0]["metadata"]["labels"] = {"kubernetes.io/hostname": "n"}
    answer = explain(tmp_path, pod, nodes)
    assert "2 nodes: claim default/data is not there (VolumeClaimNotReady)" in answer.out
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk"},
    }
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [here]}}},
    }
    answer = explain(tmp_path, pod, [*nodes, claim, volume])
    assert "1 of 2 nodes fit" in answer.out
    assert "1 node: volume disk is not within reach of the node (VolumeNodeConflict)" in answer.out
