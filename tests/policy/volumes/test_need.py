"""Claims that no node can serve, bound ones, and those that wait for a pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.volumes.world import World, pod
from tests.support.volumes import IMMEDIATE, claim, classes, persistent_volume

EVERYWHERE = {"a1", "a2", "b1"}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"name": "other"}, "claim default/data is not there"),
        ({"class_name": IMMEDIATE}, "pod has unbound immediate PersistentVolumeClaims: default/data"),
        ({"class_name": None}, "pod has unbound immediate PersistentVolumeClaims: default/data"),
        ({"class_name": "no-such-class"}, "pod has unbound immediate PersistentVolumeClaims: default/data"),
        ({"phase": "Lost", "volume": "pv"}, "claim default/data has lost its volume pv"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "claim default/data is being deleted"),
        ({"volume": "gone"}, "volume gone of claim default/data is not there"),
        ({"volumeName": "pv"}, "pod has unbound immediate PersistentVolumeClaims: default/data"),
    ],
)
def test_a_claim_that_is_not_ready_keeps_the_pod_off_all_nodes(made: dict[str, Any], why: str) -> None:
    world = World(claim(**{"name": "data", **made}), persistent_volume("pv"))
    assert world.fits("data") == set()
    assert world.why("data") == f"3 nodes: {why} (VolumeClaimNotReady)"


def test_a_pod_whose_claims_are_fine_may_go_anywhere() -> None:
    assert World(claim("data")).fits("data") == EVERYWHERE
    assert World(claim("data", volume="pv"), persistent_volume("pv", claim="data")).fits("data") == EVERYWHERE


def test_an_ephemeral_volume_waits_for_its_claim_which_must_be_the_pods_own() -> None:
    world = World()
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    assert world.why(volumes=volumes) == (
        "3 nodes: claim default/asked-scratch is not there: Kubernetes makes it for the pod (VolumeClaimNotReady)"
    )
    world.see(claim("asked-scratch"))
    assert "was not made for the pod" in world.why(volumes=volumes)
    owner = [{"uid": "uid-asked", "controller": True}]
    world.see(claim("asked-scratch", metadata={"ownerReferences": owner}))
    assert world.fits(volumes=volumes) == EVERYWHERE


def test_a_claim_goes_to_the_node_for_which_it_is_provisioned() -> None:
    world = World(claim("data", node="a2"))
    assert world.fits("data") == {"a2"}
    assert world.why("data").startswith("2 nodes: claim default/data is provisioned for node a2 (VolumeNodeConflict)")


def test_claims_that_are_provisioned_for_two_nodes_fit_nowhere() -> None:
    assert World(claim("one", node="a1"), claim("two", node="a2")).fits("one", "two") == set()


def test_a_claim_for_one_pod_is_not_shared() -> None:
    world = World(claim("data", modes=["ReadWriteOncePod"], volume="pv"), persistent_volume("pv", claim="data"))
    assert world.fits("data") == EVERYWHERE
    world.run("first", "a1", "data")
    assert world.why("data") == (
        "3 nodes: claim default/data (ReadWriteOncePod) is in use by another pod (VolumeInUse)"
    )
    world.leave("first")
    assert world.fits("data") == EVERYWHERE


def test_pods_without_claims_are_not_asked() -> None:
    plain = pod("plain", volumes=[{"name": "token", "projected": {}}])
    assert World().request(plain).reads == ()


def test_a_class_that_comes_later_lets_the_pod_in() -> None:
    world = World(claim("data", class_name="later"))
    assert world.fits("data") == set()
    world.see({**classes()[0], "metadata": {"name": "later"}})
    assert world.fits("data") == EVERYWHERE
