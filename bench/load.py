"""A mixed load, made from a seed: nodes of several vendors, and pods in every dialect that ask for different amounts.

Six nodes in ten have NVIDIA cards, offered through HAMi, Volcano and Koordinator alike; the others have cards of four
other kinds.  Pods come in the same proportions.  A `Shape` is what a pod asks for: memory and cores of cards, CPU and
memory of the node all vary.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.request import Request

CARDS = 8
MIB_PER_CARD = 81_920

VENDORS = ("nvidia",) * 6 + ("iluvatar", "mthreads", "sgpu", "metax")
"""The vendor of a node's cards, by the last digit of the node's number."""


def nodes(size: int, interpreter: Interpreter) -> list[Node]:
    """So many nodes of eight cards, as the scheduler sees them."""
    return [interpreter.node(node(number))[0] for number in range(size)]


def node(number: int) -> manifest.Node:
    """A node of eight cards."""
    capacity: dict[str, Any] = {"cpu": "256", "memory": "2Ti", "pods": "1000"}
    annotations: dict[str, str] = {}
    match VENDORS[number % 10]:
        case "nvidia":
            model = "NVIDIA-A100" if number % 10 < 4 else "NVIDIA-H100"
            register = [
                {
                    **{"id": _card(number, i), "index": i, "count": 10, "devmem": MIB_PER_CARD, "devcore": 100},
                    **{"type": model, "numa": i // 4, "health": True},
                }
                for i in range(CARDS)
            ]
            annotations["hami.io/node-nvidia-register"] = json.dumps(register)
            capacity |= {"nvidia.com/gpu": 80, "volcano.sh/gpu-memory": MIB_PER_CARD * CARDS}
            capacity |= {"volcano.sh/gpu-number": CARDS}
            capacity |= {"koordinator.sh/gpu-core": 800, "koordinator.sh/gpu-memory-ratio": 800}
        case "iluvatar":
            capacity |= {"iluvatar.ai/vcuda-core": 100 * CARDS, "iluvatar.ai/vcuda-memory": 128 * CARDS}
        case "mthreads":
            capacity |= {"mthreads.com/sgpu-core": 16 * CARDS, "mthreads.com/sgpu-memory": 96 * CARDS}
        case "sgpu":
            shared = [
                {
                    **{"uuid": f"MX-{number}-{i}", "model": "sgpu", "totalDevCount": 16, "totalCompute": 100},
                    **{"totalVRam": 65_536, "healthy": True, "linkZone": 1 + i // 4},
                }
                for i in range(CARDS)
            ]
            annotations["metax-tech.com/node-gpu-devices"] = json.dumps(shared)
            capacity["metax-tech.com/sgpu"] = 16 * CARDS
        case _:
            capacity["metax-tech.com/gpu"] = CARDS
    metadata = {"name": f"node-{number:05d}", "uid": f"node-{number}", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "status": {"capacity": capacity}}, manifest.Node)


def device(number: int, sick: int | None = None) -> manifest.Device:
    """Koordinator's Device object of an NVIDIA node; one of its cards may be unhealthy."""
    resources = {
        **{"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": f"{MIB_PER_CARD}Mi"},
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    cards = [
        {"type": "gpu", "id": _card(number, i), "minor": i, "health": i != sick, "resources": resources}
        for i in range(CARDS)
    ]
    content = {"metadata": {"name": f"node-{number:05d}"}, "spec": {"devices": cards}}
    return msgspec.convert(content, manifest.Device)


def _card(number: int, index: int) -> str:
    return f"GPU-{number}-{index}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod asks for, and of which vendor."""

    vendor: str
    limits: dict[str, Any]
    annotations: dict[str, str]


Amounts = tuple[dict[str, Any], dict[str, str]]


def _hami(chance: random.Random, part: float) -> Amounts:
    limits = {"nvidia.com/gpu": chance.choices((1, 2, 4), (16, 3, 1))[0], "nvidia.com/gpucores": _cores(chance, part)}
    policy = chance.choices(
        ({}, {"hami.io/node-scheduler-policy": "spread"}, {"nvidia.com/use-gputype": "H100"}), (8, 1, 1)
    )
    return {**limits, "nvidia.com/gpumem": int(part * MIB_PER_CARD)}, policy[0]


def _hami_percent(chance: random.Random, part: float) -> Amounts:
    return {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": int(part * 100)}, {}


def _volcano(chance: random.Random, part: float) -> Amounts:
    return {"volcano.sh/gpu-memory": int(part * MIB_PER_CARD)}, {}


def _koordinator(chance: random.Random, part: float) -> Amounts:
    amounts = {"koordinator.sh/gpu-core": _cores(chance, part), "koordinator.sh/gpu-memory-ratio": int(part * 100)}
    return {"koordinator.sh/gpu.shared": 1, **amounts}, {}


def _iluvatar(chance: random.Random, part: float) -> Amounts:
    amounts = {"iluvatar.ai/vcuda-core": _cores(chance, part), "iluvatar.ai/vcuda-memory": int(part * 128)}
    return {"iluvatar.ai/vgpu": 1, **amounts}, {}


def _mthreads(chance: random.Random, part: float) -> Amounts:
    memory = next(size for size in (16, 32, 64, 96) if part * 96 < size)  # other sizes are refused
    return {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-core": int(part * 16), "mthreads.com/sgpu-memory": memory}, {}


def _sgpu(chance: random.Random, part: float) -> Amounts:
    amounts = {"metax-tech.com/vcore": _cores(chance, part), "metax-tech.com/vmemory": int(part * 64)}
    return {"metax-tech.com/sgpu": 1, **amounts}, {}


def _metax(chance: random.Random, part: float) -> Amounts:
    return {"metax-tech.com/gpu": chance.choices((1, 2, 4), (14, 2, 1))[0]}, {}


def _cores(chance: random.Random, part: float) -> int:
    """Cores roughly in proportion to memory."""
    return min(max(int(part * chance.uniform(60, 110)), 1), 99)


MAKERS: tuple[tuple[int, str, Callable[[random.Random, float], Amounts]], ...] = (
    (28, "nvidia", _hami),
    (8, "nvidia", _hami_percent),
    (12, "nvidia", _volcano),
    (12, "nvidia", _koordinator),
    (10, "iluvatar", _iluvatar),
    (10, "mthreads", _mthreads),
    (10, "sgpu", _sgpu),
    (10, "metax", _metax),
)
"""How often, of which vendor, and in which dialect."""

LARGEST_CPU = 56
LARGEST_MEMORY_GIB = 420


def shapes(number: int, seed: int, smallest: float = 0.3) -> list[Shape]:
    """So many different shapes; the smallest takes this part of a card, the largest nearly all of it."""
    chance = random.Random(seed)
    weights = [weight for weight, _, _ in MAKERS]
    found: dict[str, Shape] = {}
    while len(found) < number:
        _, vendor, maker = chance.choices(MAKERS, weights)[0]
        limits, annotations = maker(chance, chance.uniform(smallest, 0.99))
        limits["cpu"] = str(chance.randint(1, LARGEST_CPU))
        limits["memory"] = f"{chance.randint(4, LARGEST_MEMORY_GIB)}Gi"
        found[f"{sorted(limits.items())}{annotations}"] = Shape(vendor, limits, annotations)
    return list(found.values())


def too_large(number: int) -> list[Shape]:
    """So many different shapes that fit on no card."""
    sizes = ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": MIB_PER_CARD + 1 + each} for each in range(number))
    return [Shape("nvidia", limits, {}) for limits in sizes]


def pod(name: str, shape: Shape) -> manifest.Pod:
    """A pod with one container."""
    container = {"name": "main", "resources": {"limits": shape.limits}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": shape.annotations}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container]}}, manifest.Pod)


def pods(among: list[Shape], seed: int) -> Iterator[manifest.Pod]:
    """An endless stream of pods, not yet admitted."""
    chance = random.Random(seed)
    for number in count():
        yield pod(f"pod-{number}", chance.choice(among))


def request(shape: Shape, interpreter: Interpreter) -> Request:
    """What pods of the shape ask for."""
    return interpreter.request(interpreter.admit(pod("pod", shape)))
