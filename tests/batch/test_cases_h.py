"""Volcano's binpack scores: group H of its cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from subak.batch.arguments import Arguments
from subak.batch.configuration import Configuration, Option
from subak.batch.plugins.binpack import Binpack
from subak.batch.scoring import Scoring
from subak.model.manifest import Pod
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.request import Mixture, Packed, Request
from subak.policy.mixture import THOUSAND, Mixed, packing
from subak.snapshot.cluster import Snapshot

GIB = 1 << 30
GPU, FOO = "nvidia.com/gpu", "example.com/foo"

NODES = [
    Node("n1", allocatable={"cpu": 2_000, "memory": 4 * GIB}),
    Node("n2", allocatable={"cpu": 4_000, "memory": 16 * GIB, GPU: 4}),
    Node("n3", allocatable={"cpu": 2_000, "memory": 4 * GIB, FOO: 16}),
]
PODS: dict[str, dict[str, float]] = {
    "p1": {"cpu": 1_000, "memory": GIB},
    "p2": {"cpu": 1_500},
    "p3": {"cpu": 2_000, "memory": 10 * GIB, GPU: 2},
    "p4": {"cpu": 3_000, "memory": 4 * GIB, FOO: 3},
}
FIRST = {
    "binpack.weight": 10,
    "binpack.cpu": 2,
    "binpack.memory": 3,
    "binpack.resources": f"{GPU}, {FOO}",
    f"binpack.resources.{GPU}": 7,
    f"binpack.resources.{FOO}": 8,
}
SECOND = {
    "binpack.weight": 1,
    "binpack.cpu": 1,
    "binpack.memory": 1,
    "binpack.resources": GPU,
    f"binpack.resources.{GPU}": 23,
}


def scoring(arguments: dict[str, Any]) -> Scoring:
    return Scoring(Configuration((), ((Option("binpack", arguments=arguments),),)), named=str)


def scores(arguments: dict[str, Any], asked: dict[str, float]) -> dict[str, float]:
    """What each node is worth; p1 runs on n1 and p2 on n3."""
    snapshot = Snapshot(NODES)
    snapshot.restore("default/p1", Placement("n1"), (("cpu", 1_000), ("memory", GIB)))
    snapshot.restore("default/p2", Placement("n3"), (("cpu", 1_500),))
    request = scoring(arguments).mixed(Pod(), Request(), asked)
    (pool,) = snapshot.pools
    column = Mixed().column(pool, request)(slice(0, pool.size))
    return {pool.nodes[at].name: column[at].item() / THOUSAND for at in pool}


@pytest.mark.parametrize(
    ("arguments", "pod", "expected"),
    [
        pytest.param(FIRST, "p1", (700, 137.5, 0), id="H1-p1"),
        pytest.param(FIRST, "p2", (0, 375, 0), id="H1-p2"),
        pytest.param(FIRST, "p3", (0, 531.25, 0), id="H1-p3"),
        pytest.param(FIRST, "p4", (0, 173.076923, 0), id="H1-p4"),
        pytest.param(SECOND, "p1", (75, 15.625, 0), id="H2-p1"),
        pytest.param(SECOND, "p2", (0, 37.5, 0), id="H2-p2"),
        pytest.param(SECOND, "p3", (0, 50.5, 0), id="H2-p3"),
        pytest.param(SECOND, "p4", (0, 50, 0), id="H2-p4"),
    ],
)
def test_scores(arguments: dict[str, Any], pod: str, expected: tuple[float, float, float]) -> None:
    found = scores(arguments, PODS[pod])
    assert [found[name] for name in ("n1", "n2", "n3")] == pytest.approx(expected, abs=2 / THOUSAND)


def test_h3_a_negative_weight_counts_as_one() -> None:
    arguments = {
        "binpack.weight": 10,
        "binpack.cpu": 5,
        "binpack.memory": 2,
        "binpack.resources": f"{GPU}, {FOO}",
        f"binpack.resources.{GPU}": 7,
        f"binpack.resources.{FOO}": -3,
    }
    assert Binpack.weights(Arguments(arguments)) == (10, {"cpu": 5, "memory": 2, GPU: 7, FOO: 1})


def test_h4_without_arguments_cards_do_not_count() -> None:
    assert Binpack.weights(Arguments()) == (1, {"cpu": 1, "memory": 1})
    request = scoring({}).mixed(Pod(), Request(), {"NVIDIA/memory": 4_000 << 20})
    assert request.mixture is not None
    assert request.mixture.packed == ()


def test_h5_weight_0_switches_it_off() -> None:
    assert set(scores({"binpack.weight": 0}, PODS["p1"]).values()) == {0}


def test_h6_cards_count_where_they_are_listed() -> None:
    totals, used = np.array([16_000, 16_000]), np.array([8_000, 0])
    assert packing([(totals, used, 4_000, 10)]).tolist() == [75, 25]


def test_users_names_become_ours() -> None:
    arguments = {"binpack.resources": "volcano.sh/gpu-memory", "binpack.resources.volcano.sh/gpu-memory": 10}
    configuration = Configuration((), ((Option("binpack", arguments=arguments),),))
    found = Scoring(configuration, named={"volcano.sh/gpu-memory": "NVIDIA/memory"}.get)  # type: ignore[arg-type]
    request = found.mixed(Pod(), Request(), {"NVIDIA/memory": 5.0})
    assert request.mixture == Mixture(
        packing=1,
        packed=(Packed("NVIDIA/memory", 10, 5),),
        preferences=request.mixture.preferences if request.mixture else (),
    )
