"""The NVIDIA driver: whether it answers, and whether containers will find its device nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subak.doctor import Finding, failed, listed, ok, unknown, warning
from subak.doctor.node import Computer
from tinykube.aside import aside

VENDOR, DISPLAY = "0x10de", "0x03"
CONTROL, UNIFIED = "/dev/nvidiactl", "/dev/nvidia-uvm"
INSTALL = "install NVIDIA's driver, or find out why it does not load: dmesg | grep -i nvrm"


def cards(computer: Computer) -> list[str]:
    """The bus addresses of NVIDIA's cards, whether they have a driver or not."""
    return [
        folder.name
        for folder in sorted(computer.at("/sys/bus/pci/devices").glob("*"))
        if _word(folder / "vendor") == VENDOR and _word(folder / "class").startswith(DISPLAY)
    ]


async def answers(computer: Computer) -> Sequence[Finding]:
    """Whether the driver's management library loads, and knows all cards.  A broken driver may never answer."""
    plugged = cards(computer)
    nvml = await aside(lambda: computer.nvml(computer.root))
    try:
        version, known = await aside(lambda: _asked(nvml))
    except nvml.NVMLError as error:
        if not plugged and isinstance(error, nvml.NVMLError_LibraryNotFound):
            return [ok("this computer has no NVIDIA card")]
        return [_broken(nvml, error, len(plugged))]
    if known < len(plugged):
        seen = f"driver {version} knows {known} of {len(plugged)} cards"
        return [failed(seen, "see dmesg | grep -i nvrm: a card may have fallen off the bus, or be given to a machine")]
    return [ok(f"driver {version}, {known} cards")]


def _broken(nvml: Any, error: Exception, plugged: int) -> Finding:
    if isinstance(error, nvml.NVMLError_LibRmVersionMismatch):
        remedy = "the driver was updated under running programs: reboot, or unload and load its kernel modules"
        return failed(f"its library and its kernel module are of different versions: {error}", remedy)
    if isinstance(error, nvml.NVMLError_LibraryNotFound):
        return failed(f"{plugged} NVIDIA cards, and libnvidia-ml.so.1 is not found", INSTALL)
    return failed(f"the driver does not answer: {error}", INSTALL)


def _asked(nvml: Any) -> tuple[str, int]:
    nvml.nvmlInit()
    try:
        return str(nvml.nvmlSystemGetDriverVersion()), int(nvml.nvmlDeviceGetCount())
    finally:
        nvml.nvmlShutdown()


async def device_nodes(computer: Computer) -> Sequence[Finding]:
    """Whether the device nodes are there that containers get."""
    if not cards(computer):
        return []
    if not computer.at(CONTROL).exists():
        return [failed(f"{CONTROL} is not there", "load the driver: nvidia-smi, or nvidia-modprobe")]
    if not computer.at(UNIFIED).exists():
        # The driver makes it for the first program that uses CUDA, and no container can make it.
        seen = f"{UNIFIED} is not there, so CUDA does not start in containers"
        return [failed(seen, "nvidia-modprobe -u -c 0, at every boot; then restart the agent")]
    nodes = sorted(path.name for path in computer.at("/dev").glob("nvidia[0-9]*"))
    return [ok(listed(nodes))] if nodes else [failed("there is no /dev/nvidia0", "nvidia-modprobe -c 0")]


async def persistence(computer: Computer) -> Sequence[Finding]:
    """Whether the driver keeps cards ready while nobody uses them."""
    if not cards(computer):
        return []
    nvml = await aside(lambda: computer.nvml(computer.root))
    try:
        off = await aside(lambda: _without_persistence(nvml))
    except nvml.NVMLError as error:
        return [unknown(f"the driver does not tell: {error}")]
    if off:
        seen = f"off on cards {listed([str(index) for index in off], 8)}: the first program on an idle card waits"
        return [warning(seen, "systemctl enable --now nvidia-persistenced")]
    return [ok("on")]


def _without_persistence(nvml: Any) -> list[int]:
    nvml.nvmlInit()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [index for index, each in enumerate(handles) if not nvml.nvmlDeviceGetPersistenceMode(each)]
    finally:
        nvml.nvmlShutdown()


def _word(path: Any) -> str:
    try:
        return str(path.read_text().strip())
    except OSError:
        return ""
