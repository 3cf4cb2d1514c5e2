"""Short ways to write Koordinator's pods, Device objects and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from subak.dialects.config import Koordinator as Settings
from subak.dialects.koordinator import Koordinator
from subak.dialects.koordinator_device import device_object
from subak.dialects.stock import one_stock
from subak.model import manifest
from subak.model.device import Device
from subak.model.node import Node

GI, MI, KI = 1 << 30, 1 << 20, 1 << 10
N8_MEMORY = 83201216 * KI

SHORT = {
    "gpu": "koordinator.sh/gpu",
    "core": "koordinator.sh/gpu-core",
    "mem": "koordinator.sh/gpu-memory",
    "ratio": "koordinator.sh/gpu-memory-ratio",
    "shared": "koordinator.sh/gpu.shared",
    "dashed": "koordinator.sh/gpu-shared",
    "rdma": "koordinator.sh/rdma",
    "fpga": "koordinator.sh/fpga",
    "nv": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "dcu": "dcu.com/gpu",
    "ncore": "huawei.com/npu-core",
    "ncpu": "huawei.com/npu-cpu",
    "ndvpp": "huawei.com/npu-dvpp",
}

DIALECT = Koordinator(Settings())


def full(short: str) -> dict[str, str]:
    """`core=50 mem=8Gi` with the full names; a name with a slash stands for itself."""
    pairs = (pair.partition("=") for pair in short.split())
    return {SHORT.get(name, name): amount for name, _, amount in pairs}


def pod(
    *containers: str,
    init: Sequence[str] = (),
    sidecars: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = "koord-scheduler",
    overhead: str = "",
) -> manifest.Pod:
    """A pod of koord-scheduler; each text is a container's requests, and its limits."""
    early = [{**_container(f"s{i}", each), "restartPolicy": "Always"} for i, each in enumerate(sidecars)]
    early += [_container(f"i{i}", each) for i, each in enumerate(init)]
    content = {
        "metadata": {"name": "p", "uid": "pod-uid", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {
            "schedulerName": scheduler,
            "initContainers": early,
            "containers": [_container(f"c{i}", each) for i, each in enumerate(containers)],
            "overhead": full(overhead),
        },
    }
    return msgspec.convert(content, manifest.Pod)


def _container(name: str, short: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": full(short), "requests": full(short)}}


def annotated(pod: manifest.Pod, annotations: Mapping[str, str]) -> manifest.Pod:
    """The pod as it is after binding."""
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **annotations})
    return msgspec.structs.replace(pod, metadata=metadata)


def gpu(minor: int, memory: int | str = 16 * GI, *, cores: int = 100, **fields: Any) -> dict[str, Any]:
    """An entry of a Device object."""
    resources = {**full(f"core={cores} ratio=100"), SHORT["mem"]: memory}
    return {"type": "gpu", "id": f"GPU-{minor}", "minor": minor, "health": True, "resources": resources, **fields}


def device(*cards: Mapping[str, Any], name: str = "n1", labels: Mapping[str, str] | None = None) -> manifest.Device:
    """A Device object."""
    content = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"devices": list(cards)}}
    return msgspec.convert(content, manifest.Device)


def seen(
    allocatable: Mapping[str, str | int] | None = None, labels: Mapping[str, str] | None = None, name: str = "n1"
) -> manifest.Node:
    """A node as the API server shows it."""
    content = {"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": dict(allocatable or {})}}
    return msgspec.convert(content, manifest.Node)


def stocked(device: manifest.Device) -> Node:
    """The node that a Device object describes, and nothing else does."""
    sight = DIALECT.sight(seen(name=device.name), device)
    assert not sight.warnings
    devices, warnings = one_stock(device.name, [sight])
    assert not warnings
    return Node(device.name, devices, frozenset({DIALECT.name}))


def reread(node: Node) -> manifest.Device:
    """The Device object that we write for a node, as the API server returns it."""
    return msgspec.convert(device_object(node), manifest.Device)


def n8() -> tuple[Device, ...]:
    """Eight cards on two NUMA nodes and four PCIe roots."""
    return tuple(
        Device(f"GPU-{i}", i, "nvidia", memory_bytes=N8_MEMORY, numa=i // 4, pcie=str(i // 2), minor=i)
        for i in range(8)
    )
