"""Koordinator's Device object: the cards of one node, under the node's name.

It is the richest description of cards that any of the systems has: exact bytes, health, NUMA node and PCIe root.  Subak
reads it where Koordinator's agent writes it, and writes it where Subak's own agent knows the cards.

    Device object ── sight ──> cards          node ── publish ──> Device object, labels and amounts of the node

One vendor label speaks for the whole object there.  On a node with cards of several vendors or models, ours carries the
labels per card too, and those are believed first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec

from subak.dialects import MOST_CARDS, Published, Sight, Sighting, Source, koordinator_partition
from subak.dialects.amounts import offers, published
from subak.dialects.koordinator_names import (
    CORE,
    DRIVER,
    EXTRAS,
    FPGA_UNIT,
    GPU_FAMILIES,
    ISOLATION,
    MEMORY,
    MODEL,
    NPU_CORE,
    PARTITIONS,
    RATIO,
    RDMA_UNIT,
    SHARED,
    UNIT,
    VENDOR,
    canonical,
    kind,
)
from subak.model import manifest
from subak.model.device import FPGA, FULL_CORES, GPU, RDMA, Device, PartitionTable, VirtualFunction
from subak.model.manifest import Amounts
from subak.model.node import Node
from tinykube.quantity import Format, Quantity

SLOTS = 100
"""How many pods may share a card: what Koordinator publishes as `gpu.shared` for each."""

_UNITS = {RDMA: RDMA_UNIT, FPGA: FPGA_UNIT}
_FAMILIES = {"": "nvidia", "baidu": "kunlun"}


def sight(node: manifest.Node, device: manifest.Device | None) -> Sight:
    """The cards of the Device object; without one, as many as the node's allocatable amounts to."""
    allocatable = {canonical(name): amount for name, amount in node.allocatable.items()}
    amounts = {name: amount for name, amount in allocatable.items() if name is not None and kind(name) == GPU}
    offered = offers(amounts, [name for name in amounts if name.startswith(UNIT)])
    if device is None:
        try:
            return Sight(offered, Source.CAPACITY, tuple(_counted(node, amounts)))
        except ValueError as error:
            return Sight(offered, warnings=(f"node {node.name}: label {VENDOR}: {error}; its cards are left out",))
    sightings: list[Sighting] = []
    warnings: list[str] = []
    try:
        table = koordinator_partition.table(node, device)
    except ValueError as error:
        table = koordinator_partition.UNREADABLE
        warnings.append(f"Device {device.name}: annotation {PARTITIONS}: {error}; its partitions are left out")
    for info in device.spec.devices:
        try:
            sightings.append(_sighting(info, device, table))
        except ValueError as error:
            warnings.append(f"Device {device.name}: {info.type} {info.minor}: {error}; the card is left out")
    return Sight(offered or bool(device.spec.devices), Source.DEVICE_OBJECT, tuple(sightings), tuple(warnings))


def _counted(node: manifest.Node, amounts: Amounts) -> Iterable[Sighting]:
    """Equal cards that together make the node's allocatable."""
    count, memory = -(-published(amounts, CORE) // FULL_CORES), published(amounts, MEMORY)
    if count > 0 and memory > 0:
        family, model = _family(node.labels.get(VENDOR, "")), node.labels.get(MODEL, "")
        for index in range(min(count, MOST_CARDS + 1)):
            yield Sighting(family, index, memory_bytes=memory // count, model=model, slots=SLOTS)


def _functions(groups: Iterable[manifest.FunctionGroup]) -> tuple[VirtualFunction, ...]:
    return tuple(
        VirtualFunction(each.bus_id, each.minor, group.labels or {})
        for group in groups
        for each in group.vfs or ()
        if each.bus_id
    )


def _sighting(info: manifest.DeviceInfo, device: manifest.Device, table: PartitionTable | None) -> Sighting:
    labels, family, model, topology = info.labels or {}, info.type, None, info.topology
    if info.type == GPU:
        family = _family(labels.get(VENDOR) or device.labels.get(VENDOR, ""))
        model = labels.get(MODEL) or device.labels.get(MODEL, "")
    elif info.type not in _UNITS:
        raise ValueError("type must be gpu, rdma or fpga")
    seen = Sighting(
        family,
        info.minor,
        info.id or None,
        model=model,
        slots=SLOTS,
        minor=info.minor,
        kind=info.type,
        numa=topology.node_id if topology is not None and topology.node_id >= 0 else None,
        # An agent that lost a card lists it without resources.
        healthy=info.health and bool(info.resources),
        pcie=None if topology is None else topology.pcie_id,
        labels=labels,
        functions=_functions(info.vf_groups) if info.vf_groups else None,
        partitions=table if info.type == GPU else None,
    )
    return _measured(seen, info.resources) if info.resources else seen


def _family(vendor: str) -> str:
    family = _FAMILIES.get(vendor.lower(), vendor.lower())
    if family not in GPU_FAMILIES:
        raise ValueError(f"vendor {vendor!r} is unknown; known are {', '.join(sorted(GPU_FAMILIES))}")
    return family


def _measured(seen: Sighting, resources: Amounts) -> Sighting:
    """The card with the amounts of its resources.  Raises ValueError if they cannot be read."""
    amounts: dict[str, int] = {}
    for name, text in resources.items():
        amounts[canonical(name) or name] = amount = Quantity.parse(text).integer()
        if amount < 0:
            raise ValueError(f"{name} is {text}: it must not be negative")
    if seen.kind in _UNITS:
        return msgspec.structs.replace(seen, cores=amounts.get(_UNITS[seen.kind], FULL_CORES))
    if not amounts.get(MEMORY):
        raise ValueError(f"{MEMORY} is missing, so that nothing can be booked on it")
    cores = amounts.get(NPU_CORE) if seen.family == "huawei" else None
    return msgspec.structs.replace(
        seen,
        memory_bytes=amounts[MEMORY],
        cores=amounts.get(CORE, FULL_CORES) if cores is None else cores,
        extras=tuple((name, amounts[name]) for name in EXTRAS if name in amounts),
    )


def minor(device: Device) -> int:
    """The number by which Koordinator knows the card."""
    return device.index if device.minor is None else device.minor


def uuid(device: Device, node: str) -> str:
    """The card's own id; empty if no source gives it (then the id is one of ours)."""
    return "" if device.id == f"{node}-{device.family}-{device.index}" else device.id


def resources(device: Device) -> dict[str, int]:
    """What a card has, by Koordinator's names."""
    if device.kind in _UNITS:
        return {_UNITS[device.kind]: device.cores}
    cores = NPU_CORE if device.family == "huawei" else CORE
    return {cores: device.cores, MEMORY: device.memory_bytes, RATIO: 100, **dict(device.extras)}


def written(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as Koordinator writes them: sorted by name, memory in powers of 1024, the rest in powers of 1000."""
    return {
        name: str(Quantity.of(amount, Format.BINARY if name == MEMORY else Format.DECIMAL))
        for name, amount in sorted(amounts.items())
    }


def publish(node: Node) -> Published:
    """The Device object, its labels on the node, and sums over the healthy cards.

    koord-manager writes the sums to capacity and allocatable alike.  Where all cards are NVIDIA's, libsubak can enforce
    shares, and the node's label says so.
    """
    sums, labels = _sums(node), node_labels(node)
    if all(each.family == "nvidia" for each in node.devices):
        labels[ISOLATION] = "HAMi-core"
    return Published(sums, sums, labels=labels, device=device_object(node))


def _sums(node: Node) -> dict[str, str]:
    total: Counter[str] = Counter()
    for device in node.devices:
        if not device.healthy or not _described(device):
            continue
        total.update(resources(device))
        if device.kind == GPU:
            total[SHARED] += SLOTS
            if device.family == "nvidia":
                total[UNIT] += device.cores
    return written(+total)


def node_labels(node: Node) -> dict[str, str]:
    """Vendor, model and driver, as far as they hold for all cards of the node."""
    cards = [each for each in node.devices if each.kind == GPU and _described(each)]
    labels = {
        VENDOR: {each.family for each in cards},
        MODEL: {_label(each.model) for each in cards},
        DRIVER: {node.labels.get(DRIVER, "")} if cards else set(),
    }
    return {key: value for key, values in labels.items() if len(values) == 1 for value in values if value}


def device_object(node: Node) -> dict[str, Any]:
    """The Device object that describes the node's cards."""
    labels, annotations = koordinator_partition.written(node)
    metadata: dict[str, Any] = {"name": node.name, "labels": {**node_labels(node), **labels}}
    if annotations:
        metadata["annotations"] = annotations
    cards = sorted(filter(_described, node.devices), key=lambda each: (each.kind, minor(each), each.id))
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": metadata,
        "spec": {"devices": [_manifest(each, node.name) for each in cards]},
    }


def _manifest(device: Device, node: str) -> dict[str, Any]:
    labels = dict(device.labels)
    if device.kind == GPU:
        labels |= {VENDOR: device.family, **({MODEL: _label(device.model)} if device.model else {})}
    id, topology = uuid(device, node), {"socketID": -1, "nodeID": device.numa, "pcieID": device.pcie}
    return {
        "type": device.kind,
        "labels": labels,
        **({"id": id} if id else {}),
        "minor": minor(device),
        "health": device.healthy,
        # A card that gave no size is written as it was read: without resources, which means unusable.
        **({"resources": written(resources(device))} if device.kind in _UNITS or device.memory_bytes else {}),
        **({"topology": topology} if device.pcie else {}),
        **({"vfGroups": _groups(device.functions)} if device.functions else {}),
    }


def _groups(functions: Iterable[VirtualFunction]) -> list[dict[str, Any]]:
    """Functions by their labels."""
    return [
        {"labels": dict(labels), "vfs": [{"minor": each.minor, "busID": each.bus} for each in members]}
        for labels, members in groupby(functions, key=lambda each: each.labels)
    ]


def _described(device: Device) -> bool:
    """Whether Koordinator has words for the card."""
    return device.kind in _UNITS or device.family in GPU_FAMILIES


def _label(model: str) -> str:
    """The model as a label may hold it: the vendor's name is cut, and blanks become dashes."""
    text = model.removeprefix("NVIDIA-").removeprefix("NVIDIA ")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:63].strip("-_.")
