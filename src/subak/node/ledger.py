"""The node's own account of who holds what: the last word, whatever any scheduler wrote.

It counts what the pods took that were started here, card by card, and refuses the one that would overcommit a card.  It
is kept apart from the scheduler's snapshot on purpose: a mistake there must not be a mistake here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from subak.model.device import MIB, Device
from subak.model.node import Node
from subak.model.placement import Charge, MigInstance, Placement, charges

MOST_NAMED = 5
"""How many tenants of a card a refusal names; a card can have a hundred."""


class Overcommitted(ValueError):
    """A pod that takes more of a card than is left of it."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds; `pod` is its namespace and name, `charges` what it counts for on each card."""

    pod: str
    placement: Placement
    charges: Mapping[str, Charge]


class Ledger:
    """The account of one node.  Pods are known by their UID: one may still end while another has its name already."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.holdings: dict[str, Holding] = {}

    def take(self, uid: str, pod: str, placement: Placement, counted: Placement | None = None) -> None:
        """Book what a pod takes.  Raises Overcommitted, in numbers, and books nothing if a card has not that much.

        `counted` is what it counts for, if that is more.
        """
        holding = Holding(pod, placement, charges((counted or placement).grants))
        taken = charges(placement.grants)  # cards that the node does not have count on others, but must not be taken
        for id, charge in (taken | dict(holding.charges)).items():
            device = self.node.device(id)
            if device is None:
                known = ", ".join(each.id for each in self.node.devices) or "none"
                raise Overcommitted(f"node {self.node.name} has no card {id}; its cards are {known}")
            self._check(device, uid, pod, charge)
        self.holdings[uid] = holding

    def restore(self, uid: str, pod: str, placement: Placement, counted: Placement | None = None) -> None:
        """Book what a running pod holds, even if the card is then overcommitted."""
        self.holdings[uid] = Holding(pod, placement, charges((counted or placement).grants))

    def give_back(self, uid: str) -> Holding | None:
        """Forget what a pod held; None if it held nothing."""
        return self.holdings.pop(uid, None)

    def free(self) -> list[Device]:
        """The cards that nobody holds."""
        held = {id for holding in self.holdings.values() for id in holding.charges}
        return [each for each in self.node.devices if each.id not in held]

    def held(self) -> dict[str, Charge]:
        """What all pods together hold of each card, by its id."""
        total: dict[str, Charge] = {}
        for holding in self.holdings.values():
            for id, charge in holding.charges.items():
                total.setdefault(id, Charge()).join(charge)
        return total

    def _check(self, device: Device, uid: str, pod: str, charge: Charge) -> None:
        others = [each for holder, each in self.holdings.items() if holder != uid and device.id in each.charges]
        tenants = [(each.pod, each.charges[device.id]) for each in others]  # two may have the same name
        where = f"card {device.id} of node {self.node.name}"
        if not device.healthy:
            raise Overcommitted(f"{where} is broken; pod {pod} cannot have it")
        left = _left(device, [held for _, held in tenants])
        taken = _amounts(charge)
        if any(amount > max(left.get(name, 0), 0) for name, amount in taken.items()):
            holders = f"{_some(tenant for tenant, _ in tenants)} hold the rest" if tenants else "nobody holds any of it"
            raise Overcommitted(
                f"{where} has {_said(left)} left ({holders}); pod {pod} takes {_said(taken)}, "
                "which would overcommit the card"
            )
        for tenant, other in tenants:
            self._check_apart(where, pod, charge, tenant, other)

    @staticmethod
    def _check_apart(where: str, pod: str, charge: Charge, tenant: str, other: Charge) -> None:
        """MIG instances must not overlap, and a virtual function is one pod's."""
        for mine in charge.mig:
            for theirs in other.mig:
                if _overlap(mine, theirs):
                    raise Overcommitted(f"{where}: pod {pod} takes {_slices(mine)}, pod {tenant} has {_slices(theirs)}")
        shared = {each.bus for each in charge.functions} & {each.bus for each in other.functions}
        if shared:
            raise Overcommitted(f"{where}: pod {pod} takes {', '.join(sorted(shared))}, which pod {tenant} has")


def _some(names: Iterable[str]) -> str:
    """A few of the names, in order, and how many more there are."""
    known = sorted(set(names))
    more = len(known) - MOST_NAMED
    return ", ".join(known[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _amounts(charge: Charge) -> dict[str, int]:
    return {"bytes": charge.memory_bytes, "cores": charge.cores, "slots": charge.slots, **charge.extras}


def _left(device: Device, tenants: Iterable[Charge]) -> dict[str, int]:
    left = {"bytes": device.memory_bytes, "cores": device.cores, "slots": device.slots, **dict(device.extras)}
    for tenant in tenants:
        for name, amount in _amounts(tenant).items():
            left[name] = left.get(name, 0) - amount
    return left


def _said(amounts: Mapping[str, int]) -> str:
    """Amounts for people; memory that is no whole number of MiB stays in bytes, or the refusal could look wrong."""
    parts = []
    for name, amount in amounts.items():
        if name == "bytes" and amount % MIB == 0:
            name, amount = "MiB", amount // MIB
        parts.append(f"{amount:,} {name.removesuffix('s') if amount == 1 else name}")
    return ", ".join(parts)


def _overlap(one: MigInstance, other: MigInstance) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size


def _slices(instance: MigInstance) -> str:
    return f"MIG slices {instance.start} to {instance.start + instance.size - 1}"
