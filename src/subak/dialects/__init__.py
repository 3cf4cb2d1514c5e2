"""Request languages: what users write becomes a `Request`; a `Placement` becomes what they and vendors' agents read.

A dialect is one file with one class that follows the `Dialect` protocol below; that is all it takes to teach Subak a
new vendor or a new way of asking.  `Interpreter` speaks all of them at once.  Dialects are pure: no clock, no I/O.

    user's pod ── admit ──> filled-in pod ── ask ──> Ask (claims) ── [policy] ──> Placement
    placement ── write ──> annotations of the pod ── read ──> the same placement, after a restart
    placement ── inject ──> environment and mounts of each container
    node, Device object ── sight ──> the cards they describe ── [stock] ──> one stock of cards
    one stock ── publish ──> what the node says of its cards, which `sight` reads back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

import msgspec

from subak.model import manifest
from subak.model.device import Device, MigProfile, PartitionTable, VirtualFunction
from subak.model.mount import Mount
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.request import BINPACK, Claim

MOST_CARDS = 1_024
"""A node that claims more cards than this has a mistake in its numbers."""

PRELOAD = "LD_PRELOAD"


class Source(IntEnum):
    """Where a description of a card comes from; the lower number is believed when two disagree."""

    REGISTER = 0
    DEVICE_OBJECT = 1
    CAPACITY = 2


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """A card as one source describes it.

    `id` is None where the source knows only an index, `index` None where it knows only an order.  The other fields are
    those of `model.device.Device`; None means that the source does not say.  `supposed_healthy` is a guess: it counts
    where no better source describes the cards.
    """

    family: str
    index: int | None
    id: str | None = None
    model: str | None = None
    memory_bytes: int | None = None
    cores: int | None = None
    slots: int | None = None
    minor: int | None = None
    kind: str | None = None
    numa: int | None = None
    healthy: bool | None = None
    cordoned: bool | None = None
    mode: str | None = None
    qos: str | None = None
    zone: int | None = None
    pcie: str | None = None
    labels: Mapping[str, str] | None = None
    links: Mapping[str, int] | None = None
    extras: tuple[tuple[str, int], ...] | None = None
    mig: tuple[MigProfile, ...] | None = None
    functions: tuple[VirtualFunction, ...] | None = None
    partitions: PartitionTable | None = None
    supposed_healthy: bool | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """What speaks for the death of a vendor's agent, and from when on: `after` these seconds since 1970, None for now.

    Dialects know no clock; the caller compares.
    """

    detail: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What a dialect sees on a node.

    `offered` says whether the node speaks the dialect at all.  `warnings` are sentences about what could not be read.
    `only` names the model if the dialect speaks of no other: its cards stand beside those of other models.
    `hidden` is the family whose register could not be read: cards that others merely count have other ids, so that what
    running pods hold of them would look free.  `death` is set if the agent that serves the dialect seems dead.
    """

    offered: bool = False
    source: Source = Source.CAPACITY
    sightings: tuple[Sighting, ...] = ()
    warnings: tuple[str, ...] = ()
    tables: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    only: str = ""
    hidden: str = ""
    death: Death | None = None

    @classmethod
    def unreadable(cls, node: manifest.Node, register: str, error: ValueError, family: str, offered: bool) -> Sight:
        """What is seen of a node whose register annotation is malformed."""
        return cls(offered, warnings=(f"node {node.name}: annotation {register}: {error}; ignored",), hidden=family)


NOTHING_SEEN = Sight()


@dataclass(slots=True)
class Patch:
    """What admission fills into a pod: limits and variables by the container's position, and annotations.

    `remove` names resources that go, from limits and requests alike.
    """

    limits: dict[int, dict[str, str]] = field(default_factory=dict)
    remove: dict[int, list[str]] = field(default_factory=dict)
    env: dict[int, dict[str, str]] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    def set_limit(self, position: int, name: str, amount: int) -> None:
        """Give a container this limit."""
        self.limits.setdefault(position, {})[name] = str(amount)

    def set_env(self, position: int, name: str, value: str) -> None:
        """Give a container this variable."""
        self.env.setdefault(position, {})[name] = value


@dataclass(frozen=True, slots=True)
class Ask:
    """A dialect's part of a pod's request."""

    claims: tuple[Claim, ...] = ()
    node_policy: str = BINPACK


@dataclass(slots=True)
class Injection:
    """What one container gets.

    `devices` are device nodes of the host, which only code that knows the driver can name.  `preload` is a library that
    comes before the container's own preloads.  `held` are the shares that libsubak enforces on the container.
    """

    env: dict[str, str] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    preload: str = ""
    held: tuple[Share, ...] = ()

    def add(self, other: Injection) -> None:
        """Give the container another injection as well."""
        self.env |= other.env
        self.mounts += other.mounts
        self.devices = list(dict.fromkeys((*self.devices, *other.devices)))
        self.preload = other.preload or self.preload
        self.held += other.held

    def bring(self, mounts: Iterable[Mount], env: Mapping[str, str]) -> None:
        """Give the container mounts and variables once, however many grants it has."""
        self.mounts += [each for each in mounts if each not in self.mounts]
        self.env |= env

    def variables(self, own: Mapping[str, str]) -> dict[str, str]:
        """The variables to set in a container that has its `own`."""
        return self.env | (preloading(self.preload, own.get(PRELOAD)) if self.preload else {})


def preloading(*libraries: str | None) -> dict[str, str]:
    """The variable by which the dynamic loader loads these libraries first, in their order; None or empty is none."""
    return {PRELOAD: ":".join(filter(None, libraries))}


@dataclass(frozen=True, slots=True)
class Agent:
    """The vendor's agent that serves a dialect on a node: what others have to know of it.

    `system` is the name under which people know it, `vendors` are those whose cards it describes; `model` and `modes`
    narrow that down where they are not empty.  `source` is where it describes them: only a register or a Device object
    names cards by UUID.  `shares` is how many containers may have a part of a card, 0 means one for every MiB.
    `libraries` and `directories` are what the vendor's image has, in every container.

    `lock` is the node annotation that must name the pod while the agent allocates: it would guess which pod it serves.
    `locks` are those of the cards' own agents, by vendor, if there are several.  `label` is the label of a pod that
    names its node, by which the agent's monitor finds the pod.  `handshake` is the node annotation by which the agent
    shows that it lives; `asked` is one in which schedulers ask for that, though the agent of today answers no more.
    `of_free` makes the annotations that it writes on its node whenever a card is taken or given back, of all cards and
    of those that nobody holds.
    """

    system: str
    vendors: tuple[str, ...]
    source: Source = Source.CAPACITY
    shares: int = 100
    model: str = ""
    modes: tuple[str, ...] = ()
    lock: str = ""
    locks: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    handshake: str = ""
    asked: str = ""
    libraries: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    of_free: Callable[[Sequence[Device], Sequence[Device]], Mapping[str, str]] | None = None

    def describes(self, family: str, model: str, mode: str) -> bool:
        """Whether it describes such cards."""
        return family in self.vendors and self.model in ("", model) and (not self.modes or mode in self.modes)


@dataclass(frozen=True, slots=True)
class Published:
    """What a node says of its cards: on its Node object, and in a Device object where the dialect has one.

    Broken cards are in `capacity`, and missing in `allocatable`.
    """

    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    device: Mapping[str, Any] | None = None

    @classmethod
    def counted(
        cls,
        cards: Sequence[Device],
        count: Callable[[Sequence[Device]], Mapping[str, str]],
        annotations: Mapping[str, str],
    ) -> Published:
        """The amounts as kubelet counts them for a device plugin: of these cards, and of those that are healthy."""
        if not cards:
            return cls(annotations=annotations)
        return cls(count(cards), count([each for each in cards if each.healthy]), annotations)

    def __or__(self, other: Published) -> Published:
        """What two agents on one node publish; if both say something, the other one's word counts."""
        return Published(
            {**self.capacity, **other.capacity},
            {**self.allocatable, **other.allocatable},
            {**self.annotations, **other.annotations},
            {**self.labels, **other.labels},
            self.device if other.device is None else other.device,
        )


@dataclass(frozen=True, slots=True)
class QuotaUnit:
    """What a namespace quota on a resource counts: memory in units of so many MiB, or cores."""

    dialect: str
    memory: bool
    factor: int = 1


class Part(StrEnum):
    """What of a card can be counted."""

    MEMORY = "memory"
    CORES = "cores"
    SLOTS = "slots"
    CARDS = "cards"
    """Cards that somebody has alone."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a unit of a resource is worth where amounts of many pods are added up: so many bytes, cores, slots or cards.

    With `percent` it is so many hundredths of a card's memory.  `family` is set where the name means one vendor's cards
    only.
    """

    part: Part
    units: int = 1
    percent: bool = False
    family: str = ""


class Dialect(Protocol):
    """One way of asking for cards."""

    @property
    def name(self) -> str:
        """Unique name; also what `Node.offers` holds."""

    @property
    def families(self) -> frozenset[str]:
        """Vendors whose cards it asks for."""

    @property
    def resources(self) -> frozenset[str]:
        """Resource names that belong to it: the ledger accounts for them, not the node's plain totals."""

    @property
    def owned(self) -> frozenset[str]:
        """Annotations that only the scheduler and the agents may write; a `*` at the end stands for any ending."""

    @property
    def recorded(self) -> frozenset[str]:
        """Those of them that `read` reads: who holds what.  They never change while a pod is bound."""

    @property
    def agent(self) -> Agent:
        """The vendor's agent that serves it."""

    @property
    def quota_units(self) -> Mapping[str, QuotaUnit]:
        """Resources whose shares a ResourceQuota may limit."""

    @property
    def measures(self) -> Mapping[str, Sequence[Measure]]:
        """What its resources count, for those who limit how much many pods have together, as queues do."""

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether the pod asks in this dialect."""

    def admit(self, pod: manifest.Pod) -> Patch:
        """Defaults to fill in.  Raises Refusal if the pod cannot mean anything."""

    def ask(self, pod: manifest.Pod) -> Ask:
        """What an admitted pod asks for.  Raises Refusal as `admit` does."""

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards that the node's objects describe.  Never raises: what cannot be read becomes a warning."""

    def publish(self, node: Node) -> Published:
        """What the node says of its cards in this dialect: `sight` sees the same cards in it."""

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """The annotations that record the placement."""

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """What the annotations of a bound pod record; empty if nothing.  Raises ValueError if they are malformed."""

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """What the container at `position` gets for a grant that serves it."""
