"""What a tenant really uses of its cards, as its region says.

The region is a file of the tenant, who may have put anything in its place.  Whatever is no region says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from subak.node import regions


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


def read(path: Path, now_ns: int) -> Mapping[str, Use]:
    """The tenant's use of each of its cards, by UUID; nothing if nobody knows.  `now_ns` is the monotonic clock."""
    try:
        region = regions.read(path, now_ns)
    except regions.NoRegion:
        return {}
    return {
        card.uuid: Use(card.used_bytes, None if card.core_limit_percent is None else card.core_percent)
        for card in region.cards
        if card.uuid
    }
