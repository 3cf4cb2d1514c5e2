"""Annotations by which a Koordinator pod narrows the choice of devices, or of nodes for their sake.

Of all of them Subak honours one: that the cards lie within one PCIe root or NUMA node.  The others would be broken
promises if they were ignored, so that a pod which carries them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from subak.dialects import annotation
from subak.dialects.koordinator_names import HINT, JOINT, NUMA, PARTITION, RESERVATION
from subak.model.device import GPU
from subak.model.reason import Refusal

T = TypeVar("T")

SCOPE = "requiredTopologyScope"
SCOPES = ("PCIe", "NUMANode", "Node", "Device")

_ERRORS = {
    HINT: "DeviceAllocateHint",
    JOINT: "DeviceJointAllocate",
    PARTITION: "GPUPartitionSpec",
    RESERVATION: "ReservationAffinity",
    NUMA: "NUMATopologySpec",
}


def scope(annotations: Mapping[str, str], cards: int) -> str:
    """The scope within which all cards must lie; empty for none.

    One card is always within one `Device`, and several never are.  (Upstream nothing is.)
    """
    for key in (JOINT, PARTITION, RESERVATION, NUMA):
        if key in annotations:
            _decoded(annotations, key, dict[str, Any])
            raise Refusal(_field(key), annotations[key], f"{key} is not supported yet: remove the annotation")
    hints = _decoded(annotations, HINT, dict[str, dict[str, Any] | None]) if HINT in annotations else {}
    wanted = ""
    for kind, hint in hints.items():
        for name, value in (hint or {}).items():
            if (kind, name) != (GPU, SCOPE):
                text = f"{kind}.{name} in {HINT} is not supported yet: only {GPU}.{SCOPE} is"
                raise Refusal(_field(HINT), annotations[HINT], text)
            wanted = value
    if wanted and wanted not in SCOPES:
        raise Refusal(_field(HINT), wanted, f"{SCOPE} is {wanted!r}: use {', '.join(SCOPES)}")
    if wanted != "Device":
        return wanted
    if cards > 1:
        raise Refusal(_field(HINT), wanted, f"{cards} cards cannot lie within one Device: use PCIe, NUMANode or Node")
    return ""


def _decoded(annotations: Mapping[str, str], key: str, type: type[T]) -> T:
    try:
        return annotation.decode(annotations[key], type)
    except ValueError as error:
        raise Refusal(_field(key), annotations[key], f"invalid {_ERRORS[key]} annotation, err: {error}") from None


def _field(key: str) -> str:
    return f"metadata.annotations[{key}]"
