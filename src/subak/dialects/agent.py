"""Is the agent behind a register alive?  The annotation outlives the agent that wrote it.

    HAMi, NVIDIA     dead: none of its resource is allocatable, and nobody has answered the `Requesting_<time>` that a
                     scheduler of HAMi leaves on the node, for a minute
    Iluvatar         dead by the same rule; or as soon as allocatable, which once had the resource, has 0 of it
    Volcano vGPU     dead as soon as allocatable has 0 of it

An old `Requesting_` alone proves nothing: since 2.9 HAMi's own plugin answers none.  Nor does a 0 beside a register
whose cards are all broken: that is kubelet's way to count those.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from subak.dialects import Death, Sighting
from subak.model import manifest
from tinykube.quantity import QuantityError

PATIENCE_S = 60
REQUESTING = "Requesting"


def death(
    node: manifest.Node, resource: str, sightings: Sequence[Sighting], handshake: str = "", fallen: bool = True
) -> Death | None:
    """What speaks for the death of the agent that registered these cards; None if it lives.

    With `fallen` an entry of 0 in allocatable is proof enough.  Else, or where there is no entry, it takes the
    `handshake` annotation too.
    """
    cards = sum(sighting.healthy is not False for sighting in sightings)
    try:
        allocatable = manifest.amount(node.allocatable, resource)
    except QuantityError:
        return None  # what cannot be read proves nothing
    if allocatable > 0 or not cards:
        return None
    seen = f"agent dead: 0 {resource} allocatable beside {cards} registered {'card' if cards == 1 else 'cards'}"
    cure = "restart it on the node"
    if fallen and resource in node.allocatable:
        return Death(f"{seen}; {cure}")
    after = unanswered_after(node.annotations.get(handshake))
    if after is None:
        return None
    return Death(f"{seen}, {handshake} unanswered for more than {PATIENCE_S} s; {cure}", after)


def unanswered_after(value: str | None) -> float | None:
    """When a `Requesting_<time>` counts as unanswered, in seconds since 1970; None if it is anything else.

    HAMi writes local time without a zone, which in its containers is UTC.
    """
    if value is None or REQUESTING not in value:
        return None
    try:
        asked = datetime.strptime(value.partition("_")[2], "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    return asked.replace(tzinfo=UTC).timestamp() + PATIENCE_S
