"""Disks that two pods of one node cannot share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.volumes.world import World


@pytest.mark.parametrize(
    ("kind", "there", "asked", "shared"),
    [
        ("gcePersistentDisk", {"pdName": "d"}, {"pdName": "d"}, False),
        ("gcePersistentDisk", {"pdName": "d", "readOnly": True}, {"pdName": "d"}, False),
        ("gcePersistentDisk", {"pdName": "d", "readOnly": True}, {"pdName": "d", "readOnly": True}, True),
        ("gcePersistentDisk", {"pdName": "d"}, {"pdName": "e"}, True),
        ("awsElasticBlockStore", {"volumeID": "v"}, {"volumeID": "v"}, False),
        ("awsElasticBlockStore", {"volumeID": "v", "readOnly": True}, {"volumeID": "v", "readOnly": True}, False),
        ("iscsi", {"iqn": "q", "lun": 1}, {"iqn": "q", "lun": 2}, False),
        ("iscsi", {"iqn": "q", "readOnly": True}, {"iqn": "q", "readOnly": True}, True),
        ("rbd", {"monitors": ["a", "b"], "image": "i"}, {"monitors": ["b"], "image": "i"}, False),
        ("rbd", {"monitors": ["a"], "image": "i"}, {"monitors": ["b"], "image": "i"}, True),
        ("rbd", {"monitors": ["a"], "image": "i", "pool": "p"}, {"monitors": ["a"], "image": "i"}, True),
        ("cinder", {"volumeID": "v"}, {"volumeID": "v"}, True),
    ],
)
def test_a_disk_is_shared_only_by_those_that_read_it(
    kind: str, there: dict[str, Any], asked: dict[str, Any], shared: bool
) -> None:
    world = World()
    world.run("first", "a1", volumes=[{"name": "v", kind: there}])
    volumes = [{"name": "v", kind: asked}]
    assert ("a1" in world.fits(volumes=volumes)) == shared
    assert {"a2", "b1"} <= world.fits(volumes=volumes)
    if not shared:
        assert "is in use by a pod there (VolumeInUse)" in world.why(volumes=volumes)
