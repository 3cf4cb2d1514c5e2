"""Labels of nodes: affinity and zones of volumes, topologies of classes, and what is left of them."""

from __future__ import annotations

from typing import Any

import pytest

from subak.model.volume import HOSTNAME
from subak.policy.volumes.reach import zones
from tests.policy.volumes.world import ZONE, World, node
from tests.support.volumes import (
    WAITING,
    affinity,
    capacity,
    claim,
    driver,
    persistent_volume,
    storage_class,
)

EVERYWHERE = {"a1", "a2", "b1"}


def bound(**volume: Any) -> World:
    """A claim that is bound to a volume."""
    return World(claim("data", volume="pv"), persistent_volume("pv", claim="data", **volume))


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ([{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["a1", "b1"]}]}], {"a1", "b1"}),
        ([{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a"]}]}], {"b1"}),
        ([{"matchExpressions": [{"key": HOSTNAME, "operator": "Exists"}]}], EVERYWHERE),
        ([{"matchExpressions": []}], set()),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a1"]}]}], set()),
        (
            [
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["a1"]}]},
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]},
            ],
            {"a1", "b1"},
        ),
        (
            [
                {
                    "matchExpressions": [
                        {"key": HOSTNAME, "operator": "In", "values": ["a1", "b1"]},
                        {"key": ZONE, "operator": "In", "values": ["b"]},
                    ]
                }
            ],
            {"b1"},
        ),
    ],
)
def test_a_pod_goes_where_its_volume_is(terms: list[Any], nodes: set[str]) -> None:
    world = bound(nodeAffinity={"required": {"nodeSelectorTerms": terms}})
    assert world.fits("data") == nodes
    if nodes != EVERYWHERE:
        assert "volume pv is not within reach of the node (VolumeNodeConflict)" in world.why("data")


def test_two_volumes_must_both_be_within_reach() -> None:
    world = World(
        claim("one", volume="anywhere"),
        claim("two", volume="here"),
        persistent_volume("anywhere", claim="one", nodeAffinity=affinity(ZONE, "a")),
        persistent_volume("here", claim="two", nodeAffinity=affinity(HOSTNAME, "a2", "b1")),
    )
    assert world.fits("one", "two") == {"a2"}


@pytest.mark.parametrize(
    ("labels", "nodes"),
    [
        ({ZONE: "a"}, {"a1", "a2", "bare"}),
        ({ZONE: "b__c"}, {"b1", "bare"}),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, {"b1", "bare"}),
        ({"topology.kubernetes.io/region": "r"}, {"bare"}),
        ({ZONE: "a__"}, {"a1", "a2", "b1", "bare"}),
    ],
)
def test_a_pod_stays_in_the_zone_of_its_volume(labels: dict[str, str], nodes: set[str]) -> None:
    """A node without any such label is taken for one of a cluster without zones."""
    world = bound(labels=labels)
    bare = node("bare")
    world.snapshot.put([type(bare)("bare", labels={HOSTNAME: "bare"})])
    assert world.fits("data") == nodes


def test_zones_of_a_label_are_separated_by_two_underscores() -> None:
    assert zones("a__b ") == {"a", "b"}
    assert zones("a____b") == set()


def test_a_class_that_makes_no_volumes_needs_some() -> None:
    world = World(claim("data", class_name="local"))
    assert world.why("data") == (
        "3 nodes: no volume of class local fits, and the class makes none (VolumeNotAvailable)"
    )


def test_a_class_makes_volumes_for_its_topologies_only() -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}, {"matchLabelExpressions": []}]
    world = World(storage_class(WAITING, allowedTopologies=terms), claim("data"))
    assert world.fits("data") == {"b1"}
    assert world.why("data") == "2 nodes: class waiting makes no volumes for such nodes (VolumeNodeConflict)"


def test_a_new_volume_goes_where_enough_is_left() -> None:
    small, large = capacity("small", "1Gi", **{f"{HOSTNAME}": "a1"}), capacity("large", "10Gi", **{f"{HOSTNAME}": "a2"})
    world = World(claim("data", "2Gi"), small, large)
    assert world.fits("data") == EVERYWHERE, "nobody says that it counts"
    world.see(driver(counts=True))
    assert world.fits("data") == {"a2"}
    assert world.why("data") == ("2 nodes: class waiting has no 2Gi left for the node (VolumeInsufficientCapacity)")
    world.see({**large, "maximumVolumeSize": "1Gi"})
    assert world.fits("data") == set()
    world.see({key: value for key, value in small.items() if key != "nodeTopology"} | {"capacity": "5Gi"})
    assert world.fits("data") == set(), "a capacity without a topology is nobody's"
    world.see(driver(counts=False))
    assert world.fits("data") == EVERYWHERE
