"""The nodes: agents, runtimes, rivals."""

from __future__ import annotations

from typing import Any

import pytest

from subak.doctor import Level
from subak.doctor.cluster import nodes
from tests.doctor.canned import SUBAK, Answer, items
from tests.doctor.cluster.worlds import found, lease, leases, levels, node

NODES, PODS = "GET /api/v1/nodes", "GET /api/v1/pods"


def pod(name: str, image: str, on: str, phase: str = "Running") -> dict[str, Any]:
    spec = {"nodeName": on, "containers": [{"name": "c", "image": image}]}
    return {"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec, "status": {"phase": phase}}


async def test_agents_that_live_and_one_that_is_dead() -> None:
    marked: dict[str, Answer] = {NODES: items(node("a", "nri"), node("b", "nri"), node("c"))}
    (finding,) = await found(nodes.agents, marked | leases(lease("a"), lease("b")))
    assert (finding.level, finding.seen) == (Level.OK, "2 live")
    (finding,) = await found(nodes.agents, marked | leases(lease("a", seconds_ago=45)))
    assert finding.level is Level.FAILED
    assert finding.seen == "the agents of these nodes are dead: a (is 30 s late), b (has no Lease)"
    (finding,) = await found(nodes.agents, {NODES: items(node("c"))})
    assert "vendors' agents" in finding.seen


async def test_what_agents_say_of_themselves() -> None:
    labels = {"app.kubernetes.io/name": "subak", "app.kubernetes.io/component": "agent"}
    pods = [{"metadata": {"name": f"agent-{on}", "labels": labels}, "spec": {"nodeName": on}} for on in ("a", "b", "c")]
    known: dict[str, Answer] = {
        f"GET {SUBAK}/pods": items(*pods),
        f"GET {SUBAK}/pods/http:agent-a:9394/proxy/readyz": {"ready": True, "trouble": []},
        f"GET {SUBAK}/pods/http:agent-b:9394/proxy/readyz": {"ready": False, "waiting_for": ["cards"]},
    }
    assert [each.seen for each in await found(nodes.windows, known)] == [
        "agent agent-b on b: it is not ready: it waits for cards",
        "agent agent-c on c does not answer",
    ]
    well = known | {f"GET {SUBAK}/pods": items(pods[0])}
    assert [each.seen for each in await found(nodes.windows, well)] == ["1 ready"]
    assert await found(nodes.windows, {f"GET {SUBAK}/pods": items()}) == []


@pytest.mark.parametrize(
    ("runtime", "level", "words"),
    [
        ("containerd://2.3.7", Level.OK, "containerd 2.3.7"),
        ("containerd://2.1.4-k3s1", Level.WARNING, "cannot insist on our agent"),
        ("containerd://1.7.27", Level.WARNING, "cannot insist"),
        ("containerd://1.6.20~ds1", Level.WARNING, "knows no NRI"),
        ("cri-o://1.34.0", Level.OK, "cri-o 1.34.0"),
        ("cri-o://1.28.1", Level.WARNING, "cannot insist"),
        ("docker://24.0.7", Level.WARNING, "docker 24.0.7 knows no NRI"),
        ("containerd://unknown", Level.UNKNOWN, "no version"),
    ],
)
async def test_runtimes_of_nodes_with_our_agent(runtime: str, level: Level, words: str) -> None:
    (finding,) = await found(nodes.runtimes, {NODES: items(node("a", "nri", runtime), node("b", "", "docker://1"))})
    assert finding.level is level
    assert words in finding.seen


async def test_nodes_where_the_runtime_does_not_ask() -> None:
    (finding,) = await found(nodes.plugins, {NODES: items(node("a", "nri"), node("b", "plugin"))})
    assert (finding.level, finding.seen.startswith("b: ")) == (Level.WARNING, True)
    assert await found(nodes.plugins, {NODES: items(node("a", "nri"))}) == []


@pytest.mark.parametrize(
    ("image", "rival"),
    [
        ("projecthami/hami:v2.10.0", "HAMi's device plugin"),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17", "NVIDIA's device plugin"),
        ("volcanosh/volcano-vgpu-device-plugin:v1", "Volcano's device plugin"),
        ("ghcr.io/koordinator-sh/koordlet:v1.8", "Koordinator's koordlet"),
    ],
)
async def test_rivals_count_where_our_agent_runs(image: str, rival: str) -> None:
    known: dict[str, Answer] = {NODES: items(node("a", "nri"), node("b"))}
    (finding,) = await found(nodes.others, known | {PODS: items(pod("x", image, "a"), pod("y", image, "b"))})
    assert (finding.level, finding.seen) == (Level.WARNING, f"{rival} runs beside our agent on a")
    elsewhere = items(pod("x", image, "b"), pod("y", image, "a", "Succeeded"), pod("z", "himalaya/app", "a"))
    assert levels(await found(nodes.others, known | {PODS: elsewhere})) == [Level.OK]
