"""Who holds which part of which card.

A `Placement` is self-contained: it can be read back from a pod's annotations without the request that led to it, and
`charges` turns it into what the ledger books per card.

These values are made by the million and never refer to each other in a circle: as structs outside the garbage collector
they are quick to make and cost no collection.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from subak.model.device import MIG, Device
from subak.model.manifest import Role


class MigInstance(msgspec.Struct, frozen=True, gc=False):
    """A cut of a card in MIG mode: profile name and the slices it covers."""

    profile: str
    start: int
    size: int


def uncut(device: Device | None) -> MigInstance | None:
    """All places of a card in MIG mode, for an instance whose place is unknown: no other may be cut there."""
    if device is None or device.mode != MIG:
        return None
    ends = (start + size for profile in device.mig for start, size in profile.placements)
    return MigInstance("unknown", 0, max(ends, default=0))


class Function(msgspec.Struct, frozen=True, gc=False):
    """A virtual function of a network card: its PCI address and number."""

    bus: str
    minor: int = 0


class Share(msgspec.Struct, frozen=True, gc=False):
    """A part of one card.  `template` names the cut of an Ascend card, `functions` are a network card's."""

    id: str
    index: int
    memory_bytes: int
    cores: int
    extras: tuple[tuple[str, int], ...] = ()
    mig: MigInstance | None = None
    functions: tuple[Function, ...] = ()
    template: str = ""


class Grant(msgspec.Struct, frozen=True, gc=False):
    """The shares that the containers at these positions got by one claim.

    `tag` says to whom the shares may be neighbours (MetaX: QoS policy and application class).  `slotted` is the
    claim's: whether each share takes one of the card's slots.
    """

    dialect: str
    containers: tuple[int, ...]
    role: Role
    shares: tuple[Share, ...]
    tag: tuple[str, str] = ("", "")
    slotted: bool = True

    @property
    def given_back(self) -> bool:
        """Whether later containers may use the same parts: an init container's, but for MIG instances, which stay."""
        return self.role is Role.INIT and all(share.mig is None for share in self.shares)


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod's place: the node and what it holds there."""

    node: str
    grants: tuple[Grant, ...] = ()


class Charge(msgspec.Struct, gc=False):
    """What one pod takes from one card: `shares` of it, of which some dialects count each as one of its `slots`."""

    shares: int = 0
    slots: int = 0
    memory_bytes: int = 0
    cores: int = 0
    extras: dict[str, int] = {}
    tag: tuple[str, str] = ("", "")
    mig: tuple[MigInstance, ...] = ()
    functions: tuple[Function, ...] = ()

    def add(self, share: Share, slotted: bool, sign: int = 1) -> None:
        """Book one more share (or one less)."""
        self.shares += sign
        self.slots += sign * slotted
        self.memory_bytes += sign * share.memory_bytes
        self.cores += sign * share.cores
        for name, amount in share.extras:
            self.extras[name] = self.extras.get(name, 0) + sign * amount

    def join(self, other: Charge) -> None:
        """Both together, as of two pods."""
        self.shares += other.shares
        self.slots += other.slots
        self.memory_bytes += other.memory_bytes
        self.cores += other.cores
        for name, amount in other.extras.items():
            self.extras[name] = self.extras.get(name, 0) + amount

    def raise_to(self, other: Charge) -> None:
        """The larger of both, amount by amount."""
        self.shares = max(self.shares, other.shares)
        self.slots = max(self.slots, other.slots)
        self.memory_bytes = max(self.memory_bytes, other.memory_bytes)
        self.cores = max(self.cores, other.cores)
        for name, amount in other.extras.items():
            self.extras[name] = max(self.extras.get(name, 0), amount)


def charges(grants: Iterable[Grant]) -> dict[str, Charge]:
    """What a pod takes from each card at its peak.

    Init containers run one after the other, before the others; sidecars keep running beside all that start after
    them.  So a card carries, at any time, either the sidecars started so far and one init container, or all sidecars
    and all app containers.  HAMi and Volcano count a sidecar like an init container, which overcommits the card while
    both run; Kubernetes counts as we do.
    """
    held = list(grants)
    if len(held) == 1:
        return _charges_of_one(held[0])
    peak: dict[str, Charge] = {}
    running: dict[str, Charge] = {}
    for grant in sorted(held, key=lambda each: (each.role is Role.APP, each.containers)):
        for share in grant.shares:
            now = running.setdefault(share.id, Charge())
            now.add(share, grant.slotted)
            most = peak.setdefault(share.id, Charge(tag=grant.tag))
            most.raise_to(now)
            if share.mig is not None:
                most.mig += (share.mig,)
            if share.functions:
                most.functions += share.functions
        if grant.given_back:
            for share in grant.shares:
                running[share.id].add(share, grant.slotted, -1)
    return peak


def _charges_of_one(grant: Grant) -> dict[str, Charge]:
    """The same for the common pod, whose only container with cards needs no comparing."""
    taken: dict[str, Charge] = {}
    for share in grant.shares:
        charge = taken.setdefault(share.id, Charge(tag=grant.tag))
        charge.add(share, grant.slotted)
        if share.mig is not None:
            charge.mig += (share.mig,)
        if share.functions:
            charge.functions += share.functions
    return taken
