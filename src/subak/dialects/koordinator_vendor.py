"""Records for the vendors' own agents: what a placement by Koordinator's dialect says to them, beside its own record.

Upstream they are written behind the gate DevicePluginAdaption.  `predicate-time` tells Ascend's device plugin which of
several equal pods it serves; Cambricon's plugin cuts one card for one pod, by a profile of minor, cores and memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from subak.dialects import annotation, hami
from subak.dialects.koordinator_device import minor
from subak.dialects.koordinator_names import (
    ASCEND_310P,
    CAMBRICON_ASSIGNED,
    CAMBRICON_PROFILE,
    METAX_ALLOCATED,
    NPU_CORE,
    PREDICATE_TIME,
)
from subak.dialects.koordinator_request import Portion
from subak.dialects.koordinator_template import DUO
from subak.model.device import MIB, Device
from subak.model.placement import Share

OWNED = frozenset(
    {METAX_ALLOCATED, PREDICATE_TIME, NPU_CORE, ASCEND_310P, CAMBRICON_ASSIGNED, CAMBRICON_PROFILE},
)
"""Annotations that are written here."""

LOCKS = {"metax": hami.LOCK, "cambricon": "cambricon.com/dsmlu.lock"}
"""Node locks of the vendors whose agents learn from them which pod they serve."""

SLICE = 256 * MIB
"""Cambricon counts memory in slices of this size."""

Held = Sequence[tuple[Share, Device]]


class Metax(msgspec.Struct, rename={"memory_mib": "vRam"}):
    """A card in the annotation that MetaX's own agent reads."""

    uuid: str
    compute: int
    memory_mib: int


def records(held: Held, now_ns: int) -> dict[str, str]:
    """The annotations for the agents of those vendors whose cards are held.  Raises ValueError if one cannot serve."""
    annotations: dict[str, str] = {}
    for family, record in (("metax", metax), ("huawei", huawei), ("cambricon", cambricon)):
        mine = [(share, device) for share, device in held if device.family == family]
        if mine:
            annotations |= record(mine, now_ns)
    return annotations


def metax(held: Held, now_ns: int) -> dict[str, str]:
    """MetaX: one list for the whole pod, memory in MiB."""
    cards = [Metax(share.id, share.cores, share.memory_bytes // MIB) for share, _ in held]
    return {METAX_ALLOCATED: annotation.encode([cards])}


def huawei(held: Held, now_ns: int) -> dict[str, str]:
    """Ascend: minors, with the template of a part; one model has a name of its own for whole cards."""
    time = {PREDICATE_TIME: str(now_ns)}
    if all(device.model == DUO for _, device in held):
        return {**time, ASCEND_310P: ",".join(f"Ascend310P-{minor(device)}" for _, device in held)}
    cards = (f"{minor(device)}-{share.template}" if share.template else str(minor(device)) for share, device in held)
    return {**time, NPU_CORE: ",".join(cards)}


def cambricon(held: Held, now_ns: int) -> dict[str, str]:
    """Cambricon: one card, by its profile.  Raises ValueError in Koordinator's words if there is no such profile."""
    if len(held) > 1:
        raise ValueError("multiple gpu share is not supported on device side")
    ((share, device),) = held
    if not share.cores:
        raise ValueError("gpu core resource is required")
    if share.memory_bytes < SLICE:
        raise ValueError(f"gpu memory must not be less than {SLICE} bytes")
    profile = f"{minor(device)}_{share.cores}_{share.memory_bytes // SLICE}"
    return {CAMBRICON_ASSIGNED: "false", CAMBRICON_PROFILE: profile}


def cambricon_serves(portion: Portion) -> bool:
    """Whether Cambricon's agent could make what is asked for, as far as the request tells.

    Four percent are more than a slice on every card that Cambricon has made.
    """
    enough = portion.memory_bytes >= SLICE or portion.ratio >= 4
    return portion.count == 1 and portion.cores > 0 and enough
