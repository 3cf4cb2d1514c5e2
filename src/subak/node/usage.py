"""What a tenant really uses of its cards, as its region says.

The region is a file of the tenant, who may have put anything in its place.  Whatever is no region says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from subak.node import regions
from subak.node.regions import Card, Process, Region
from subak.node.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant uses of one card.

    `time_percent` is None where nobody counts it: that is done for those whose time is limited.
    """

    memory_bytes: int
    time_percent: int | None

    def __add__(self, other: Use) -> Use:
        """Both together, as of two containers of a pod."""
        known = self.time_percent is not None and other.time_percent is not None
        return Use(
            self.memory_bytes + other.memory_bytes,
            (self.time_percent or 0) + (other.time_percent or 0) if known else None,
        )


Uses = Mapping[tuple[str, str], Use]
"""What many tenants use, by the card's UUID and the tenant: a pod's namespace and name."""


def of_tenant(tenant: Tenant, now_ns: int) -> dict[int, dict[str, Use]]:
    """What each container of a tenant uses of its cards, by position and UUID; nothing if nobody knows."""
    try:
        region = regions.read(tenant.region, now_ns) if tenant.region is not None else None
    except regions.NoRegion:
        region = None
    return {} if region is None else by_container(region, sorted(tenant.containers))


def by_container(region: Region, positions: Sequence[int]) -> dict[int, dict[str, Use]]:
    """What each of the containers that share a region uses, by their positions in the pod.

    A process that does not say whose it is counts for the first of them.
    """
    found: dict[int, dict[str, Use]] = {}
    for position in positions:
        mine = [each for each in region.processes if _whose(each, positions) == position]
        found[position] = {card.uuid: _use(card, number, mine) for number, card in enumerate(region.cards) if card.uuid}
    return found


def _use(card: Card, number: int, processes: Sequence[Process]) -> Use:
    percent = min(100, sum(each.core_percent[number] for each in processes))
    memory = sum(each.used_bytes[number] for each in processes)
    return Use(memory, None if card.core_limit_percent is None else percent)


def _whose(process: Process, positions: Sequence[int]) -> int:
    whose = process.container
    return whose if whose is not None and whose in positions else positions[0]


def read(path: Path, now_ns: int) -> Mapping[str, Use]:
    """The tenant's use of each of its cards, by UUID; nothing if nobody knows.  `now_ns` is the monotonic clock."""
    try:
        region = regions.read(path, now_ns)
    except regions.NoRegion:
        return {}
    return by_container(region, [0])[0]
