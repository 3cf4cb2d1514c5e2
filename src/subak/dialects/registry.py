"""All dialects.  A new one is one file beside this, and one line here.

Of two that describe the same cards equally well, the first is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from subak.dialects import Dialect
from subak.dialects.config import Config
from subak.dialects.iluvatar import IluvatarChip, IluvatarLegacy
from subak.dialects.koordinator import Koordinator
from subak.dialects.metax_gpu import MetaxGpu
from subak.dialects.metax_sgpu import MetaxSgpu
from subak.dialects.mthreads import Mthreads
from subak.dialects.nvidia import Nvidia
from subak.dialects.volcano_share import VolcanoShare
from subak.dialects.volcano_vgpu import VolcanoVgpu

MAKERS: list[Callable[[Config], Iterable[Dialect]]] = [
    lambda config: [Nvidia(config.nvidia)],
    lambda config: map(IluvatarChip, config.iluvatars),
    lambda config: [IluvatarLegacy(config.iluvatar)],
    lambda config: [Mthreads(config.mthreads)],
    lambda config: [MetaxSgpu(config.metax)],
    lambda config: [MetaxGpu(config.metax)],
    lambda config: [VolcanoVgpu(config.volcano)],
    lambda config: [VolcanoShare(config.volcano)],
    lambda config: [Koordinator(config.koordinator, config.metax.resource_v_count_name)],
]


def dialects(config: Config) -> tuple[Dialect, ...]:
    """All of them, under one configuration."""
    return tuple(dialect for make in MAKERS for dialect in make(config))
