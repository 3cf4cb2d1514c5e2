"""A physical card, whichever source described it and whichever dialect asks for it.

Memory is kept in bytes, because Koordinator's is: a card of 83201216Ki halves exactly only in bytes.  The dialects that
think in MiB floor to MiB where they compute a share of a card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1 << 20

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"

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
class Device:
    """One card of a node.

    `id` is the UUID, or `<node>-<vendor>-<index>` where no source names one.  `slots` is how many containers may hold
    a part of it.  `minor` is the driver's number, where a source tells it.  `links` gives the strength of connections
    to other cards of the node by their id; `zone` and `pcie` name the group of cards it is wired to.  `extras` are
    amounts that only some dialects count (Ascend's).
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
    labels: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, int] = field(default_factory=dict)
    extras: tuple[tuple[str, int], ...] = ()
    mig: tuple[MigProfile, ...] = ()
