"""Small nodes, cards, claims and grants for tests of the ledger and of policies.

A card is an NVIDIA A100 of 16,000 MiB and four slots unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from subak.model.card import CardState
from subak.model.device import MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Charge, Grant, Placement, Share
from subak.model.request import Claim

DIALECT = "hami-nvidia"
NVIDIA = frozenset({"nvidia"})


def device(index: int = 0, mib: int = 16_000, **facts: Any) -> Device:
    """One card; its id is GPU-<index>."""
    known = {"id": f"GPU-{index}", "family": "nvidia", "model": "NVIDIA-A100", "slots": 4}
    return Device(**{**known, "index": index, "memory_bytes": mib * MIB, **facts})


def card(
    index: int = 0,
    *,
    used: int = 0,
    used_mib: int = 0,
    used_cores: int = 0,
    tenants: Mapping[str, Charge] | None = None,
    **facts: Any,
) -> CardState:
    """One card that is partly taken."""
    return CardState.of(device(index, **facts), used, used_mib * MIB, used_cores, tenants)


def node(name: str, *devices: Device, **facts: Any) -> Node:
    """A node that speaks HAMi's dialect for NVIDIA, with these cards."""
    return Node(name, devices, **{"offers": frozenset({DIALECT}), **facts})


def cards_of(name: str, count: int = 2, **facts: Any) -> tuple[Device, ...]:
    """Equal cards with different ids, <name>-<index>."""
    return tuple(device(index, id=f"{name}-{index}", **facts) for index in range(count))


def claim(mib: int = 0, *, container: int = 0, **wishes: Any) -> Claim:
    """What one container asks for."""
    known = {"dialect": DIALECT, "families": NVIDIA, "containers": (container,), "memory_bytes": mib * MIB}
    return Claim(**{**known, **wishes})


def share(id: str, mib: int = 0, cores: int = 0, **more: Any) -> Share:
    """A part of a card."""
    return Share(id, int(id.rpartition("-")[2]), mib * MIB, cores, **more)


def grant(*shares: Share, container: int = 0, role: Role = Role.APP, **more: Any) -> Grant:
    """What one container got."""
    return Grant(DIALECT, (container,), role, shares, **more)


def placed(name: str, *shares: Share) -> Placement:
    """A pod of one container that holds these shares."""
    return Placement(name, (grant(*shares),))


def numbered(cards: Iterable[CardState]) -> list[CardState]:
    """The cards as those of one node: index and id follow their order."""
    return [
        CardState.of(
            msgspec.structs.replace(each.device, index=index, id=f"GPU-{index}"),
            each.used,
            each.memory_used,
            each.cores_used,
            each.tenants,
        )
        for index, each in enumerate(cards)
    ]


def indices(cards: object) -> list[int]:
    """The indices of cards in their order; a refusal is no such list."""
    assert isinstance(cards, list), cards
    return [each.device.index for each in cards]
