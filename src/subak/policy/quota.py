"""Namespace quotas on shares of cards: `limits.<memory resource>` and `limits.<core resource>` of a ResourceQuota.

    used + asked <= limit x unit

A quota is written in the unit of its resource (HAMi's users count Iluvatar memory in 256 MiB) and compared in MiB.
Kubernetes itself can only count the resource per container, not per card, which is why this is done here.  What is used
follows from the bookings: the snapshot counts with `amounts` and keeps the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from subak.dialects import QuotaUnit
from subak.model import manifest
from subak.model.device import MIB
from subak.model.manifest import Role
from subak.model.placement import Charge, Placement, charges
from subak.model.request import Claim
from subak.snapshot.cluster import Resources
from tinykube.quantity import Quantity, QuantityError

PREFIX = "limits."

Taken = Mapping[str, Charge]
"""What is taken from each card."""


def fits(used: int, asked: int, limit: int | None, factor: int = 1) -> bool:
    """Whether the quota has room; no limit means all the room there is, a limit of 0 none."""
    return limit is None or used + asked <= limit * factor


def peak_memory_mib(claims: Iterable[Claim]) -> int:
    """What claims take at their peak, as far as they name amounts: app containers together, or one init container."""
    together = largest = 0
    for claim in claims:
        amount = claim.count * claim.memory_bytes // MIB
        if claim.role is Role.INIT:
            largest = max(largest, amount)
        else:
            together += amount
    return max(together, largest)


@dataclass(slots=True)
class Quotas:
    """The quotas of all namespaces, and the snapshot's sums of what they use."""

    units: Mapping[str, QuotaUnit] = field(default_factory=dict)
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    used: Mapping[tuple[str, str], int] = field(default_factory=dict)
    _by_dialect: dict[str, list[tuple[str, QuotaUnit]]] = field(default_factory=dict, repr=False, compare=False)

    def put(self, quota: manifest.ResourceQuota) -> list[str]:
        """Take in a quota; of several in a namespace the tightest counts.  Returns what could not be read."""
        warnings: list[str] = []
        namespace = quota.metadata.namespace or "default"
        for key, amount in (quota.spec.hard or {}).items():
            name = key.removeprefix(PREFIX)
            if name == key or name not in self.units:
                continue
            try:
                limit = Quantity.parse(amount).integer()
            except QuantityError as error:
                warnings.append(f"ResourceQuota {namespace}/{quota.metadata.name}: {key}: {error}; ignored")
                continue
            self.limits[namespace, name] = min(limit, self.limits.get((namespace, name), limit))
        return warnings

    def replace(self, namespace: str, quotas: Iterable[manifest.ResourceQuota]) -> list[str]:
        """These are all quotas of a namespace now.  Returns what could not be read."""
        self.limits = {key: limit for key, limit in self.limits.items() if key[0] != namespace}
        return [warning for quota in quotas for warning in self.put(quota)]

    def amounts(self, placement: Placement, taken: Taken | None = None) -> Resources:
        """What a placement counts for; `taken`, if known, spares to add up the placement once more."""
        return tuple([(name, amount) for name, amount in self._amounts(placement, taken) if amount])

    def refuse_claims(self, namespace: str, claims: Sequence[Claim]) -> str | None:
        """What the namespace's quota says before a node is sought: percentages have no amount yet."""
        if not self.limits:
            return None
        for dialect in dict.fromkeys(claim.dialect for claim in claims):
            for name, unit in self._units_of(dialect):
                if unit.memory:
                    asked = peak_memory_mib(claim for claim in claims if claim.dialect == dialect)
                    if (refusal := self._refuse(namespace, name, asked)) is not None:
                        return refusal
        return None

    def refuse(self, namespace: str, placement: Placement) -> str | None:
        """What the namespace's quota says to a placement, None if there is room."""
        if not self.limits:
            return None
        for name, amount in self._amounts(placement):
            if (refusal := self._refuse(namespace, name, amount)) is not None:
                return refusal
        return None

    def _refuse(self, namespace: str, name: str, asked: int) -> str | None:
        unit, limit = self.units[name], self.limits.get((namespace, name))
        used = self.used.get((namespace, name), 0)
        if not asked or fits(used, asked, limit, unit.factor):
            return None
        what = "MiB" if unit.memory else "cores"
        most = (limit or 0) * unit.factor
        return f"namespace {namespace}: quota {PREFIX}{name} allows {most:,} {what}, {used:,} used, {asked:,} asked"

    def _amounts(self, placement: Placement, taken: Taken | None = None) -> Iterator[tuple[str, int]]:
        """What a placement takes, by the names of its dialects' resources."""
        spoken = dict.fromkeys([grant.dialect for grant in placement.grants])
        for dialect in spoken:
            units = self._units_of(dialect)
            if not units:
                continue
            if taken is None or len(spoken) > 1:
                taken = charges(grant for grant in placement.grants if grant.dialect == dialect)
            for name, unit in units:
                amounts = [charge.memory_bytes if unit.memory else charge.cores for charge in taken.values()]
                yield name, sum(amounts) // (MIB if unit.memory else 1)

    def _units_of(self, dialect: str) -> Sequence[tuple[str, QuotaUnit]]:
        known = self._by_dialect.get(dialect)
        if known is None:
            known = [(name, unit) for name, unit in self.units.items() if unit.dialect == dialect]
            self._by_dialect[dialect] = known
        return known
