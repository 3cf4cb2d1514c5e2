"""What a Koordinator pod asks for: the sum over its containers, a legal combination of names, equal portions of cards.

Koordinator knows no containers: it takes the requests of the pod as a whole, by the rule that Kubernetes itself uses
for a pod (what runs together is added, what runs one after the other is not), separately for each kind of device.

    containers ── parts ──> amounts each ── peak ──> amounts of the pod ── check ── split ──> count x portion

Only seventeen sets of names mean something.  The texts of errors are Koordinator's, and what would be right follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from subak.dialects.amounts import whole
from subak.dialects.koordinator_names import (
    AMD_GPU,
    CORE,
    DCU_GPU,
    EXTRAS,
    FPGA_UNIT,
    GPU_FAMILIES,
    MEMORY,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    RATIO,
    RDMA_UNIT,
    SHARED,
    UNIT,
    VENDORS,
    canonical,
    kind,
)
from subak.model import manifest
from subak.model.device import FPGA, FULL_CORES, GPU, RDMA
from subak.model.manifest import Amounts, Role
from subak.model.reason import Refusal
from tinykube.quantity import Quantity

KINDS = (GPU, RDMA, FPGA)
"""The order of claims, and of grants read back."""

_COUNTED = {MEMORY: "bytes", SHARED: "cards", NPU_CORE: "cores", NPU_CPU: "CPUs", **dict.fromkeys(VENDORS, "cards")}


@dataclass(frozen=True, slots=True)
class Portion:
    """`count` devices of one of `families` for the containers at these positions, each giving the same.

    Memory is `ratio` percent of a card or an amount in bytes, never both.
    """

    families: frozenset[str]
    containers: tuple[int, ...]
    count: int
    cores: int = 0
    ratio: int = 0
    memory_bytes: int = 0
    extras: tuple[tuple[str, int], ...] = ()

    @property
    def shared(self) -> bool:
        """Whether others may hold a part of the same card; an amount in bytes always leaves that open."""
        return self.ratio < 100

    @property
    def whole(self) -> bool:
        """Whether all of each card is meant."""
        return self.ratio == 100 and self.cores == FULL_CORES


def parts(pod: manifest.Pod) -> list[Counter[str]]:
    """The amounts of each container by their current names; a zero stays, since it was written."""
    return [
        _amounts(each.requests, f"{field}.resources.requests")
        for each, field in zip(pod.containers, pod.fields, strict=True)
    ]


def _amounts(requests: Amounts, field: str) -> Counter[str]:
    amounts: Counter[str] = Counter()
    for name, text in requests.items():
        current = canonical(name)
        if current is None:
            continue
        if current in amounts:
            raise Refusal(f"{field}[{name}]", text, f"{name} is another name of {current}: give only one of them")
        amounts[current] = whole(requests, name, field, _COUNTED.get(current, "percent")) or 0
    return amounts


def peak(pod: manifest.Pod, parts: Sequence[Counter[str]]) -> Counter[str]:
    """The most that the pod holds at any time, as Kubernetes counts it; what comes to zero is left out."""
    together, early, sidecars = Counter[str](), Counter[str](), Counter[str]()
    for part, role in zip(parts, pod.roles, strict=True):
        match role:
            case Role.INIT:
                early |= sidecars + part
            case Role.SIDECAR:
                sidecars += part
                early |= sidecars
            case Role.APP:
                together += part
    return ((together + sidecars) | early) + _amounts(pod.spec.overhead or {}, "spec.overhead")


def portions(pod: manifest.Pod, parts: Sequence[Counter[str]]) -> dict[str, Portion]:
    """What the pod asks for, by kind of device.  Raises Refusal if the names or amounts make no sense together."""
    amounts = peak(pod, parts)
    found: dict[str, Portion] = {}
    for device in KINDS:
        mine = {name: amount for name, amount in amounts.items() if kind(name) == device}
        if mine:
            positions = asking(parts, device)
            field = _field(pod, positions)
            check(mine, field)
            found[device] = _split(mine, positions, field)
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """What a bound pod asks for, by kind of device: the containers that do, and the portion, if that makes sense."""

    containers: Mapping[str, tuple[int, ...]]
    portions: Mapping[str, Portion]

    @classmethod
    def by(cls, pod: manifest.Pod) -> Asked:
        """By what the pod says."""
        amounts = parts(pod)
        try:
            found = portions(pod, amounts)
        except Refusal:
            found = {}
        return cls({kind: asking(amounts, kind) for kind in KINDS}, found)


def asking(parts: Sequence[Counter[str]], device: str) -> tuple[int, ...]:
    """The containers that ask for this kind; all of them if none does, as Koordinator serves them all."""
    positions = tuple(
        i for i, part in enumerate(parts) if any(amount and kind(name) == device for name, amount in part.items())
    )
    return positions or tuple(range(len(parts)))


def _field(pod: manifest.Pod, positions: Sequence[int]) -> str:
    where = pod.fields[positions[0]] if len(positions) == 1 else "spec.containers[*]"
    return f"{where}.resources.requests"


def _anything(amounts: Mapping[str, int]) -> bool:
    return True


def _units(amounts: Mapping[str, int]) -> bool:
    return all(amount <= 100 or amount % 100 == 0 for amount in amounts.values())


def _percents(amounts: Mapping[str, int]) -> bool:
    return _units({name: amounts[name] for name in (CORE, RATIO) if name in amounts})


def _shares(amounts: Mapping[str, int]) -> bool:
    cards = amounts[SHARED]
    given = [amounts[name] for name in (CORE, RATIO) if name in amounts]
    return all(amount % cards == 0 and amount // cards <= 100 for amount in given)


def _ascend(amounts: Mapping[str, int]) -> bool:
    return amounts[SHARED] <= 1 and amounts.get(NPU_DVPP, 0) <= 100


_COMBINATIONS: dict[frozenset[str], Callable[[Mapping[str, int]], bool]] = {
    frozenset({NVIDIA_GPU}): _anything,
    frozenset({AMD_GPU}): _anything,
    frozenset({DCU_GPU}): _anything,
    frozenset({UNIT}): _units,
    frozenset({MEMORY}): _anything,
    frozenset({RATIO}): _percents,
    frozenset({CORE, MEMORY}): _percents,
    frozenset({CORE, RATIO}): _percents,
    frozenset({NPU_CORE, RATIO}): _percents,
    frozenset({SHARED, MEMORY}): _anything,
    frozenset({SHARED, RATIO}): _shares,
    frozenset({SHARED, CORE, MEMORY}): _shares,
    frozenset({SHARED, CORE, RATIO}): _shares,
    frozenset({SHARED, NPU_CORE, NPU_CPU, MEMORY}): _ascend,
    frozenset({SHARED, NPU_CORE, NPU_CPU, NPU_DVPP, MEMORY}): _ascend,
    frozenset({RDMA_UNIT}): _units,
    frozenset({FPGA_UNIT}): _units,
}


def check(amounts: Mapping[str, int], field: str) -> None:
    """Refuse amounts of one kind of device that mean nothing together."""
    if not amounts:
        raise Refusal(field, None, "pod request should not be empty")
    written = ", ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))
    rule = _COMBINATIONS.get(frozenset(amounts))
    if rule is not None and rule(amounts):
        return
    if rule is _units:
        name, amount = next(iter(amounts.items()))
        text = f"invalid resource unit {name}: {Quantity.of(amount)}; 100 is one device: above it, give 200, 300, ..."
        raise Refusal(field, amount, text)
    names = " ".join(sorted(amounts))
    raise Refusal(field, written, f"invalid resource device requests: [{names}]; {_remedy(amounts, rule)}")


def _remedy(amounts: Mapping[str, int], rule: Callable[[Mapping[str, int]], bool] | None) -> str:
    if rule is _percents:
        return "percentages above 100 must be multiples of 100"
    if rule is _shares:
        return f"gpu-core and gpu-memory-ratio must divide by gpu.shared ({amounts[SHARED]}) into at most 100 per card"
    if rule is _ascend:
        return "a part of an Ascend card needs gpu.shared 1 and npu-dvpp of at most 100"
    names = amounts.keys()
    unknown = sorted(name for name in names if not any(name in each for each in _COMBINATIONS))
    if unknown:
        return f"there is no {' or '.join(unknown)}"
    if names & VENDORS.keys():
        return "whole cards under a vendor's name cannot be combined with anything else in one pod"
    if UNIT in names:
        return f"{UNIT} stands for cores and memory already: give it alone"
    if any(name.startswith("huawei.com/") for name in names):
        return "give npu-core with gpu-memory-ratio, or gpu.shared 1 with npu-core, npu-cpu and gpu-memory"
    if MEMORY in names and RATIO in names:
        return "give gpu-memory or gpu-memory-ratio, not both, in all containers alike"
    return "give gpu-memory or gpu-memory-ratio beside it"


def _split(amounts: Mapping[str, int], positions: tuple[int, ...], field: str) -> Portion:
    """The portion of each card."""
    for name, family in VENDORS.items():
        if name in amounts:
            return Portion(frozenset({family}), positions, amounts[name], FULL_CORES, 100)
    for name in (RDMA_UNIT, FPGA_UNIT):
        if name in amounts:
            count = _cards(amounts[name])
            return Portion(frozenset({kind(name)}), positions, count, amounts[name] // count)
    if UNIT in amounts:
        amounts = {CORE: amounts[UNIT], RATIO: amounts[UNIT]}
    count = amounts.get(SHARED) or _cards(amounts.get(RATIO, 0))
    memory = amounts.get(MEMORY, 0)
    if MEMORY in amounts and memory < count:
        raise Refusal(field, memory, f"{MEMORY} counts bytes: {memory} over {count} cards leave none for each")
    return Portion(
        _families(amounts),
        positions,
        count,
        amounts.get(CORE, amounts.get(NPU_CORE, 0)) // count,
        amounts.get(RATIO, 0) // count,
        memory // count,
        tuple((name, amounts[name] // count) for name in EXTRAS if name in amounts),
    )


def _cards(percent: int) -> int:
    """How many devices a percentage stands for."""
    return percent // 100 if percent > 100 and percent % 100 == 0 else 1


def _families(amounts: Mapping[str, int]) -> frozenset[str]:
    if NPU_CORE in amounts:
        return frozenset({"huawei"})
    # An Ascend card counts its cores by the piece, so that a percentage of cores says nothing about it.
    return GPU_FAMILIES - {"huawei"} if CORE in amounts else GPU_FAMILIES
