"""Volcano's node order: group I of its cases."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.batch.arguments import Arguments
from subak.batch.configuration import Configuration, Option
from subak.batch.plugins.nodeorder import BALANCED, LEAST, MOST, PREFERENCES, NodeOrder
from subak.batch.scoring import Scoring
from subak.model import manifest
from subak.model.placement import Placement
from subak.policy.decider import Decider
from subak.policy.mixture import THOUSAND, Mixed
from tests.batch.worlds import SEED, Stage

HOST = "kubernetes.io/hostname"


def only(**weights: int) -> Configuration:
    """The node order in which nothing but this counts."""
    arguments = dict.fromkeys((LEAST, MOST, BALANCED, *PREFERENCES), 0) | {
        f"{name}.weight": weight for name, weight in weights.items()
    }
    return Configuration((), ((Option("nodeorder", arguments=arguments),),))


def asked(stage: Stage, configuration: Configuration, name: str = "p1", **facts: Any) -> Any:
    """The request of a pod under a configuration."""
    task = stage.pod(name, **facts)
    return Scoring(configuration, named=str).mixed(task.pod, task.request, task.amounts)


def chosen(stage: Stage, configuration: Configuration, **facts: Any) -> str:
    """The node that a pod gets."""
    answer = stage.decider.decide("default", asked(stage, configuration, **facts))
    assert isinstance(answer, Placement)
    return answer.node


def scores(decider: Decider, request: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for pool in decider.snapshot.pools:
        column = Mixed().column(pool, request)(slice(0, pool.size))
        found |= {pool.nodes[at].name: column[at].item() / THOUSAND for at in pool}
    return found


def test_i2_most_requested() -> None:
    stage = Stage()
    stage.node("n1", cpu=2, memory="4Gi")
    stage.node("n2", cpu=4, memory="8Gi")
    request = asked(stage, only(mostrequested=1), cpu=1, memory="1G")
    assert scores(stage.decider, request) == {"n1": 36, "n2": 18}


def test_i3_balanced() -> None:
    stage = Stage()
    stage.node("n1", cpu=2, memory="2Gi")
    stage.node("n2", cpu=4, memory="2Gi")
    request = asked(stage, only(balancedresource=10), cpu=1, memory="1Gi")
    assert scores(stage.decider, request) == {"n1": 750, "n2": 680}


def test_i4_node_affinity() -> None:
    stage = Stage()
    stage.node("n0", labels={"zone": "zone2"})
    stage.node("n1", labels={"zone": "zone1"})
    preferred = {"key": "zone", "operator": "In", "values": ["zone1"]}
    terms = [{"weight": 100, "preference": {"matchExpressions": [preferred]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    assert chosen(stage, only(nodeaffinity=10), spec={"affinity": affinity}) == "n1"
    assert chosen(stage, only(), name="p2", spec={"affinity": affinity}) == "n0", "without a weight it does not count"


def test_i5_taints() -> None:
    stage = Stage()
    stage.node("n0", taints=[{"key": "key1", "value": "value1", "effect": "PreferNoSchedule"}])
    stage.node("n1")
    assert chosen(stage, only(tainttoleration=10)) == "n1"
    assert chosen(stage, only(), name="p2") == "n0"


def test_i6_pod_affinity() -> None:
    stage = Stage()
    for name in ("n0", "n1", "n3"):
        stage.node(name, labels={HOST: name})
    stage.pod("s1", node="n1", labels={"service": "s1"})
    stage.pod("s2", node="n3", labels={"service": "s2"})
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"service": "s1"}}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert chosen(stage, only(podaffinity=10), spec={"affinity": affinity}) == "n1"


def test_i7_topology_spread() -> None:
    stage = Stage()
    for number in (1, 2, 3):
        stage.node(f"n{number}", labels={"zone": f"zone{number}", HOST: f"n{number}"})
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        stage.pod(name, node=node, labels={"app": "foo"})
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "foo"}},
    }
    spec = {"topologySpreadConstraints": [constraint]}
    assert chosen(stage, only(podtopologyspread=10), labels={"app": "foo"}, spec=spec) == "n3"


def test_i8_without_arguments() -> None:
    weights = NodeOrder.weights(Arguments())
    assert (weights.least, weights.most, weights.balanced) == (1, 0, 1)
    assert sorted(weight for _, weight in weights.preferences) == [2, 2, 2, 3]


def test_i9_the_seed_spreads_pods_that_ask_for_cards_only() -> None:
    stage = Stage()
    stage.node("a", cpu=8, memory="32Gi", cards=[16_000])
    stage.node("b", cpu=8, memory="32Gi", cards=[16_000])
    stage.pod("half", node="b", cpu=4, memory="16Gi")
    least = Configuration((), ((Option("nodeorder", arguments={BALANCED: 0}),),))
    request = asked(stage, least, limits={"volcano.sh/gpu-memory": 4_000})
    assert scores(stage.decider, request) == {"a": 98, "b": 48}
    assert chosen(stage, SEED, name="p2", limits={"volcano.sh/gpu-memory": 4_000}) == "a"


def test_points_of_preferences_are_added_not_put_first() -> None:
    """A full node that the pod would rather have loses against an empty one, if the weights say so."""
    stage = Stage()
    stage.node("full", cpu=10, memory="10Gi", labels={"zone": "liked"})
    stage.node("free", cpu=10, memory="10Gi")
    stage.pod("old", node="full", cpu=9, memory="9Gi")
    terms = [{"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}
    assert chosen(stage, only(leastrequested=1, nodeaffinity=2), name="a", spec=spec) == "full"
    assert chosen(stage, only(leastrequested=5, nodeaffinity=2), name="b", spec=spec) == "free"


def vgpu_node(stage: Stage, name: str, cards: int = 2) -> None:
    """A node with cards of 16 GiB for Volcano's vGPU."""
    text = "".join(f"GPU-{name}-{number},10,16384,NVIDIA-T4,true,hami-core:" for number in range(cards))
    content = {
        "metadata": {"name": name, "annotations": {"volcano.sh/node-vgpu-register": text}},
        "status": {
            "capacity": {
                "cpu": "8",
                "memory": "32Gi",
                "pods": "110",
                "volcano.sh/vgpu-number": 10 * cards,
                "volcano.sh/vgpu-memory": 16_384 * cards,
                "volcano.sh/vgpu-cores": 100 * cards,
            }
        },
    }
    node, warnings = stage.decider.interpreter.node(msgspec.convert(content, manifest.Node))
    assert not warnings
    stage.add_node(node)


VGPU = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 4_096}


def with_policy(policy: str, weight: int = 0) -> Configuration:
    arguments = {"deviceshare.SchedulePolicy": policy, "deviceshare.ScheduleWeight": weight}
    return Configuration((), ((Option("deviceshare", arguments=arguments),),))


@pytest.mark.parametrize(("policy", "expected"), [("binpack", 0), ("spread", 1), ("", 1)])
def test_r5_vgpu_cards_by_the_policy_of_the_configuration(policy: str, expected: int) -> None:
    stage = Stage()
    vgpu_node(stage, "n1")
    stage.pod("old", node="n1", limits=VGPU, annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-n1-0"})
    answer = stage.decider.decide("default", asked(stage, with_policy(policy), limits=VGPU))
    assert isinstance(answer, Placement)
    assert [share.index for grant in answer.grants for share in grant.shares] == [expected]


@pytest.mark.parametrize(("policy", "expected"), [("binpack", "used"), ("spread", "free")])
def test_q12_cards_count_for_the_choice_of_the_node(policy: str, expected: str) -> None:
    stage = Stage()
    vgpu_node(stage, "free", 1)
    vgpu_node(stage, "used", 1)
    stage.pod("old", node="used", limits=VGPU)
    configuration = with_policy(policy, 10)
    request = asked(stage, configuration, limits=VGPU)
    assert request.mixture.cards == 10
    answer = stage.decider.decide("default", request)
    assert isinstance(answer, Placement)
    assert answer.node == expected
