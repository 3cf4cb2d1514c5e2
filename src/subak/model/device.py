"""A physical card, whichever source described it and whichever dialect asks for it.

Memory is kept in bytes, because Koordinator's is: a card of 83201216Ki halves exactly only in bytes.  The dialects that
think in MiB floor to MiB where they compute a share of a card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

MIB = 1 << 20

MOST_CARD_BYTES = 1 << 44
MOST_AMOUNT = 1 << 60
"""Beyond any card, beyond anything at all: such a number is a mistake, and 64-bit columns could not add it up."""

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"

MIG = "mig"
"""The mode of a card that is given in instances."""

FULL_CORES = 100
"""Cores are percent of a card; only Moore Threads counts 16ths."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A shape into which a card in MIG mode can be cut: its size and where on the card it may start."""

    name: str
    memory_bytes: int
    cores: int
    placements: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """A part of a network card that one pod may have for itself, by its PCI address; labels are those of its group."""

    bus: str
    minor: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Partition:
    """Cards (by their minor numbers) that are wired so that they may be given together; a higher score is better."""

    minors: tuple[int, ...]
    score: int = 1
    bandwidth: int = 0
    link: str = ""


@dataclass(frozen=True, slots=True)
class PartitionTable:
    """All partitions of a node's cards.  With `honor` whole cards are given by the table only."""

    partitions: tuple[Partition, ...] = ()
    honor: bool = False


class Device(msgspec.Struct, frozen=True, gc=False):
    """One card of a node.

    `id` is the UUID, or `<node>-<vendor>-<index>` where no source names one.  `slots` is how many containers may hold
    a part of it.  `minor` is the driver's number, where a source tells it.  `links` gives the strength of connections
    to other cards of the node by their id; `zone` and `pcie` name the group of cards it is wired to.  `extras` are
    amounts that only some dialects count (Ascend's).  `functions` are a network card's.  `partitions` is the table of
    the node that the card belongs to, the same for all its cards.
    """

    id: str
    index: int
    family: str
    model: str = ""
    memory_bytes: int = 0
    cores: int = FULL_CORES
    slots: int = 100
    minor: int | None = None
    kind: str = GPU
    numa: int = 0
    healthy: bool = True
    cordoned: bool = False
    mode: str = ""
    qos: str = ""
    zone: int = 0
    pcie: str = ""
    labels: Mapping[str, str] = {}
    links: Mapping[str, int] = {}
    extras: tuple[tuple[str, int], ...] = ()
    mig: tuple[MigProfile, ...] = ()
    functions: tuple[VirtualFunction, ...] = ()
    partitions: PartitionTable | None = None

    @property
    def usable(self) -> bool:
        """Whether it can be given to anybody new."""
        return self.healthy and not self.cordoned
