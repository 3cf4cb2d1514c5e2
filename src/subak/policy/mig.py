"""Instances on NVIDIA cards in MIG mode.

The smallest profile that is large enough and has a free place wins.  `1g` and `3g` profiles are put as high on the card
as they can be, all others as low: so the large places in the middle stay whole longest.

A container that asks HAMi for several cards may get several instances of one: the first card in order gives all that it
can, then the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subak.model.card import CardState
from subak.model.device import MIG, MigProfile
from subak.model.placement import Charge, MigInstance, Share
from subak.model.request import Claim

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


def share(card: CardState, claim: Claim) -> Share | None:
    """The instance as a share, which takes a profile's whole size; None if the card gives none."""
    instance = instance_for(card, claim)
    if instance is None:
        return None
    profile = next(each for each in card.device.mig if each.name == instance.profile)
    return Share(card.device.id, card.device.index, profile.memory_bytes, profile.cores, (), instance)


def most(cards: Sequence[CardState], claim: Claim) -> int:
    """How many cards the claim could find here at most, were all of them free."""
    return sum(card.device.slots if _stacks(card, claim) else 1 for card in cards)


def stack(card: CardState, claim: Claim, count: int) -> list[CardState]:
    """A card that passes, as it is, and then as it would be after each instance that it gives: at most `count` states.

    The pod's own instances are no strangers: a pod that wants its cards alone may have several of one.
    """
    states = [card]
    while len(states) < count and _stacks(card, claim):
        last = states[-1]
        given = share(last, claim)
        if given is None or given.mig is None:
            break
        charge = Charge(1, 1, given.memory_bytes, given.cores, mig=(given.mig,))
        after = CardState(
            last.device,
            last.used,
            last.slots_free,
            last.memory_free,
            last.cores_free,
            {**last.tenants, f"instance {len(states)}": charge},
        )
        after.take(charge)
        if after.slots_free <= 0 or instance_for(after, claim) is None:
            break
        states.append(after)
    return states


def _stacks(card: CardState, claim: Claim) -> bool:
    return claim.instances and card.device.mode == MIG
