"""How many volumes of a driver a node takes."""

from __future__ import annotations

from typing import Any

from tests.policy.volumes.world import World
from tests.support.volumes import attachment, claim, csi, csi_node, persistent_volume


def volume(name: str, handle: str = "") -> list[dict[str, Any]]:
    """A claim that is bound to a volume of the driver."""
    return [claim(name, volume=f"pv-{name}"), persistent_volume(f"pv-{name}", claim=name, csi=csi(handle or name))]


def test_a_full_node_takes_no_more_volumes() -> None:
    world = World(*volume("one"), *volume("two"), *volume("three"), csi_node("a1", limit=2), csi_node("a2"))
    world.run("first", "a1", "one", "two")
    assert world.fits("three") == {"a2", "b1"}
    assert world.why("three") == ("1 node: disks.example.com takes 2 volumes, 2 attached, 1 asked (VolumeLimitReached)")
    world.leave("first")
    assert world.fits("three") == {"a1", "a2", "b1"}


def test_a_volume_that_is_there_already_counts_once() -> None:
    world = World(*volume("one"), *volume("same", "one"), csi_node("a1", limit=1))
    world.run("first", "a1", "one")
    assert "a1" in world.fits("one")
    assert "a1" in world.fits("same")


def test_a_claim_without_a_volume_counts_as_one_of_its_class() -> None:
    world = World(claim("one"), claim("two"), csi_node("a1", limit=1))
    assert "a1" in world.fits("one")
    assert "a1" not in world.fits("one", "two")
    world.run("first", "a1", "one")
    assert "a1" not in world.fits("two")


def test_a_volume_counts_anew_when_its_claim_is_bound() -> None:
    world = World(claim("one"), *volume("two", "same"), csi_node("a1", limit=1))
    world.run("first", "a1", "one")
    assert "a1" not in world.fits("two")
    world.see(*volume("one", "same"))
    assert "a1" in world.fits("two"), "both are the same volume"


def test_what_is_attached_for_nobody_counts_too() -> None:
    world = World(*volume("one"), *volume("two"), csi_node("a1", limit=1), attachment("left-over", "a1", "pv-one"))
    assert "a1" not in world.fits("two")
    gone = attachment("left-over", "b1", "pv-one")
    world.see(gone)
    assert "a1" in world.fits("two")


def test_a_disk_of_a_cloud_counts_for_the_driver_that_took_it_over() -> None:
    described = csi_node("a1", limit=1)
    described["spec"]["drivers"][0]["name"] = "ebs.csi.aws.com"
    world = World(described)
    world.run("first", "a1", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}])
    other = [{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-2"}}]
    assert world.fits(volumes=other) == {"a2", "b1"}


def test_a_volume_counts_anew_when_it_is_seen() -> None:
    claims, (unseen,) = volume("one", "same")[:1], volume("one", "same")[1:]
    world = World(*claims, *volume("two", "same"), csi_node("a1", limit=1))
    world.run("first", "a1", "one")
    assert "a1" not in world.fits("two")
    world.see(unseen)
    assert "a1" in world.fits("two")
