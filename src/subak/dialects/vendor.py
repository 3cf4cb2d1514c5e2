"""What the cards of a vendor have in common, whichever dialect speaks of them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from subak.dialects import iluvatar, metax_gpu, metax_sgpu, mthreads, nvidia
from subak.model.device import FULL_CORES

SHARED, WHOLE = "sgpu", "whole"
"""How MetaX cards are given out."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """`modes` are the ways in which its cards are given out, the usual one first.  `whole_mib` is the memory of a card
    that is given out whole, if its plugin does not say it.  `brand` comes before each model.  With `pairs` its agent
    says what two cards are worth together.  With `cuda` programs use them through NVIDIA's driver.  `title` is its name
    as it writes it.
    """

    cores: int = FULL_CORES
    block_mib: int = 1
    modes: tuple[str, ...] = ("",)
    whole_mib: int = 0
    brand: str = ""
    pairs: bool = False
    cuda: bool = False
    title: str = ""


_ANY = Vendor()
_VENDORS = MappingProxyType(
    {
        nvidia.FAMILY: Vendor(modes=("hami-core",), brand=nvidia.WORD, pairs=True, cuda=True, title="NVIDIA"),
        iluvatar.FAMILY: Vendor(block_mib=iluvatar.BLOCK_MIB, title="Iluvatar"),
        mthreads.FAMILY: Vendor(cores=mthreads.CARD_CORES, block_mib=mthreads.BLOCK_MIB, title="Moore Threads"),
        metax_sgpu.FAMILY: Vendor(modes=(SHARED, WHOLE), whole_mib=metax_gpu.MEMORY_MIB, title="MetaX"),
    }
)


def vendor(family: str) -> Vendor:
    """The vendor of a family of cards; one that is not known has no peculiarities."""
    return _VENDORS.get(family, _ANY)
