"""Annotations by which a Koordinator pod narrows the choice of devices, or of nodes for their sake.

    device-allocate-hint    which devices of a kind, how many, and whether a virtual function comes with each
    device-joint-allocate   kinds of devices that lie under the same PCIe roots
    gpu-partition-spec      whole GPUs that make one partition of the node's table

What Subak does not honour would be a broken promise if it were ignored, so that a pod which asks for it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from subak.dialects import annotation
from subak.dialects.koordinator_names import HINT, JOINT, NUMA, PARTITION, RESERVATION
from subak.dialects.koordinator_request import KINDS, Portion
from subak.model.device import FULL_CORES, GPU
from subak.model.manifest import Amount, Expression
from subak.model.reason import Refusal
from subak.model.request import Partitioning
from tinykube.quantity import Quantity, QuantityError

T = TypeVar("T")

SCOPE = "requiredTopologyScope"
SCOPES = ("PCIe", "NUMANode", "Node", "Device")
FOR_ALL, AS_COUNT = "ApplyForAll", "RequestsAsCount"
SAME_PCIE = "SamePCIe"
BEST_EFFORT, RESTRICTED = "BestEffort", "Restricted"
DEVICE_LEVEL = "DeviceLevel"

_ERRORS = {
    HINT: "DeviceAllocateHint",
    JOINT: "DeviceJointAllocate",
    PARTITION: "GPUPartitionSpec",
    RESERVATION: "ReservationAffinity",
    NUMA: "NUMATopologySpec",
}


class Strict(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An annotation in which a field that nobody knows is an error."""


class Selector(Strict, frozen=True, kw_only=True):
    """Kubernetes' label selector: all of it must hold."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class Hint(Strict, frozen=True, kw_only=True):
    """What `device-allocate-hint` says of one kind of device."""

    selector: Selector | None = None
    vf_selector: Selector | None = None
    allocate_strategy: str = ""
    exclusive_policy: str = ""
    required_topology_scope: str = ""


class Joint(Strict, frozen=True, kw_only=True):
    """`device-joint-allocate`: the first kind is chosen first."""

    device_types: list[str] | None = None
    required_scope: str = ""


class PartitionSpec(Strict, frozen=True, kw_only=True):
    """`gpu-partition-spec`."""

    allocate_policy: str = BEST_EFFORT
    ring_bus_bandwidth: Amount | None = None


@dataclass(frozen=True, slots=True)
class Hints:
    """What the annotations of a pod say, once they are known to make sense."""

    of: Mapping[str, Hint] = field(default_factory=dict)
    joint: Joint = field(default_factory=Joint)
    partition: Partitioning | None = None

    def portion(self, kind: str, portion: Portion) -> Portion:
        """What is asked for of a kind: `RequestsAsCount` makes the amount a number of devices."""
        hint = self.of.get(kind, Hint())
        if kind == GPU or portion.count > 1 or hint.allocate_strategy != AS_COUNT:
            return portion
        each = FULL_CORES if hint.exclusive_policy == DEVICE_LEVEL else 1
        return replace(portion, count=portion.cores, cores=each)

    def everywhere(self, kind: str, portion: Portion) -> bool:
        """Whether every device gives the same; an amount of several devices says their number itself."""
        return self.of.get(kind, Hint()).allocate_strategy == FOR_ALL and portion.count == 1

    def labels(self, kind: str) -> tuple[Expression, ...]:
        """Lines that must hold of a device's labels."""
        return _lines(self.of.get(kind, Hint()).selector) or ()

    def function(self, kind: str) -> tuple[Expression, ...] | None:
        """Lines that must hold of a virtual function; None if none is wanted.  An empty selector wants any."""
        return _lines(self.of.get(kind, Hint()).vf_selector)

    def scope(self) -> str:
        """The scope within which all GPUs must lie; empty for none.  One card is always within one `Device`."""
        wanted = self.of.get(GPU, Hint()).required_topology_scope
        return "" if wanted == "Device" else wanted

    def beside(self, kind: str, portions: Mapping[str, Portion]) -> tuple[str, bool]:
        """The kind beside whose devices this one's should lie, empty for none; and whether they must.

        Kinds that the pod does not ask for, or has everywhere, do not count.  GPUs are never put beside others.
        """
        kinds = [
            each
            for each in self.joint.device_types or ()
            if each in portions and not self.everywhere(each, portions[each])
        ]
        if kind == GPU or kind not in kinds[1:]:
            return "", False
        return kinds[0], self.joint.required_scope == SAME_PCIE


def hints(annotations: Mapping[str, str], portions: Mapping[str, Portion]) -> Hints:
    """The hints of a pod that asks for these portions.  Raises Refusal if they cannot be kept."""
    for key in (RESERVATION, NUMA):
        if key in annotations:
            _decoded(annotations, key, dict[str, Any])
            raise Refusal(_field(key), annotations[key], f"{key} is not supported yet: remove the annotation")
    if not annotations.keys() & {HINT, JOINT, PARTITION}:
        return _NONE
    given = _decoded(annotations, HINT, dict[str, Hint | None]) if HINT in annotations else {}
    of = {kind: hint for kind, hint in given.items() if hint is not None}
    for kind, hint in of.items():
        _check(kind, hint, annotations[HINT])
    if of.get(GPU, Hint()).required_topology_scope == "Device" and GPU in portions and portions[GPU].count > 1:
        text = f"{portions[GPU].count} cards cannot lie within one Device: use PCIe, NUMANode or Node"
        raise Refusal(_field(HINT), "Device", text)
    joint = _joint(annotations) if JOINT in annotations else Joint()
    return Hints(of, joint, _partition(annotations, portions.get(GPU)) if PARTITION in annotations else None)


_NONE = Hints()


def _check(kind: str, hint: Hint, text: str) -> None:
    """Refuse what cannot be kept for this kind of device."""
    if kind not in KINDS:
        raise Refusal(_field(HINT), kind, f"{kind!r} in {HINT} is no kind of device: use {', '.join(KINDS)}")
    for name, selector in (("selector", hint.selector), ("vfSelector", hint.vf_selector)):
        for line in _lines(selector) or ():
            _check_line(kind, name, line)
    scope, strategy, policy = hint.required_topology_scope, hint.allocate_strategy, hint.exclusive_policy
    if scope and scope not in SCOPES:
        raise Refusal(_field(HINT), scope, f"{SCOPE} is {scope!r}: use {', '.join(SCOPES)}")
    if strategy and strategy not in (FOR_ALL, AS_COUNT):
        raise Refusal(_field(HINT), strategy, f"allocateStrategy is {strategy!r}: use {FOR_ALL} or {AS_COUNT}")
    if policy and policy not in (DEVICE_LEVEL, "PCIeLevel"):
        raise Refusal(_field(HINT), policy, f"exclusivePolicy is {policy!r}: use {DEVICE_LEVEL}")
    unkept = {
        "vfSelector": kind == GPU and hint.vf_selector is not None,
        "allocateStrategy": kind == GPU and strategy != "",
        "exclusivePolicy": policy != "" and (policy != DEVICE_LEVEL or strategy != AS_COUNT),
        SCOPE: kind != GPU and scope != "",
    }
    for name in (name for name, broken in unkept.items() if broken):
        raise Refusal(_field(HINT), text, f"{kind}.{name} in {HINT} is not supported yet: {_REMEDIES[name]}")


_REMEDIES = {
    "vfSelector": "only rdma and fpga have virtual functions",
    "allocateStrategy": "only rdma and fpga have one",
    "exclusivePolicy": f"only {DEVICE_LEVEL} of rdma or fpga with {AS_COUNT} is",
    SCOPE: f"only {GPU}.{SCOPE} is",
}


def _check_line(kind: str, name: str, line: Expression) -> None:
    valued = line.operator in ("In", "NotIn")
    if not valued and line.operator not in ("Exists", "DoesNotExist"):
        error = f"{line.operator!r} is not a valid label selector operator: use In, NotIn, Exists or DoesNotExist"
    elif valued != bool(line.values):
        error = f"{line.operator} of {line.key} {'needs values' if valued else 'takes no values'}"
    else:
        return
    raise Refusal(_field(HINT), line.key, f"invalid Selector of DeviceHint, deviceType: {kind}, err: {name}: {error}")


def _lines(selector: Selector | None) -> tuple[Expression, ...] | None:
    if selector is None:
        return None
    equal = (
        Expression(key=key, operator="In", values=(value,))
        for key, value in sorted((selector.match_labels or {}).items())
    )
    return (*equal, *(selector.match_expressions or ()))


def _joint(annotations: Mapping[str, str]) -> Joint:
    joint = _decoded(annotations, JOINT, Joint)
    if joint.required_scope not in ("", SAME_PCIE):
        text = f"requiredScope is {joint.required_scope!r}: use {SAME_PCIE}, or leave it out"
        raise Refusal(_field(JOINT), joint.required_scope, text)
    kinds = joint.device_types or []
    if joint.required_scope and GPU in kinds[1:]:
        text = f"{SAME_PCIE} beside {kinds[0]} would change the number of GPUs: put gpu first in deviceTypes"
        raise Refusal(_field(JOINT), annotations[JOINT], text)
    return joint


def _partition(annotations: Mapping[str, str], portion: Portion | None) -> Partitioning:
    spec = _decoded(annotations, PARTITION, PartitionSpec)
    if spec.allocate_policy not in ("", BEST_EFFORT, RESTRICTED):
        text = f"allocatePolicy is {spec.allocate_policy!r}: use {RESTRICTED} or {BEST_EFFORT}"
        raise Refusal(_field(PARTITION), spec.allocate_policy, text)
    if portion is None or portion.shared:
        text = f"{PARTITION} is for whole GPUs: remove it, or ask for whole cards"
        raise Refusal(_field(PARTITION), annotations[PARTITION], text)
    try:
        bandwidth = Quantity.parse(spec.ring_bus_bandwidth or 0).ceil()
    except QuantityError as error:
        text = f"invalid {_ERRORS[PARTITION]} annotation, err: ringBusBandwidth: {error}"
        raise Refusal(_field(PARTITION), annotations[PARTITION], text) from None
    return Partitioning(required=True, restricted=spec.allocate_policy == RESTRICTED, bandwidth=bandwidth)


def _decoded(annotations: Mapping[str, str], key: str, type: type[T]) -> T:
    try:
        return annotation.decode(annotations[key], type)
    except ValueError as error:
        raise Refusal(_field(key), annotations[key], f"invalid {_ERRORS[key]} annotation, err: {error}") from None


def _field(key: str) -> str:
    return f"metadata.annotations[{key}]"
