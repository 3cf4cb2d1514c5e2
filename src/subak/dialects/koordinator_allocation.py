"""Koordinator's record of who holds what: the annotation `device-allocated`.

    {"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"11520Mi",
    "koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-..."}]}

One list per kind of device, one entry per card, the same for all containers of the pod.  Memory and ratio are both
written, whichever was asked for.  Older records have no `id`; some writers give numbers instead of texts.  Where a
record tells neither memory nor ratio of a GPU, the pod's request does, else the pod counts for the whole card: a limit
of 0 would be none, and memory that is not booked would be promised again.  `extension`
names virtual functions (`{"vfs":[{"minor":1,"busID":"0000:51:00.3"}]}`) and the template of an Ascend card.
"""

from __future__ import annotations

import msgspec

from subak.dialects import annotation
from subak.dialects.koordinator_device import minor, resources, uuid, written
from subak.dialects.koordinator_names import CORE, EXTRAS, FPGA_UNIT, MEMORY, NPU_CORE, RATIO, RDMA_UNIT, canonical
from subak.dialects.koordinator_request import Portion
from subak.model.device import GPU, Device
from subak.model.manifest import Amounts
from subak.model.node import Node
from subak.model.placement import Function, Share
from tinykube.quantity import Quantity

_CORES = (CORE, NPU_CORE, RDMA_UNIT, FPGA_UNIT)
"""The names under which a card of one kind or another counts its cores."""


class Vf(msgspec.Struct, omit_defaults=True, rename={"bus": "busID"}):
    """A virtual function in the annotation."""

    minor: int = 0
    bus: str = ""


class Extension(msgspec.Struct, omit_defaults=True):
    """What only some devices have."""

    vfs: list[Vf] | None = None
    template: str = msgspec.field(default="", name="gpuSharedResourceTemplate")


class Entry(msgspec.Struct, omit_defaults=True):
    """A card in the annotation; the fields are in the order in which Koordinator writes them."""

    minor: int
    resources: Amounts | None = None
    id: str = ""
    extension: Extension | None = None


def encode(held: dict[str, list[Entry]]) -> str:
    """The annotation, kinds in alphabetical order."""
    return annotation.encode(dict(sorted(held.items())))


def decode(text: str) -> dict[str, list[Entry]]:
    """The entries by kind.  Raises ValueError if the text is malformed."""
    return {kind: held or [] for kind, held in annotation.decode(text, dict[str, list[Entry] | None]).items()}


def entry(share: Share, ratio: int, device: Device, node: Node) -> Entry:
    """The record of one share; `ratio` is what was asked for, 0 if memory was."""
    amounts = {name: share.cores for name in resources(device) if name in _CORES and share.cores}
    if device.kind == GPU:
        amounts |= {MEMORY: share.memory_bytes, RATIO: ratio or _ratio(share, device), **dict(share.extras)}
    extension = None
    if share.functions or share.template:
        extension = Extension([Vf(each.minor, each.bus) for each in share.functions] or None, share.template)
    # Cards of two vendors may have the same number.  Where no UUID tells them apart, our own id must.
    id = uuid(device, node.name) or ("" if len(_numbered(minor(device), device.kind, node)) == 1 else device.id)
    return Entry(minor(device), {**written(amounts)}, id, extension)


def _ratio(share: Share, device: Device) -> int:
    # Koordinator computes in floating point, so that 29 of 100 GiB are 28 percent.  It reads this number back.
    return int(share.memory_bytes / device.memory_bytes * 100) if device.memory_bytes else 0


def share(entry: Entry, kind: str, node: Node, asked: Portion | None = None) -> Share:
    """The share that an entry records; `asked` is what the pod asks for.  Raises ValueError at unreadable amounts."""
    amounts: dict[str, int] = {}
    for name, text in (entry.resources or {}).items():
        amounts[canonical(name) or name] = amount = Quantity.parse(text).ceil()
        if amount < 0:
            raise ValueError(f"{name} of {kind} {entry.minor} is {text}: it must not be negative")
    device = _device(entry, kind, node)
    extension = entry.extension or Extension()
    return Share(
        id=device.id if device is not None else entry.id or f"{node.name}-{kind}-{entry.minor}",
        index=device.index if device is not None else entry.minor,
        memory_bytes=amounts.get(MEMORY) or _filled(amounts.get(RATIO, 0), device, asked),
        cores=next((amounts[name] for name in _CORES if name in amounts), 0),
        extras=tuple((name, amounts[name]) for name in EXTRAS if name in amounts),
        functions=tuple(Function(each.bus, each.minor) for each in extension.vfs or ()),
        template=extension.template,
    )


def _filled(ratio: int, device: Device | None, asked: Portion | None) -> int:
    """Bytes of a share whose record does not tell them."""
    if device is None:
        return 0
    if not ratio and asked is not None and asked.memory_bytes:
        return asked.memory_bytes
    return device.memory_bytes * (ratio or (asked and asked.ratio) or 100) // 100


def _device(entry: Entry, kind: str, node: Node) -> Device | None:
    """The card by its id, else by its number; but a card of another id with that number is another card.

    None, too, if cards of two vendors have the number: it could be either.
    """
    device = node.device(entry.id) if entry.id else None
    if device is not None:
        return device
    numbered = [each for each in _numbered(entry.minor, kind, node) if not entry.id or not uuid(each, node.name)]
    return numbered[0] if len(numbered) == 1 else None


def _numbered(number: int, kind: str, node: Node) -> list[Device]:
    return [each for each in node.devices if each.kind == kind and minor(each) == number]
