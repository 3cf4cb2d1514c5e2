"""The cards of this computer.  Where there are none, a small driver is played; on a computer with cards, the real one
is asked as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from subak.node import nvml
from subak.node.nvml import Found
from tests.support import hidden
from tests.support.machines import INTERPRETER
from tests.support.nvml import GIB, Driver, Gpu, Instance, NVMLError, NVMLError_LibraryNotFound

A = Gpu("GPU-a", "0000:3b:00.0")
B = Gpu("GPU-b", "0000:d8:00.0", minor=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """/dev, /proc and /sys of a machine with two cards on two sockets."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    for numa, (card, bridge) in enumerate(((A, "pci0000:3a"), (B, "pci0000:d7"))):
        place = tmp_path / "sys/devices" / bridge / "0000:00:01.0" / card.bus
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{numa}\n")
        links = tmp_path / "sys/bus/pci/devices"
        links.mkdir(parents=True, exist_ok=True)
        (links / card.bus).symlink_to(place)
    return tmp_path


def find(root: Path, *gpus: Gpu, level: int = 10) -> Found:
    driver = Driver(gpus, level)
    found = nvml.find(INTERPRETER, driver, root)
    assert driver.open == 0
    return found


def test_without_a_driver_there_is_no_machine_and_a_reason(root: Path) -> None:
    missing = NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    found = nvml.find(INTERPRETER, Driver((), missing=missing), root)
    assert found == Found(None, ("no NVIDIA cards are used: NVML Shared Library Not Found",), driver=False)


def test_a_driver_that_does_not_work_is_one(root: Path) -> None:
    found = nvml.find(INTERPRETER, Driver((), missing=NVMLError("Driver/library version mismatch")), root)
    assert found == Found(None, ("no NVIDIA cards are used: Driver/library version mismatch",), driver=True)


def test_without_cards_there_is_no_machine_and_a_reason(root: Path) -> None:
    assert find(root) == Found(None, ("no NVIDIA cards are used: the driver knows none",))


def test_cards_on_which_no_limit_would_hold_are_left_out(root: Path) -> None:
    found = find(root, *(Gpu(f"GPU-{n}", f"0000:{n:02x}:00.0", minor=n) for n in range(17)))
    assert found.machine is not None
    assert [each.id for each in found.machine.devices] == [f"GPU-{n}" for n in range(16)]
    assert found.machine.device_files.keys() == {each.id for each in found.machine.devices}
    assert found.notes == ("the first 16 of 17 cards are used: no limit would hold on more",)


def test_a_computer_speaks_all_dialects_of_its_cards(root: Path) -> None:
    machine = find(root, A, B).machine
    assert machine is not None
    read, warnings = machine.digest(INTERPRETER)
    assert warnings == []
    assert read.offers == {"hami-nvidia", "volcano-share", "volcano-vgpu", "koordinator"}
    assert [(each.id, each.model, each.memory_bytes) for each in read.devices] == [
        ("GPU-a", "NVIDIA A100-SXM4-80GB", 80 * GIB),
        ("GPU-b", "NVIDIA A100-SXM4-80GB", 80 * GIB),
    ]
    assert [(each.numa, each.pcie, each.minor) for each in read.devices] == [
        (0, "pci0000:3a", 0),
        (1, "pci0000:d7", 1),
    ]
    assert read.labels["node.koordinator.sh/gpu-driver-version"] == "580.95.05"


def test_a_container_sees_its_card_and_the_drivers_own_nodes(root: Path) -> None:
    machine = find(root, A, B).machine
    assert machine is not None
    assert machine.real
    control = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert machine.device_files == {"GPU-a": ("/dev/nvidia0", *control), "GPU-b": ("/dev/nvidia1", *control)}


@pytest.mark.parametrize(("level", "worth"), [(0, 60), (10, 50), (20, 40), (30, 30), (40, 20), (50, 10)])
def test_cards_are_scored_by_the_way_between_them(root: Path, level: int, worth: int) -> None:
    machine = find(root, A, B, level=level).machine
    assert machine is not None
    assert [dict(each.links) for each in machine.devices] == [{"GPU-b": worth}, {"GPU-a": worth}]


def test_nvlinks_count_directly_and_over_a_switch(root: Path) -> None:
    pairs = {
        "direct": (replace(A, links=[B.bus, B.bus]), replace(B, links=[A.bus, A.bus])),
        "switched": (replace(A, links=["switch"] * 4), replace(B, links=["switch"] * 3)),
    }
    scores = {}
    for name, cards in pairs.items():
        machine = find(root, *cards).machine
        assert machine is not None
        scores[name] = machine.devices[0].links["GPU-b"]
    assert scores == {"direct": 250, "switched": 350}


def test_links_that_only_one_side_sees_count_nothing_and_are_told(root: Path) -> None:
    found = find(root, replace(A, links=[B.bus]), B)
    assert found.machine is not None
    assert found.machine.devices[0].links == {"GPU-b": 0}
    assert found.notes == ("cards GPU-b and GPU-a see 0 and 1 NVLinks to each other",)


def test_mig_instances_are_cards_of_their_own(root: Path) -> None:
    rights = root / "proc/driver/nvidia/capabilities/gpu0/mig/gi3"
    (rights / "ci0").mkdir(parents=True)
    (rights / "access").write_text("DeviceFileMinor: 30\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    (rights / "ci0/access").write_text("DeviceFileMinor: 31\n")
    cut = replace(A, mig=True, instances=[Instance("MIG-1", 10 * GIB, 3), Instance("MIG-2", 20 * GIB, 5)])
    machine = find(root, cut, B).machine
    assert machine is not None
    assert [(each.index, each.id, each.memory_bytes // GIB) for each in machine.devices] == [
        (0, "MIG-1", 10),
        (1, "MIG-2", 20),
        (2, "GPU-b", 80),
    ]
    assert machine.device_files["MIG-1"][-2:] == ("/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31")
    assert "MIG-2" not in machine.devices[0].links
    read, warnings = machine.digest(INTERPRETER)
    assert warnings == []
    assert [each.id for each in read.devices] == ["MIG-1", "MIG-2", "GPU-b"]


def test_a_card_in_mig_mode_that_nobody_cut_is_left_out_with_a_word(root: Path) -> None:
    found = find(root, replace(A, mig=True), B)
    assert found.machine is not None
    assert [each.id for each in found.machine.devices] == ["GPU-b"]
    assert found.notes == ("card GPU-a is left out: it is in MIG mode, and no instances are cut",)


def test_a_lost_card_does_not_hide_the_others(root: Path) -> None:
    found = find(root, replace(A, lost=True), B)
    assert found.machine is not None
    assert [each.id for each in found.machine.devices] == ["GPU-b"]
    assert found.notes == ("card 0 is left out: GPU is lost",)


def test_a_card_whose_memory_cannot_be_repaired_is_broken(root: Path) -> None:
    machine = find(root, replace(A, failed_rows=1), B).machine
    assert machine is not None
    read, _ = machine.digest(INTERPRETER)
    assert [each.healthy for each in read.devices] == [False, True]


def test_memory_that_is_no_whole_number_of_mib_stays_exact(root: Path) -> None:
    machine = find(root, replace(A, memory=80 * GIB - 12345)).machine
    assert machine is not None
    read, warnings = machine.digest(INTERPRETER)
    assert (warnings, read.devices[0].memory_bytes) == ([], 80 * GIB - 12345)


ASK = """
from subak.dialects.interpreter import Interpreter
from subak.model.device import MIB
from subak.node import nvml
found = nvml.find(Interpreter())
print(*found.notes, sep="; ")
for each in found.machine.devices if found.machine else ():
    print(each.id, each.memory_bytes // MIB, *found.machine.device_files[each.id])
assert found.machine is None or found.machine.digest(Interpreter())[1] == []
"""
"""Prints notes, and a line for each card: its UUID, MiB, and device nodes."""


def test_this_computers_driver_and_the_driver_of_its_tools_agree() -> None:
    """On a computer without cards this says only that asking does no harm."""
    env = {**os.environ, **hidden.seen(), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    asked = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True)
    notes, *cards = asked.stdout.splitlines()
    if not cards:
        assert notes
        return
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not on the PATH")
    tool = subprocess.run(
        ["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    told = {line.replace(",", "") for line in tool.stdout.splitlines()}
    assert {" ".join(card.split()[:2]) for card in cards if card.startswith("GPU-")} <= told
    assert all(Path(path).exists() for card in cards for path in card.split()[2:])
