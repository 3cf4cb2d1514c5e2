"""A small world for property tests: nodes of every kind, pods in every dialect, made from a few drawn numbers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node

INTERPRETER = Interpreter()

KIB_OF_ODD_CARD = 83201216
"""A card whose half is no whole number of MiB."""


NOW = 1_700_000_000.0


def node(name: str, capacity: dict[str, Any], annotations: dict[str, str], device: Any = None, dead: str = "") -> Node:
    """A node from its manifests; nothing in them may be unreadable, and no agent may be dead but that of `dead`."""
    content = {
        "metadata": {"name": name, "annotations": annotations},
        "status": {"capacity": {"cpu": "64", "memory": "512Gi", "pods": "40", **capacity}},
    }
    described = None if device is None else msgspec.convert(device, manifest.Device)
    digest, warnings = INTERPRETER.node(msgspec.convert(content, manifest.Node), described, NOW)
    assert list(digest.dead) == ([dead] if dead else [])
    assert len(warnings) == len(digest.dead)
    return digest


def register(name: str, sizes: list[int], mode: str = "hami-core", **more: Any) -> str:
    """HAMi's register of a node."""
    cards = [
        {
            **{"id": f"GPU-{name}-{i}", "index": i, "count": 4, "devmem": mib, "devcore": 100, "health": True},
            **{"type": "NVIDIA-A100" if mib > 10_000 else "NVIDIA-T4", "numa": i // 2, "mode": mode, **more},
        }
        for i, mib in enumerate(sizes)
    ]
    return json.dumps(cards)


def device_object(name: str, kib: list[int], word: str = "GPU") -> dict[str, Any]:
    """Koordinator's Device of a node, the same cards as in `register`, or under MetaX's word as in `zones`."""
    devices = [
        {
            **{"type": "gpu", "id": f"{word}-{name}-{i}", "minor": i, "health": True},
            "resources": {
                "koordinator.sh/gpu-core": 100,
                "koordinator.sh/gpu-memory": f"{size}Ki",
                "koordinator.sh/gpu-memory-ratio": 100,
            },
            "topology": {"socketID": -1, "nodeID": i // 2, "pcieID": f"pci{i // 2}", "busID": f"0000:{i}:00.0"},
        }
        for i, size in enumerate(kib)
    ]
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


def ascend(name: str, model: str) -> dict[str, Any]:
    """Koordinator's Device of a node with two Ascend cards."""
    has = {
        "huawei.com/npu-core": 8,
        "huawei.com/npu-cpu": 7,
        "huawei.com/npu-dvpp": 100,
        "koordinator.sh/gpu-core": 100,
    }
    resources = {**has, "koordinator.sh/gpu-memory": "24Gi", "koordinator.sh/gpu-memory-ratio": 100}
    devices = [
        {"type": "gpu", "id": f"NPU-{name}-{i}", "minor": i, "health": True, "resources": resources} for i in range(2)
    ]
    labels = {"node.koordinator.sh/gpu-vendor": "huawei", "node.koordinator.sh/gpu-model": model}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"devices": devices}}


def zones(name: str, size: int = 2) -> str:
    """MetaX's register of a node with link zones of this size."""
    cards = [
        {
            **{"uuid": f"MX-{name}-{i}", "model": "sgpu", "totalDevCount": 4, "totalCompute": 100},
            **{"totalVRam": 16384, "healthy": True, "linkZone": 1 + i // size},
        }
        for i in range(4)
    ]
    return json.dumps(cards)


PROFILES = [
    {"name": "1g.10gb", "memoryMB": 9856, "core": 14, "placements": [{"start": s, "size": 1} for s in range(7)]},
    {"name": "2g.20gb", "memoryMB": 20096, "core": 28, "placements": [{"start": s, "size": 2} for s in (0, 2, 4)]},
    {"name": "3g.40gb", "memoryMB": 40192, "core": 42, "placements": [{"start": s, "size": 4} for s in (0, 4)]},
]


def make(kind: int, name: str) -> Node:
    """A node of one of `KINDS` kinds."""
    register_key, sgpu_key = "hami.io/node-nvidia-register", "metax-tech.com/node-gpu-devices"
    hami = {"nvidia.com/gpu": 16}
    match kind:
        case 0:  # all three ways to the same cards
            mib = [16_000] * 4
            volcano = {"volcano.sh/gpu-memory": sum(mib), "volcano.sh/gpu-number": 4}
            kib = [size * 1024 for size in mib]
            return node(name, {**hami, **volcano}, {register_key: register(name, mib)}, device_object(name, kib))
        case 1:  # cards of two sizes
            volcano = {"volcano.sh/gpu-memory": 64_000, "volcano.sh/gpu-number": 4}
            return node(name, {**hami, **volcano}, {register_key: register(name, [8_000, 8_000, 24_000, 24_000])})
        case 2:
            return node(name, {"volcano.sh/gpu-memory": 44_712, "volcano.sh/gpu-number": 4}, {})
        case 3:
            return node(name, {}, {}, device_object(name, [KIB_OF_ODD_CARD] * 4))
        case 4:
            return node(name, {"iluvatar.ai/vcuda-core": 200, "iluvatar.ai/vcuda-memory": 256}, {})
        case 5:
            text = "".join(f"IX-{name}-{i},4,32768,100,MR-V100,0,true,{i},hami-core:" for i in range(3))
            return node(name, {"iluvatar.ai/MR-V100-vgpu": 12}, {"hami.io/node-MR-V100-register": text})
        case 6:
            return node(name, {"mthreads.com/sgpu-core": 32, "mthreads.com/sgpu-memory": 192}, {})
        case 7:
            return node(name, {"metax-tech.com/sgpu": 16}, {sgpu_key: zones(name)})
        case 8:  # shared and whole cards of one stock
            return node(name, {"metax-tech.com/sgpu": 16, "metax-tech.com/gpu": 4}, {sgpu_key: zones(name)})
        case 9:
            cards = register(name, [81_920, 81_920], mode="mig", migProfiles=PROFILES)
            return node(name, hami, {register_key: cards})
        case 15:  # shared MetaX cards that Koordinator knows too
            labels = {"node.koordinator.sh/gpu-vendor": "metax"}
            described = device_object(name, [16_384 * 1024] * 4, "MX")
            described["metadata"]["labels"] = labels
            return node(name, {"metax-tech.com/sgpu": 16}, {sgpu_key: zones(name)}, described)
        case 10:  # a single card, whose instances may all go to one container; others cannot record any
            cards = register(name, [81_920], mode="mig", migProfiles=PROFILES, count=10)
            slices = f"GPU-{name}-0,10,81920,NVIDIA-A100,true,mig:"
            keys = {register_key: cards, "volcano.sh/node-vgpu-register": slices}
            return node(name, hami, keys, device_object(name, [81_920 * 1024]))
        case 11:  # as 8, wired better: whole cards are lost alike, but linked more
            return node(name, {"metax-tech.com/sgpu": 16, "metax-tech.com/gpu": 4}, {sgpu_key: zones(name, size=4)})
        case 12:  # HAMi's agent is dead, Volcano's is not
            silent = {"nvidia.com/gpu": 0, "volcano.sh/gpu-memory": 64_000, "volcano.sh/gpu-number": 4}
            keys = {
                register_key: register(name, [16_000] * 4),
                "hami.io/node-handshake": "Requesting_2023-11-14 22:00:00",
            }
            return node(name, silent, keys, dead="hami-nvidia")
        case 13:  # and the other way round
            slices = "".join(f"GPU-{name}-{i},4,16000,NVIDIA-A100,true,hami-core:" for i in range(4))
            keys = {register_key: register(name, [16_000] * 4), "volcano.sh/node-vgpu-register": slices}
            return node(name, {**hami, "volcano.sh/vgpu-number": 0}, keys, dead="volcano-vgpu")
        case 14:  # one model is cut by templates, the other is not cut at all
            return node(name, {}, {}, ascend(name, "Ascend-310P" if name[-1] in "02468" else "Ascend-310P3-300I-DUO"))
        case _:  # HAMi's cards with known links, and a Volcano vGPU register of the same
            pairs = [
                {"uuid": f"GPU-{name}-{a}", "score": {f"GPU-{name}-{b}": 10 + 7 * a * b for b in range(4) if a != b}}
                for a in range(4)
            ]
            slices = "".join(f"GPU-{name}-{i},4,16000,NVIDIA-A100,true,hami-core:" for i in range(4))
            keys = {"hami.io/node-nvidia-score": json.dumps(pairs), "volcano.sh/node-vgpu-register": slices}
            return node(name, hami, {register_key: register(name, [16_000] * 4), **keys})


KINDS = 17

amounts = st.sampled_from([1, 100, 1000, 4000, 8000, 16000])
percents = st.sampled_from([0, 10, 25, 50, 100])
counts = st.sampled_from([1, 1, 1, 2, 3])


def _cores(percent: int) -> dict[str, Any]:
    return {"koordinator.sh/gpu-core": percent} if percent else {}


def _limits(draw: st.DrawFn, dialect: str) -> dict[str, Any]:
    """What one container asks for in a dialect."""
    count, memory, percent = draw(counts), draw(amounts), draw(percents)
    match dialect:
        case "hami":
            part: dict[str, Any] = draw(
                st.sampled_from(
                    [
                        {},
                        {"nvidia.com/gpumem": memory},
                        {"nvidia.com/gpumem": memory, "nvidia.com/gpucores": percent},
                        {"nvidia.com/gpumem-percentage": percent, "nvidia.com/gpucores": percent},
                    ]
                )
            )
            return {"nvidia.com/gpu": count, **part}
        case "volcano-memory":
            return {"volcano.sh/gpu-memory": memory}
        case "volcano-number":
            return {"volcano.sh/gpu-number": count}
        case "volcano-vgpu":
            slices = {
                "volcano.sh/vgpu-number": count,
                "volcano.sh/vgpu-memory": memory,
                "volcano.sh/vgpu-cores": percent,
            }
            both = {**slices, "volcano.sh/vgpu-memory-percentage": percent}
            return draw(st.sampled_from([slices, both]))
        case "koordinator":
            share = max(percent, 1)
            return draw(
                st.sampled_from(
                    [
                        {"koordinator.sh/gpu": 100 * count},
                        {"koordinator.sh/gpu-memory-ratio": share},
                        {"koordinator.sh/gpu-core": share, "koordinator.sh/gpu-memory": f"{memory}Mi"},
                        {"koordinator.sh/gpu-core": share, "koordinator.sh/gpu-memory-ratio": 50},
                        {"koordinator.sh/gpu-memory": f"{memory}Mi"},
                        {
                            "koordinator.sh/gpu.shared": 1,
                            "koordinator.sh/gpu-core": share,
                            "koordinator.sh/gpu-memory-ratio": share,
                        },
                    ]
                )
            )
        case "koordinator-metax":
            return {"metax-tech.com/sgpu": 1, "koordinator.sh/gpu-memory": f"{memory}Mi", **_cores(draw(percents))}
        case "ascend":
            # There is a template of one core and one of two, none of three.
            part = {"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory": f"{3 * count}Gi"}
            part |= {"huawei.com/npu-core": count, "huawei.com/npu-cpu": count, "huawei.com/npu-dvpp": 25 * count // 2}
            whole = {"huawei.com/npu-core": 8, "koordinator.sh/gpu-memory-ratio": 100}
            return draw(st.sampled_from([part, whole]))
        case "iluvatar":
            asked = {"iluvatar.ai/vcuda-core": percent, "iluvatar.ai/vcuda-memory": max(memory // 256, 1)}
            return {"iluvatar.ai/vgpu": count, **(asked if count == 1 else {})}
        case "iluvatar-chip":
            size = {"iluvatar.ai/MR-V100.vMem": max(memory // 256, 1)}
            return {"iluvatar.ai/MR-V100-vgpu": count, **(size if count == 1 else {})}
        case "mthreads":
            parts = [
                {},
                {"mthreads.com/sgpu-memory": 32, "mthreads.com/sgpu-core": 4},
                {"mthreads.com/sgpu-memory": 64},
            ]
            return {"mthreads.com/vgpu": 1, **draw(st.sampled_from(parts))}
        case "sgpu":
            sizes = [{}, {"metax-tech.com/vcore": percent, "metax-tech.com/vmemory": 4}, {"metax-tech.com/vmemory": 8}]
            return {"metax-tech.com/sgpu": 1, **draw(st.sampled_from(sizes))}
        case _:
            return {"metax-tech.com/gpu": count}


DIALECTS = (
    *("hami", "hami", "hami", "volcano-memory", "volcano-number", "volcano-vgpu", "koordinator", "koordinator"),
    *("ascend", "koordinator-metax"),
    *("iluvatar", "iluvatar-chip", "mthreads", "sgpu", "sgpu", "metax-gpu"),
)


ON_NVIDIA = ("hami", "hami", "volcano-memory", "volcano-number", "koordinator", "koordinator")
"""The dialects that share the cards of a node of kind 0."""


@st.composite
def pods(draw: st.DrawFn, dialects: tuple[str, ...] = DIALECTS) -> manifest.Pod:
    """A pod of one to three containers in one dialect, perhaps with policies and selections."""
    dialect = draw(st.sampled_from(dialects))
    annotations: dict[str, str] = {}
    if draw(st.booleans()):
        annotations["hami.io/node-scheduler-policy"] = draw(st.sampled_from(["binpack", "spread"]))
    if draw(st.booleans()):
        policy = st.sampled_from(["binpack", "spread", "mutex", "numa", "topology-aware"])
        annotations["hami.io/gpu-scheduler-policy"] = draw(policy)
    if dialect == "hami":
        wishes = [
            {},
            {},
            {"nvidia.com/use-gputype": "t4"},
            {"nvidia.com/numa-bind": "true"},
            {"nvidia.com/vgpu-mode": "mig"},
        ]
        wishes += [
            {"nvidia.com/nouse-gpuuuid": "GPU-node-0-0,GPU-node-1-1"},
            {"nvidia.com/use-gpuuuid": "GPU-node-0-2"},
        ]
        annotations |= draw(st.sampled_from(wishes))
    if dialect == "volcano-vgpu" and draw(st.booleans()):
        group = draw(st.sampled_from(["a", "b"]))
        annotations |= {"scheduling.k8s.io/group-name": group, "volcano.sh/vgpu-podgroup-policy": "spread"}
    if dialect == "sgpu":
        annotations |= draw(
            st.sampled_from(
                [
                    {},
                    {"metax-tech.com/sgpu-qos-policy": "fixed-share"},
                    {"metax-tech.com/sgpu-app-class": "online"},
                    {"metax-tech.com/sgpu-app-class": "offline"},
                    {"metax-tech.com/sgpu-topology-aware": "true"},
                ]
            )
        )
    several = draw(st.sampled_from([1, 1, 1, 2, 3]))
    containers = [
        {"name": f"c{i}", "resources": {"limits": {"cpu": "1", **_limits(draw, dialect)}}} for i in range(several)
    ]
    spec: dict[str, Any] = {"containers": containers}
    if several > 1 and draw(st.booleans()):
        first = containers.pop(0)
        spec["initContainers"] = [{**first, **draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))}]
    if several > 1 and draw(st.booleans()):
        containers.append({"name": "plain", "resources": {"limits": {"cpu": "1"}}})
    content = {"metadata": {"name": "pod", "uid": "u", "annotations": annotations}, "spec": spec}
    return msgspec.convert(content, manifest.Pod)
