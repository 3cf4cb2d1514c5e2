"""The NVIDIA driver on a node."""
# ruff: noqa: N802

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from subak.doctor import Level
from subak.doctor.node import driver
from tests.doctor.node.host import Host
from tests.support.nvml import Driver, Gpu, NVMLError, NVMLError_LibraryNotFound


class Mismatch(NVMLError):
    pass


@dataclass
class Nvml(Driver):
    """With what only the doctor asks."""

    NVMLError_LibRmVersionMismatch: type[Exception] = field(default=Mismatch)
    persistent: bool = True

    def nvmlDeviceGetPersistenceMode(self, gpu: Gpu) -> int:
        return int(self.persistent)


def plugged(tmp_path: Path, cards: int, nvml: Nvml) -> Host:
    """A computer with so many cards, a sound card of the same vendor, and somebody else's card."""
    host = Host(tmp_path, nvml)
    for number in range(cards):
        _device(host, f"0000:0{number}:00.0", "0x10de", "0x030200")
    _device(host, "0000:00:00.1", "0x10de", "0x040300")
    _device(host, "0000:09:00.0", "0x1002", "0x030000")
    return host


def _device(host: Host, bus: str, vendor: str, kind: str) -> None:
    host.write(f"/sys/bus/pci/devices/{bus}/vendor", f"{vendor}\n")
    host.write(f"/sys/bus/pci/devices/{bus}/class", f"{kind}\n")


GPUS = (Gpu("GPU-a", "0000:00:00.0"), Gpu("GPU-b", "0000:01:00.0"))
NONE = NVMLError_LibraryNotFound("NVML Shared Library Not Found")


@pytest.mark.parametrize(
    ("cards", "nvml", "level", "words"),
    [
        (2, Nvml(GPUS), Level.OK, "driver 580.95.05, 2 cards"),
        (3, Nvml(GPUS), Level.FAILED, "knows 2 of 3 cards"),
        (0, Nvml((), missing=NONE), Level.OK, "no NVIDIA card"),
        (1, Nvml((), missing=NONE), Level.FAILED, "libnvidia-ml.so.1 is not found"),
        (1, Nvml((), missing=Mismatch("Driver/library version mismatch")), Level.FAILED, "different versions"),
        (1, Nvml((), missing=NVMLError("Unknown Error")), Level.FAILED, "does not answer: Unknown Error"),
    ],
)
async def test_what_the_driver_answers(tmp_path: Path, cards: int, nvml: Nvml, level: Level, words: str) -> None:
    (finding,) = await driver.answers(plugged(tmp_path, cards, nvml).computer)
    assert finding.level is level
    assert words in finding.seen
    assert nvml.open == 0


async def test_device_nodes(tmp_path: Path) -> None:
    host = plugged(tmp_path, 1, Nvml(GPUS))
    (finding,) = await driver.device_nodes(host.computer)
    assert "/dev/nvidiactl is not there" in finding.seen
    host.write("/dev/nvidiactl")
    (finding,) = await driver.device_nodes(host.computer)
    assert (finding.level, "nvidia-modprobe -u -c 0" in finding.remedy) == (Level.FAILED, True)
    host.write("/dev/nvidia-uvm")
    assert [each.level for each in await driver.device_nodes(host.computer)] == [Level.FAILED]
    host.write("/dev/nvidia0")
    assert [each.seen for each in await driver.device_nodes(host.computer)] == ["nvidia0"]


async def test_a_computer_without_cards_needs_no_device_nodes(tmp_path: Path) -> None:
    host = plugged(tmp_path, 0, Nvml(()))
    assert await driver.device_nodes(host.computer) == []
    assert await driver.persistence(host.computer) == []


@pytest.mark.parametrize(("on", "level"), [(True, Level.OK), (False, Level.WARNING)])
async def test_persistence(tmp_path: Path, on: bool, level: Level) -> None:
    (finding,) = await driver.persistence(plugged(tmp_path, 2, Nvml(GPUS, persistent=on)).computer)
    assert finding.level is level
