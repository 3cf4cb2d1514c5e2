"""Volumes that are there already, for claims that wait for a pod."""

from __future__ import annotations

from typing import Any

import pytest

from subak.model.volume import Assignment
from tests.policy.volumes.world import World
from tests.support.volumes import LOCAL, WAITING, claim, persistent_volume


def local(name: str, host: str, size: str = "1Gi", **more: Any) -> dict[str, Any]:
    return persistent_volume(name, size, host=host, **more)


def test_a_claim_gets_the_smallest_volume_that_is_large_enough() -> None:
    volumes = [local(f"pv-{size}", "a1", f"{size}Gi") for size in (8, 2, 4, 1)]
    world = World(claim("data", "2Gi", LOCAL), *volumes)
    assert world.fits("data") == {"a1"}
    assert world.place("first", "data") == ("a1", (Assignment("default/data", "uid-data", "pv-2"),))


def test_claims_of_a_pod_are_served_by_size() -> None:
    world = World(
        claim("large", "4Gi", LOCAL),
        claim("small", "1Gi", LOCAL),
        local("pv-5", "a1", "5Gi"),
        local("pv-4", "a1", "4Gi"),
    )
    placed = world.place("first", "large", "small")
    assert placed is not None
    assert {each.claim: each.volume for each in placed[1]} == {"default/small": "pv-4", "default/large": "pv-5"}


@pytest.mark.parametrize(
    ("asked", "volume", "fits"),
    [
        ({}, {}, True),
        ({"size": "2Gi"}, {}, False),
        ({"modes": ["ReadWriteMany"]}, {}, False),
        ({"modes": ["ReadWriteOnce"]}, {"modes": ["ReadWriteMany", "ReadWriteOnce"]}, True),
        ({"volumeMode": "Block"}, {}, False),
        ({"volumeMode": "Filesystem"}, {}, True),
        ({"volumeMode": "Block"}, {"volumeMode": "Block"}, True),
        ({"volumeAttributesClassName": "fast"}, {}, False),
        ({"selector": {"matchLabels": {"kind": "ssd"}}}, {}, False),
        ({"selector": {"matchLabels": {"kind": "ssd"}}}, {"labels": {"kind": "ssd"}}, True),
        ({"selector": {"matchExpressions": [{"key": "kind", "operator": "DoesNotExist"}]}}, {}, True),
        ({}, {"phase": "Released"}, False),
        ({}, {"class_name": "other"}, False),
        ({}, {"claim": "somebody"}, False),
        ({}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({}, {"claim": "data", "uid": "", "phase": "Available"}, True),
        ({}, {"claim": "data", "uid": "uid-of-an-older-claim"}, False),
        ({"modes": ["ReadWriteMany"]}, {"claim": "data", "uid": ""}, True),
    ],
)
def test_a_volume_must_be_what_the_claim_asks_for(asked: dict[str, Any], volume: dict[str, Any], fits: bool) -> None:
    """One that its user meant for the claim need not have its modes and labels."""
    world = World(claim(**{"name": "data", "class_name": LOCAL, **asked}), persistent_volume("pv", host="a1", **volume))
    assert world.fits("data") == ({"a1"} if fits else set())


def test_a_volume_that_is_meant_for_the_claim_excludes_others() -> None:
    world = World(claim("data", class_name=LOCAL), local("a", "a1"), local("b", "b1", "9Gi", claim="data", uid=""))
    assert world.fits("data") == {"b1"}
    assert world.place("first", "data") == ("b1", (Assignment("default/data", "uid-data", "b"),))


def test_a_class_that_also_makes_volumes_prefers_those_that_are_there() -> None:
    world = World(claim("data"), persistent_volume("pv", class_name=WAITING, host="a1"))
    assert world.fits("data") == {"a1", "a2", "b1"}
    assert world.place("first", "data") == ("a1", (Assignment("default/data", "uid-data", "pv"),))


def test_volumes_without_affinity_are_anybodys() -> None:
    assert World(claim("data", class_name=LOCAL), persistent_volume("pv")).fits("data") == {"a1", "a2", "b1"}
