"""A node's table of partitions, as the Device object tells it in an annotation, by the number of cards:

    {"2":[{"minors":[0,1],"gpuLinkType":"NVLink","ringBusBandwidth":"200Gi","allocationScore":1}, ...], ...}

The label `gpu-partition-policy: Honor` says that whole cards are given by the table only.  Nodes with eight cards of
some models have a table although nobody wrote one; then the label of the node counts too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from subak.dialects import annotation
from subak.dialects.koordinator_names import MODEL, PARTITION_POLICY, PARTITIONS, VENDOR
from subak.model import manifest
from subak.model.device import GPU, Partition, PartitionTable
from subak.model.manifest import Amount
from subak.model.node import Node
from tinykube.quantity import Format, Quantity

HONOR = "Honor"
EIGHT_ALIKE = frozenset({"H100", "H800", "H20"})
"""Models with eight cards behind NVSwitches; the label must be just this word."""

UNREADABLE = PartitionTable(honor=True)
"""The table of a node whose annotation makes no sense: whole cards wait until it does."""


class Row(msgspec.Struct, rename="camel", omit_defaults=True):
    """A partition in the annotation."""

    minors: list[int]
    gpu_link_type: str = ""
    ring_bus_bandwidth: Amount | None = None
    allocation_score: int = 0


def table(node: manifest.Node, device: manifest.Device) -> PartitionTable | None:
    """The table of a node, None if it has none.  Raises ValueError if it cannot be read."""
    policy = device.labels.get(PARTITION_POLICY)
    if PARTITIONS in device.annotations:
        rows = annotation.decode(device.annotations[PARTITIONS], dict[str, list[Row] | None])
        partitions = tuple(_partition(row) for group in rows.values() for row in group or ())
        return PartitionTable(partitions, policy == HONOR)
    cards = [each for each in device.spec.devices if each.type == GPU]
    if len(cards) == 8 and _label(node, device, MODEL) in EIGHT_ALIKE and _vendor(node, device) in ("", "nvidia"):
        policy = policy or node.labels.get(PARTITION_POLICY)
        return PartitionTable(_eight(sorted(each.minor for each in cards)), policy == HONOR)
    return PartitionTable(honor=True) if policy == HONOR else None


def _label(node: manifest.Node, device: manifest.Device, key: str) -> str:
    return device.labels.get(key) or node.labels.get(key, "")


def _vendor(node: manifest.Node, device: manifest.Device) -> str:
    return _label(node, device, VENDOR).lower()


def _eight(minors: list[int]) -> tuple[Partition, ...]:
    """Cards one by one, in pairs, in fours, and all."""
    sizes = (1, 2, 4, 8)
    return tuple(Partition(tuple(minors[at : at + size])) for size in sizes for at in range(0, 8, size))


def _partition(row: Row) -> Partition:
    bandwidth = Quantity.parse(row.ring_bus_bandwidth or 0).ceil()
    return Partition(tuple(dict.fromkeys(row.minors)), row.allocation_score, bandwidth, row.gpu_link_type)


def written(node: Node) -> tuple[dict[str, str], dict[str, str]]:
    """Label and annotation of the Device object for a node with a table; nothing for one without."""
    found = next((each.partitions for each in node.devices if each.partitions is not None), None)
    if found is None:
        return {}, {}
    rows: dict[str, list[Any]] = {}
    for each in found.partitions:
        bandwidth = str(Quantity.of(each.bandwidth, Format.BINARY)) if each.bandwidth else None
        rows.setdefault(str(len(each.minors)), []).append(Row(list(each.minors), each.link, bandwidth, each.score))
    return {PARTITION_POLICY: HONOR} if found.honor else {}, {PARTITIONS: annotation.encode(rows)} if rows else {}
