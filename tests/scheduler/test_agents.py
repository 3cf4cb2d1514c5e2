"""Agents that die and come back, as the core sees it: new pods wait and are told why, running ones keep counting."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest

from subak.dialects import mark
from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import NodeGone, NodeSeen
from tests.support.scheduler import Cluster, pod

SLICE = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 6000}
REGISTER = "GPU-0,10,10000,NVIDIA-T4,true,hami-core:"


def vgpu_node(number: int) -> manifest.Node:
    """A node with one card of 10,000 MiB, of whose slices so many are allocatable."""
    content = {
        "metadata": {"name": "n1", "annotations": {"volcano.sh/node-vgpu-register": REGISTER}},
        "status": {"capacity": {"volcano.sh/vgpu-number": 10}, "allocatable": {"volcano.sh/vgpu-number": number}},
    }
    return msgspec.convert(content, manifest.Node)


@pytest.fixture
def cluster() -> Cluster:
    """A node on which one pod runs, and whose agent has died since."""
    made = Cluster()
    made.add_node(vgpu_node(10))
    made.create(pod("running", SLICE))
    made.settle()
    assert made.placed() == {"running": "n1"}
    made.add_node(vgpu_node(0))
    return made


def test_a_new_pod_waits_and_is_told_what_to_do(cluster: Cluster) -> None:
    cluster.create(pod("new", {**SLICE, "volcano.sh/vgpu-memory": 100}))
    cluster.settle()
    assert cluster.placed() == {"running": "n1"}
    assert cluster.reports["default/new"] == (
        "0 of 1 nodes fit: 1 node: agent dead: 0 volcano.sh/vgpu-number allocatable beside 1 registered card; "
        "restart it on the node (NodeAgentDead)"
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_what_runs_there_keeps_counting_until_the_agent_is_back(cluster: Cluster, restarted: bool) -> None:
    cluster.create(pod("small", {**SLICE, "volcano.sh/vgpu-memory": 4000}))
    cluster.create(pod("large", SLICE))
    cluster.settle()
    if restarted:
        cluster.restart()
        cluster.settle()
    (card,) = cluster.core.snapshot.cards("n1")
    assert card.memory_free == 4000 << 20
    cluster.add_node(vgpu_node(10))
    cluster.settle()
    assert cluster.placed() == {"running": "n1", "small": "n1"}
    assert "largest free slice 0 MiB, 6,000 MiB asked" in cluster.reports["default/large"]


ASKED = datetime(2026, 1, 1, tzinfo=UTC)


def hami_node(allocatable: int) -> manifest.Node:
    """A node whose agent a scheduler of HAMi has asked whether it lives."""
    card = {"id": "GPU-0", "count": 10, "devmem": 10000, "devcore": 100, "type": "NVIDIA-T4", "health": True}
    annotations = {
        "hami.io/node-nvidia-register": json.dumps([card]),
        "hami.io/node-handshake": f"Requesting_{ASKED:%Y-%m-%d %H:%M:%S}",
    }
    status = {"capacity": {"nvidia.com/gpu": 10}, "allocatable": {"nvidia.com/gpu": allocatable}}
    return msgspec.convert({"metadata": {"name": "n1", "annotations": annotations}, "status": status}, manifest.Node)


def test_an_agent_that_does_not_answer_is_dead_after_a_minute_though_nothing_else_happens() -> None:
    cluster = Cluster(now=ASKED.timestamp() + 30)
    cluster.add_node(hami_node(0))
    cluster.create(pod("early", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}))
    cluster.settle()
    assert cluster.placed() == {"early": "n1"}, "it may still answer"
    cluster.now = ASKED.timestamp() + 61
    cluster.create(pod("late", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}))
    cluster.settle()
    assert cluster.placed() == {"early": "n1"}
    assert "hami.io/node-handshake unanswered for more than 60 s" in cluster.reports["default/late"]
    cluster.add_node(hami_node(10))
    cluster.settle()
    assert cluster.placed() == {"early": "n1", "late": "n1"}


def test_a_core_that_starts_later_knows_it_too() -> None:
    cluster = Cluster(now=ASKED.timestamp() + 3600)
    cluster.add_node(hami_node(0))
    cluster.create(pod("late", {"nvidia.com/gpu": 1}))
    cluster.settle()
    assert cluster.placed() == {}
    assert "NodeAgentDead" in cluster.reports["default/late"]


def test_a_node_whose_containers_get_their_cards_by_variables_is_remembered() -> None:
    """Its agent may be restarting, and pods that are created meanwhile must be ready for it."""
    core = Core()
    node = msgspec.convert({"metadata": {"name": "n", "annotations": {mark.MARK: mark.NRI}}}, manifest.Node)
    metadata = msgspec.structs.replace(node.metadata, annotations={mark.MARK: mark.PLUGIN})
    news = (NodeSeen(node), NodeSeen(msgspec.structs.replace(node, metadata=metadata)), NodeGone("n"))
    needed = []
    for each in news:
        core.handle(each)
        needed.append(core.needs_variables)
    assert needed == [False, True, True]
