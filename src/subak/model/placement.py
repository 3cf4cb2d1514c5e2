"""Who holds which part of which card.

A `Placement` is self-contained: it can be read back from a pod's annotations without the request that led to it, and
`charges` turns it into what the ledger books per card.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from subak.model.manifest import Role


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A cut of a card in MIG mode: profile name and the slices it covers."""

    profile: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one card."""

    id: str
    index: int
    memory_bytes: int
    cores: int
    extras: tuple[tuple[str, int], ...] = ()
    mig: MigInstance | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The shares that the containers at these positions got by one claim.

    `tag` says to whom the shares may be neighbours (MetaX: QoS policy and application class).
    """

    dialect: str
    containers: tuple[int, ...]
    role: Role
    shares: tuple[Share, ...]
    tag: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod's place: the node and what it holds there."""

    node: str
    grants: tuple[Grant, ...] = ()


@dataclass(slots=True)
class Charge:
    """What one pod takes from one card."""

    slots: int = 0
    memory_bytes: int = 0
    cores: int = 0
    extras: dict[str, int] = field(default_factory=dict)
    tag: tuple[str, str] = ("", "")
    mig: list[MigInstance] = field(default_factory=list)

    def add(self, share: Share, sign: int = 1) -> None:
        """Book one more share."""
        self.slots += sign
        self.memory_bytes += sign * share.memory_bytes
        self.cores += sign * share.cores
        for name, amount in share.extras:
            self.extras[name] = self.extras.get(name, 0) + sign * amount

    def raise_to(self, other: Charge) -> None:
        """The larger of both, amount by amount."""
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
    peak: dict[str, Charge] = {}
    running: dict[str, Charge] = {}
    for grant in sorted(grants, key=lambda each: (each.role is Role.APP, each.containers)):
        for share in grant.shares:
            now = running.setdefault(share.id, Charge())
            now.add(share)
            most = peak.setdefault(share.id, Charge(tag=grant.tag))
            most.raise_to(now)
            if share.mig is not None:
                most.mig.append(share.mig)
        if grant.role is Role.INIT:
            for share in grant.shares:
                running[share.id].add(share, -1)
    return peak
