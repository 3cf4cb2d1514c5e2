"""A node as the scheduler sees it: one stock of cards, and what it demands of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from subak.model.device import MIG, Device
from subak.model.manifest import Taint


@dataclass(frozen=True, slots=True)
class Node:
    """What can be placed on a node.

    `offers` names the dialects that the node speaks: a pod goes only where its dialect is offered, though all of them
    draw on the same `devices`.  `allocatable` holds cpu in thousandths and everything else in whole units; a resource
    that the node does not mention is not limited.  `tables` carries a vendor's own topology figures, by name.

    `dead` holds the dialects whose agent on the node has died, each with what was seen of it: what pods hold there they
    keep, new ones would find nobody to give them their cards.  The answer for others may come with time: until
    `doubtful_until`, in seconds since 1970, they live.  `way` is how our own agent gives containers their cards
    (`dialects.mark`), empty where it does not run.  `cut` says whether any of the cards is in MIG mode.
    """

    name: str
    devices: tuple[Device, ...] = ()
    offers: frozenset[str] = frozenset()
    allocatable: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    tables: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    dead: Mapping[str, str] = field(default_factory=dict)
    doubtful_until: float | None = None
    way: str = ""
    cut: bool = field(init=False, repr=False, compare=False)
    _rows: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every share of every pod is looked up here.  Of two cards with one id the first counts.
        object.__setattr__(self, "cut", any(each.mode == MIG for each in self.devices))
        rows = {self.devices[row].id: row for row in reversed(range(len(self.devices)))}
        object.__setattr__(self, "_rows", rows)

    def device(self, id: str) -> Device | None:
        """The card with this id."""
        row = self._rows.get(id)
        return None if row is None else self.devices[row]

    def row(self, id: str) -> int | None:
        """The place of that card among `devices`."""
        return self._rows.get(id)

    def at_index(self, index: int, families: frozenset[str]) -> Device | None:
        """The card of one of these families with this index."""
        return next((each for each in self.devices if each.index == index and each.family in families), None)
