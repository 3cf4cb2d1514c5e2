"""Disks that a pod names itself: two pods of one node may share one only if both read it, and some not at all.

    gcePersistentDisk      the same name, unless both only read
    awsElasticBlockStore   the same id, even if both only read
    iscsi                  the same qualified name, unless both only read
    rbd                    the same image, pool and any of the monitors, unless both only read

Storage drivers know better who may share a volume: nothing is said here of claims.
"""

from __future__ import annotations

from collections.abc import Iterable

from subak.model.manifest import Disk

Named = tuple[str, Disk]
"""A kind of disk, and the disk."""


def clash(mine: Iterable[Named], theirs: Iterable[Named]) -> Disk | None:
    """The first of my disks that cannot be shared with them."""
    others = list(theirs)
    return next((disk for kind, disk in mine if any(_clash(kind, disk, each) for each in others)), None)


def name(disk: Disk) -> str:
    """What people call it."""
    return disk.pd_name or disk.volume_id or disk.iqn or f"{disk.pool}/{disk.image}"


def _clash(kind: str, disk: Disk, named: Named) -> bool:
    other_kind, other = named
    if kind != other_kind:
        return False
    shared = disk.read_only and other.read_only
    match kind:
        case "gce_persistent_disk":
            return disk.pd_name == other.pd_name and not shared
        case "aws_elastic_block_store":
            return disk.volume_id == other.volume_id
        case "iscsi":
            return disk.iqn == other.iqn and not shared
        case "rbd":
            same = disk.pool == other.pool and disk.image == other.image
            return same and not shared and not set(disk.monitors).isdisjoint(other.monitors)
        case _:
            return False
