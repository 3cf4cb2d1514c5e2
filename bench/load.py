"""A mixed load: a cluster of several vendors' nodes and a stream of pods in every dialect, made from a seed.

The shares of shapes follow what users run: mostly parts of NVIDIA cards, some whole cards, some of other vendors.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.request import Request

CARDS = 8
MIB_PER_CARD = 81_920


def nodes(size: int, interpreter: Interpreter) -> list[Node]:
    """So many nodes of eight cards: six in ten NVIDIA, offered through HAMi, Volcano and Koordinator alike."""
    return [interpreter.node(_node(number))[0] for number in range(size)]


def _node(number: int) -> manifest.Node:
    name = f"node-{number:05d}"
    capacity: dict[str, Any] = {"cpu": "256", "memory": "2Ti", "pods": "1000"}
    annotations: dict[str, str] = {}
    kind = number % 10
    if kind < 6:
        model = "NVIDIA-A100" if kind < 4 else "NVIDIA-H100"
        register = [
            {
                **{"id": f"GPU-{number}-{i}", "index": i, "count": 10, "devmem": MIB_PER_CARD, "devcore": 100},
                **{"type": model, "numa": i // 4, "health": True},
            }
            for i in range(CARDS)
        ]
        annotations["hami.io/node-nvidia-register"] = json.dumps(register)
        capacity |= {
            "nvidia.com/gpu": 80,
            "volcano.sh/gpu-memory": MIB_PER_CARD * CARDS,
            "volcano.sh/gpu-number": CARDS,
        }
        capacity |= {"koordinator.sh/gpu-core": 800, "koordinator.sh/gpu-memory-ratio": 800}
    elif kind == 6:
        capacity |= {"iluvatar.ai/vcuda-core": 100 * CARDS, "iluvatar.ai/vcuda-memory": 128 * CARDS}
    elif kind == 7:
        capacity |= {"mthreads.com/sgpu-core": 16 * CARDS, "mthreads.com/sgpu-memory": 96 * CARDS}
    elif kind == 8:
        shared = [
            {
                **{"uuid": f"MX-{number}-{i}", "model": "sgpu", "totalDevCount": 16, "totalCompute": 100},
                **{"totalVRam": 65_536, "healthy": True, "linkZone": 1 + i // 4},
            }
            for i in range(CARDS)
        ]
        annotations["metax-tech.com/node-gpu-devices"] = json.dumps(shared)
        capacity["metax-tech.com/sgpu"] = 16 * CARDS
    else:
        capacity["metax-tech.com/gpu"] = CARDS
    metadata = {"name": name, "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "status": {"capacity": capacity}}, manifest.Node)


SHAPES: list[tuple[int, dict[str, Any], dict[str, str]]] = [
    (12, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8192, "nvidia.com/gpucores": 10}, {}),
    (10, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 16384, "nvidia.com/gpucores": 25}, {}),
    (6, {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 50}, {}),
    (5, {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 20480, "nvidia.com/gpucores": 30}, {}),
    (4, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4096}, {"nvidia.com/use-gputype": "H100"}),
    (4, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4096}, {"hami.io/gpu-scheduler-policy": "binpack"}),
    (3, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000}, {"hami.io/node-scheduler-policy": "spread"}),
    (2, {"nvidia.com/gpu": 1}, {}),
    (1, {"nvidia.com/gpu": 8}, {}),
    (12, {"volcano.sh/gpu-memory": 2048}, {}),
    (8, {"volcano.sh/gpu-memory": 10240}, {}),
    (2, {"volcano.sh/gpu-number": 2}, {}),
    (8, {"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-core": 25, "koordinator.sh/gpu-memory-ratio": 25}, {}),
    (6, {"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": "30Gi"}, {}),
    (5, {"iluvatar.ai/vgpu": 1, "iluvatar.ai/vcuda-core": 50, "iluvatar.ai/vcuda-memory": 64}, {}),
    (5, {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32, "mthreads.com/sgpu-core": 8}, {}),
    (4, {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 30, "metax-tech.com/vmemory": 16}, {}),
    (1, {"metax-tech.com/sgpu": 1}, {}),
    (2, {"metax-tech.com/gpu": 2}, {"hami.io/node-scheduler-policy": "spread"}),
]
"""Weight, limits and annotations of each shape."""


def pod(number: int, limits: dict[str, Any], annotations: dict[str, str]) -> manifest.Pod:
    """A pod with one container."""
    container = {"name": "main", "resources": {"limits": {"cpu": "100m", "memory": "256Mi", **limits}}}
    content = {"metadata": {"name": f"pod-{number}", "annotations": annotations}, "spec": {"containers": [container]}}
    return msgspec.convert(content, manifest.Pod)


def pods(seed: int) -> Iterator[manifest.Pod]:
    """An endless stream of pods."""
    chance = random.Random(seed)
    weights = [weight for weight, _, _ in SHAPES]
    for number in count():
        _, limits, wishes = chance.choices(SHAPES, weights)[0]
        yield pod(number, limits, wishes)


def requests(seed: int, size: int, interpreter: Interpreter) -> list[Request]:
    """What the first pods of the stream ask for."""
    return [interpreter.request(interpreter.admit(pod)) for pod in islice(pods(seed), size)]
