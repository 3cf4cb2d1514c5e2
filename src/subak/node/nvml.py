"""The NVIDIA cards of this computer, as the driver's management library (NVML) tells them.

Nothing here is needed to run without a card: where the driver or its library is missing, there is no machine, and a
sentence says why.  A card in MIG mode is the instances that its administrator cut: each of them is a card of its own.
Of more cards than libsubak counts on, the others are left out: no limit would hold there.

Two cards are scored as HAMi's plugin does: what the way over PCIe is worth, and 100 for each NVLink between them.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.dialects.koordinator_names import DRIVER
from subak.dialects.nvidia import FAMILY, WORD
from subak.model.device import MOST_CARD_BYTES, Device
from subak.node import library, regions
from subak.node.machine import Machine

PROFILE = "this-machine"

CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Device nodes that programs open whatever card they use."""

WAYS = {0: 60, 10: 50, 20: 40, 30: 30, 40: 20, 50: 10}
"""What the way between two cards is worth, by NVML's level of their common ancestor: from one board to two sockets."""

LINK, MOST_LINKS = 100, 18

_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Found:
    """This computer with its cards, None if it has none; `notes` say why, or what was left out.

    `driver`: whether there is one.  Most computers have neither, and then nobody misses the cards.
    """

    machine: Machine | None
    notes: tuple[str, ...] = ()
    driver: bool = True


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or a MIG instance of one, with the handle by which NVML knows the whole card."""

    handle: Any
    device: Device
    bus: str
    files: tuple[str, ...]


def find(interpreter: Interpreter, nvml: Any = None, root: Path = Path("/")) -> Found:
    """This computer and its cards.  `nvml` are the functions of `pynvml`, `root` is where /dev, /proc and /sys are."""
    if nvml is None:
        nvml = importlib.import_module("pynvml")  # slow to load, and needed by nobody else
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        there = not isinstance(error, nvml.NVMLError_LibraryNotFound)
        return Found(None, (f"no NVIDIA cards are used: {error}",), driver=there)
    try:
        return _Finder(nvml, root).found(interpreter)
    except nvml.NVMLError as error:
        return Found(None, (f"no NVIDIA cards are used, because the driver failed: {error}",))
    finally:
        nvml.nvmlShutdown()


def obstacles(machine: Machine) -> list[str]:
    """What keeps containers from the cards of this computer.

    The driver makes the device node for unified memory for the first program that uses CUDA: after a boot there may
    have been none, and no container can make it.
    """
    files, notes = {path for each in machine.device_files.values() for path in each}, []
    if "/dev/nvidiactl" in files and "/dev/nvidia-uvm" not in files:
        notes.append(
            "real cards: /dev/nvidia-uvm is not there, so CUDA will not start in containers: "
            "run `nvidia-modprobe -u -c 0`, and then start subak up again"
        )
    try:
        library.find()
    except library.NoLibrary as error:
        notes.append(f"real cards: containers with a part of a card do not start, as no limit would hold: {error}")
    return notes


class _Finder:
    def __init__(self, nvml: Any, root: Path) -> None:
        self._nvml = nvml
        self._root = root
        self._notes: list[str] = []

    def found(self, interpreter: Interpreter) -> Found:
        cards = [card for index in range(self._nvml.nvmlDeviceGetCount()) for card in self._cards(index)]
        if not cards:
            return Found(None, (*self._notes, "no NVIDIA cards are used: the driver knows none"))
        if len(cards) > regions.CARDS:
            self._notes.append(f"the first {regions.CARDS} of {len(cards)} cards are used: no limit would hold on more")
            cards = cards[: regions.CARDS]
        speaks = interpreter.describing(FAMILY, "", "")
        shares = min(speaks, key=lambda each: each.agent.source).agent.shares
        links = self._links(cards)
        devices = tuple(
            msgspec.structs.replace(card.device, index=index, slots=shares, links=links[index])
            for index, card in enumerate(cards)
        )
        machine = Machine(
            _host_name(),
            PROFILE,
            devices,
            speaks,
            cpu=str(len(os.sched_getaffinity(0))),
            memory=f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 1024}Ki",
            storage=f"{shutil.disk_usage('/').total // 1024}Ki",
            labels={DRIVER: self._nvml.nvmlSystemGetDriverVersion()},
            device_files={device.id: card.files for device, card in zip(devices, cards, strict=True)},
        )
        return Found(machine, tuple(self._notes))

    def _cards(self, index: int) -> Iterator[Card]:
        """The card with this NVML index, or its MIG instances."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            whole = self._whole(handle)
        except (nvml.NVMLError, ValueError) as error:
            self._notes.append(f"card {index} is left out: {error}")
            return
        if self._asked(lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0) != nvml.NVML_DEVICE_MIG_ENABLE:
            yield whole
            return
        instances = list(self._instances(whole))
        if not instances:
            self._notes.append(f"card {whole.device.id} is left out: it is in MIG mode, and no instances are cut")
        yield from instances

    def _instances(self, whole: Card) -> Iterator[Card]:
        """The instances of a card in MIG mode."""
        nvml = self._nvml
        for position in range(self._asked(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(whole.handle), 0)):
            try:
                yield self._instance(whole, nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole.handle, position))
            except nvml.NVMLError_NotFound:
                continue
            except (nvml.NVMLError, ValueError) as error:
                self._notes.append(f"instance {position} of card {whole.device.id} is left out: {error}")

    def _whole(self, handle: Any) -> Card:
        """A card.  Raises NVMLError if the driver has lost it."""
        nvml = self._nvml
        bus = _bus(nvml.nvmlDeviceGetPciInfo(handle).busId)
        minor = self._asked(lambda: nvml.nvmlDeviceGetMinorNumber(handle), None)
        failed_rows = self._asked(lambda: nvml.nvmlDeviceGetRemappedRows(handle)[3], 0)
        numa, pcie = self._topology(bus)
        device = Device(
            id=nvml.nvmlDeviceGetUUID(handle),
            index=0,
            family=FAMILY,
            model=_model(nvml.nvmlDeviceGetName(handle)),
            memory_bytes=_size(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            minor=minor,
            numa=numa,
            pcie=pcie,
            mode="hami-core",
            healthy=not failed_rows,
        )
        return Card(handle, device, bus, self._files(minor))

    def _instance(self, whole: Card, handle: Any) -> Card:
        """A MIG instance: its own memory and UUID, and the right to use it, which is a device node too."""
        nvml = self._nvml
        slices = nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)
        device = msgspec.structs.replace(
            whole.device,
            id=nvml.nvmlDeviceGetUUID(handle),
            model=_model(nvml.nvmlDeviceGetName(handle)),
            memory_bytes=_size(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        )
        return replace(whole, device=device, files=(*whole.files, *self._rights(whole.device.minor, *slices)))

    def _asked(self, question: Any, otherwise: Any) -> Any:
        """What the driver answers to something that not every card has."""
        try:
            return question()
        except self._nvml.NVMLError:
            return otherwise

    def _files(self, minor: int | None) -> tuple[str, ...]:
        names = (*(() if minor is None else (f"nvidia{minor}",)), *CONTROL)
        return tuple(f"/dev/{name}" for name in names if (self._root / "dev" / name).exists())

    def _rights(self, minor: int | None, gpu_instance: int, compute_instance: int) -> Iterator[str]:
        folder = self._root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"
        for access in (folder / "access", folder / f"ci{compute_instance}" / "access"):
            if access.exists():
                number = re.search(r"DeviceFileMinor:\s*(\d+)", access.read_text())
                if number:
                    yield f"/dev/nvidia-caps/nvidia-cap{number[1]}"

    def _topology(self, bus: str) -> tuple[int, str]:
        """NUMA node and PCIe root of a card, from sysfs as Koordinator's agent reads them."""
        place = self._root / "sys/bus/pci/devices" / bus
        try:
            numa = max(int((place / "numa_node").read_text()), 0)
        except (OSError, ValueError):
            numa = 0
        roots = [part for part in os.path.realpath(place).split("/") if _ROOT.fullmatch(part)]
        return numa, roots[0] if roots else ""

    def _links(self, cards: Sequence[Card]) -> list[Mapping[str, int]]:
        """What each card's connections to the others are worth; MIG instances have none."""
        neighbours = [self._neighbours(card.handle) for card in cards]
        links: list[dict[str, int]] = [{} for _ in cards]
        for one, a in enumerate(cards):
            for other, b in enumerate(cards[:one]):
                if a.bus == b.bus:
                    continue
                score = self._pair(a, b, neighbours[one], neighbours[other])
                links[one][b.device.id] = links[other][a.device.id] = score
        return list(links)

    def _pair(self, a: Card, b: Card, from_a: Counter[str], from_b: Counter[str]) -> int:
        there, back = from_a[b.bus], from_b[a.bus]
        if there != back:
            self._notes.append(f"cards {a.device.id} and {b.device.id} see {there} and {back} NVLinks to each other")
            return 0
        level = self._asked(lambda: self._nvml.nvmlDeviceGetTopologyCommonAncestor(a.handle, b.handle), 50)
        return WAYS.get(level, 10) + LINK * min(there + min(from_a[""], from_b[""]), MOST_LINKS)

    def _neighbours(self, handle: Any) -> Counter[str]:
        """How many NVLinks lead to each bus address; those to a switch reach everybody and count under no address."""
        nvml = self._nvml
        found: Counter[str] = Counter()
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            if not self._asked(lambda at=link: nvml.nvmlDeviceGetNvLinkState(handle, at), 0):
                continue
            kind = self._asked(lambda at=link: nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, at), 0)
            if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                found[""] += 1
                continue
            remote = self._asked(lambda at=link: nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, at).busId, "")
            if remote:
                found[_bus(remote)] += 1
        return found


def _bus(text: str | bytes) -> str:
    """A bus address as sysfs has it: NVML writes the domain with eight digits, in upper case."""
    plain = text.decode() if isinstance(text, bytes) else text
    domain, _, rest = plain.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _model(name: str) -> str:
    """A model as HAMi's plugin writes it; ':' and ',' would end a field of Volcano's register."""
    plain = re.sub(r"[,:;]", " ", name)
    return plain if plain.startswith(WORD) else f"{WORD}-{plain}"


def _size(memory: int) -> int:
    if not 0 < memory <= MOST_CARD_BYTES:
        raise ValueError(f"its memory of {memory:,} bytes cannot be true")
    return memory


def _host_name() -> str:
    """The computer's name as a node may have it."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower())[:63].strip("-.")
    return name or "localhost"
