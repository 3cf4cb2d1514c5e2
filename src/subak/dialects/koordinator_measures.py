"""What amounts under Koordinator's names are worth, where those of many pods are added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from subak.dialects import Measure, Part
from subak.dialects.koordinator_names import (
    CORE,
    FPGA_UNIT,
    MEMORY,
    NPU_CORE,
    RATIO,
    RDMA_UNIT,
    RESOURCES,
    UNIT,
    VENDORS,
    canonical,
)
from subak.model.device import FPGA, RDMA

_CURRENT: Mapping[str, Sequence[Measure]] = {
    UNIT: [Measure(Part.CORES), Measure(Part.MEMORY, percent=True)],
    CORE: [Measure(Part.CORES)],
    MEMORY: [Measure(Part.MEMORY)],
    RATIO: [Measure(Part.MEMORY, percent=True)],
    RDMA_UNIT: [Measure(Part.CORES, family=RDMA)],
    FPGA_UNIT: [Measure(Part.CORES, family=FPGA)],
    NPU_CORE: [Measure(Part.CORES, family="huawei")],
    **{name: [Measure(Part.CARDS, family=family)] for name, family in VENDORS.items()},
}

MEASURES: Mapping[str, Sequence[Measure]] = {
    name: _CURRENT[current] for name in sorted(RESOURCES) if (current := canonical(name) or "") in _CURRENT
}
"""In every spelling."""
