"""Instances on NVIDIA cards in MIG mode.

The smallest profile that is large enough and has a free place wins.  `1g` and `3g` profiles are put as high on the card
as they can be, all others as low: so the large places in the middle stay whole longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subak.model.device import MigProfile
from subak.model.placement import MigInstance
from subak.model.request import Claim
from subak.snapshot.card import CardState

MODE = "mig"

FROM_THE_TOP = ("1g.", "3g.")


def place(profile: str, placements: Iterable[tuple[int, int]], taken: Sequence[MigInstance]) -> MigInstance | None:
    """A free place for the profile beside the instances that exist, None if there is none."""
    for start, size in sorted(placements, reverse=profile.startswith(FROM_THE_TOP)):
        if all(start + size <= each.start or each.start + each.size <= start for each in taken):
            return MigInstance(profile, start, size)
    return None


def choose(profiles: Iterable[MigProfile], memory_bytes: int, taken: Sequence[MigInstance]) -> MigInstance | None:
    """The smallest profile of at least this memory that has a free place."""
    for profile in sorted(profiles, key=lambda each: (each.memory_bytes, each.cores, each.name)):
        if profile.memory_bytes >= memory_bytes:
            instance = place(profile.name, profile.placements, taken)
            if instance is not None:
                return instance
    return None


def instance_for(card: CardState, claim: Claim) -> MigInstance | None:
    """The instance that the card would give for one share of the claim."""
    taken = [instance for charge in card.tenants.values() for instance in charge.mig]
    affordable = [
        each for each in card.device.mig if each.memory_bytes <= card.memory_free and each.cores <= card.cores_free
    ]
    return choose(affordable, claim.memory_on(card.device), taken)
