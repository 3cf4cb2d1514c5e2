"""What a pod asks for, in words that belong to no dialect.

A `Claim` asks for a number of cards with an equal share of each.  A `Request` is all claims of a pod together with the
way to choose among what fits.  Both are values: pods that ask for the same have equal requests, which is what lets the
snapshot remember scores per shape of request.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from subak.model.device import MIB, Device
from subak.model.manifest import Expression, Role, Toleration
from subak.model.rules import PLAIN, Rules

BINPACK, SPREAD, NUMA, MUTEX = "binpack", "spread", "numa", "mutex"
"""Words of HAMi's policy annotations."""

LOWEST_INDEX, HIGHEST_INDEX = "lowest-index", "highest-index"
"""Card orders of Volcano: shared memory takes the first card that fits, vGPU counts down."""

MOST_MEMORY_USED, FEWEST_TENANTS = "most-memory-used", "fewest-tenants"
"""Card orders of Volcano vGPU under its binpack and spread policies."""

LEAST_ALLOCATED, MOST_ALLOCATED = "LeastAllocated", "MostAllocated"
"""Scoring strategies of Koordinator, for cards and for nodes."""


class Pick:
    """How cards are picked from those that fit: names in `policy.registry`.  With RULES the claim's rules pick."""

    IN_ORDER = "in-order"
    LINKS = "links"
    TREE = "tree"
    RULES = "rules"


@dataclass(frozen=True, slots=True)
class Weights:
    """How much slots, cores and memory count in a card's score."""

    slot: int = 1
    core: int = 1
    memory: int = 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Which cards a user admits.  Ids match exactly; types are parts of the model's name in any case; a deny wins.

    `modes` are the operating modes that the pod accepts (empty: any).  `models` must match whole: some resource names
    carry the model.  `labels` are lines that must hold of the card's labels.
    """

    use_ids: frozenset[str] = frozenset()
    nouse_ids: frozenset[str] = frozenset()
    use_types: tuple[str, ...] = ()
    nouse_types: tuple[str, ...] = ()
    modes: str = ""
    models: frozenset[str] = frozenset()
    labels: tuple[Expression, ...] = ()

    def admits_id(self, id: str) -> bool:
        """Whether the id passes both lists."""
        return id not in self.nouse_ids and (not self.use_ids or id in self.use_ids)

    def admits_type(self, model: str) -> bool:
        """Whether the model's name passes both lists."""
        name = model.lower()
        if self.models and model not in self.models:
            return False
        if any(part in name for part in self.nouse_types):
            return False
        return not self.use_types or any(part in name for part in self.use_types)

    def admits_mode(self, mode: str) -> bool:
        """Whether the card's operating mode is among the accepted ones."""
        return not self.modes or mode in self.modes

    def admits_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether all lines hold of the card's labels."""
        return all(line.holds(labels) for line in self.labels)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """What a request for whole cards wants of the node's partition table (Koordinator's).

    With `required` the cards must make one partition of at least this `bandwidth`; with `restricted` one of those with
    the highest score.  Otherwise a node that has a table gives a partition if it can.
    """

    required: bool = False
    restricted: bool = False
    bandwidth: int = 0


@dataclass(frozen=True, slots=True)
class CardPolicy:
    """How to order and pick cards: the keys in order of weight, then what else the user demanded.

    `scope` is Koordinator's: all cards must lie within one `PCIe` root, `NUMANode` or `Node`.  So are `partition` (None
    if tables do not matter) and `beside`: the kind of device whose PCIe roots are preferred, because the pod has taken
    devices there; with `same_roots` each of those roots must give one, and no other.
    """

    order: tuple[str, ...] = (SPREAD,)
    pick: str = Pick.IN_ORDER
    mutex: bool = False
    numa_bind: bool = False
    scope: str = ""
    partition: Partitioning | None = None
    beside: str = ""
    same_roots: bool = False
    weights: Weights = Weights()


@dataclass(frozen=True, slots=True)
class Claim:
    """`count` cards of one of `families`, each with the same share, for the containers at these positions.

    Memory is an amount, or a percentage of each card floored to `granule`.  `idle` demands cards that nobody uses.
    `together` puts all such claims of one dialect in the pod on the same card.  `slotted` counts as HAMi does: each
    share takes one of its card's slots, and all cores of a card mean the card alone.  Dialects without slots are
    limited only by the amounts that they name.  `rules` are the vendor's own.

    `instances` is for dialects that record MIG instances (HAMi's): they get those of cards in MIG mode, several of one
    card for several cards; others get none.

    `everywhere` means every card that the selection admits, however many there are.
    """

    dialect: str
    families: frozenset[str]
    containers: tuple[int, ...]
    role: Role = Role.APP
    count: int = 1
    memory_bytes: int = 0
    memory_percent: int = 0
    granule: int = MIB
    cores: int = 0
    extras: tuple[tuple[str, int], ...] = ()
    idle: bool = False
    together: bool = False
    instances: bool = False
    slotted: bool = True
    everywhere: bool = False
    rules: Rules = PLAIN
    selection: Selection = Selection()
    policy: CardPolicy = CardPolicy()

    def memory_on(self, device: Device) -> int:
        """Bytes of this card that one share takes."""
        if self.memory_bytes or not self.memory_percent:
            return self.memory_bytes
        return device.memory_bytes // self.granule * self.memory_percent // 100 * self.granule


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod asks of a node besides cards.  `unsupported` names demands that we do not honour yet."""

    resources: tuple[tuple[str, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[tuple[Expression, ...], tuple[Expression, ...]], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Packed:
    """A resource of which nodes are to be filled: how much it counts, and how much of it the pod asks for.

    Names are those of `Mixture`.
    """

    name: str
    weight: int
    asked: int


@dataclass(frozen=True, slots=True)
class Mixture:
    """How much each of several node scores counts, from which one is mixed (Volcano's way; see `policy.mixture`).

    `cpu` and `memory` are what the pod asks for, as Kubernetes guesses it for containers that do not say.  `packed` are
    the resources by which nodes are filled: `cpu`, `memory`, other node resources by their names, and of cards
    `FAMILY/memory`, `FAMILY/cores`, `FAMILY/cards` and `FAMILY/slots`.  `preferences` are weights of preferences, in
    place of their own.  With `cards` the chosen cards count too: for `card_policy` binpack the fuller the better, for
    spread those that nobody uses.
    """

    cpu: int = 0
    memory: int = 0
    least: int = 0
    most: int = 0
    balanced: int = 0
    packing: int = 0
    packed: tuple[Packed, ...] = ()
    preferences: tuple[tuple[str, int], ...] = ()
    cards: int = 0
    card_policy: str = ""


@dataclass(frozen=True)
class Request:
    """All that a pod asks for.

    `node_policy` names the score of nodes, in `policy.registry`; where there is a `mixture`, that counts instead.
    `reads` holds what else policies read of the pod, by the name of the policy.
    """

    claims: tuple[Claim, ...] = ()
    needs: Needs = Needs()
    node_policy: str = BINPACK
    reads: tuple[tuple[str, Hashable], ...] = ()
    mixture: Mixture | None = None
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Requests key the score cache, so that each decision hashes one: remember it.
        value = hash((self.claims, self.needs, self.node_policy, self.reads, self.mixture))
        object.__setattr__(self, "_hash", value)

    def __hash__(self) -> int:
        return self._hash

    def read(self, name: str) -> Hashable | None:
        """What the policy of this name reads of the pod besides; None for nothing."""
        return dict(self.reads).get(name)
