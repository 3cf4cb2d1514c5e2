"""Random descriptions of nodes: every vendor, every set of its plugins, any wiring."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

MODELS = {
    "nvidia": ("A10", "Tesla P40", "NVIDIA H100 80GB HBM3", "GeForce GTX 1080 Ti"),
    "iluvatar": ("MR-V100", "MR-V50", "BI-V150", "BI-V100"),
    "mthreads": ("MTT S4000", "MTT S5000"),
    "metax": ("C500", "MXC550"),
}
SPOKEN = {
    "nvidia": ("hami", "volcano", "volcano-vgpu", "koordinator"),
    "iluvatar": ("hami", "hami-legacy"),
    "mthreads": ("hami",),
    "metax": ("hami", "koordinator"),
}
BLOCK = {"iluvatar": 256, "mthreads": 512}


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """One entry of a description."""
    vendor = draw(st.sampled_from(sorted(MODELS)))
    count = draw(st.integers(1, 9))
    speaks = draw(st.lists(st.sampled_from(SPOKEN[vendor]), min_size=1, unique=True))
    cards: dict[str, Any] = {"vendor": vendor, "model": draw(st.sampled_from(MODELS[vendor])), "count": count}
    whole = vendor == "metax" and draw(st.booleans())
    if whole:
        cards |= {"mode": "whole", "memory": "64Gi"}
    else:
        cards["memory"] = f"{draw(st.integers(1, 900)) * BLOCK.get(vendor, 1)}Mi"
    for key in ("numa", "switches", "links"):
        if draw(st.booleans()):
            cards[key] = draw(groups(count))
    broken = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count - 1))
    # MetaX's plugin for whole cards says only how many are broken: the last ones count as broken.
    cards["unhealthy"] = list(range(count - len(broken), count)) if whole else broken
    return {"name": "n", "cards": cards, "speaks": speaks}


@st.composite
def groups(draw: st.DrawFn, count: int) -> list[list[int]]:
    """Some of the cards, in groups."""
    order = draw(st.permutations(range(count)))
    ends = draw(st.lists(st.integers(1, count), max_size=3, unique=True))
    bounds = [0, *sorted(ends)]
    return [sorted(order[start:end]) for start, end in pairwise(bounds)]


ASKED = {
    "hami-nvidia": ("nvidia.com/gpu", {"nvidia.com/gpumem": 60, "nvidia.com/gpucores": 40}),
    "volcano-share": ("", {"volcano.sh/gpu-memory": 60}),
    "volcano-vgpu": ("volcano.sh/vgpu-number", {"volcano.sh/vgpu-memory": 60, "volcano.sh/vgpu-cores": 40}),
    "koordinator": ("", {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}),
    "hami-iluvatar": ("iluvatar.ai/vgpu", {"iluvatar.ai/vcuda-memory": 60, "iluvatar.ai/vcuda-core": 40}),
    "hami-mthreads": ("mthreads.com/vgpu", {}),
    "hami-metax-sgpu": ("metax-tech.com/sgpu", {"metax-tech.com/vcore": 40, "metax-tech.com/vmemory": 8}),
    "hami-metax-gpu": ("metax-tech.com/gpu", {}),
    **{
        f"hami-iluvatar-{model}": (
            f"iluvatar.ai/{model}-vgpu",
            {f"iluvatar.ai/{model}.vMem": 60, f"iluvatar.ai/{model}.vCore": 40},
        )
        for model in MODELS["iluvatar"]
    },
}
"""What a pod can ask for: the resource that counts cards, and the most of the others."""


@st.composite
def limits(draw: st.DrawFn, dialect: str) -> dict[str, str]:
    """What one container asks for in a dialect."""
    count, parts = ASKED[dialect]
    asked = {name: str(draw(st.integers(1, most))) for name, most in parts.items()}
    return asked | ({count: str(draw(st.integers(1, 3)))} if count else {})
