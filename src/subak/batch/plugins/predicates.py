"""Predicates: the rules of nodes and other pods.  They are Kubernetes' own, and hold whatever a configuration says.

So this plugin only knows the arguments that users write: `batch.switches` reads those of cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from subak.batch import Plugin
from subak.batch.volcano import ALWAYS


class Predicates(Plugin):
    """Stands for rules that `policy` has."""

    name = "predicates"
    arguments: ClassVar[Mapping[str, str]] = {
        "predicate.GPUSharingEnable": "volcano.sh/gpu-memory; on unless it says false",
        "predicate.GPUNumberEnable": "volcano.sh/gpu-number; on unless it says false",
        "predicate.VGPUEnable": "volcano.sh/vgpu-*; on unless it says false",
        "predicate.NodeLockEnable": "locks are taken where a vendor's agent needs them, whatever it says",
        "predicate.CacheEnable": "nodes are remembered anyway",
        "predicate.ProportionalEnable": "not honoured",
        "predicate.resources*": "not honoured",
        "volumebinding.*": "not honoured",
        **dict.fromkeys(ALWAYS, "always on"),
    }
