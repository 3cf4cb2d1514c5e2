"""`subak up` on a machine whose cards it cannot use: it says why."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from subak.node import nvml
from subak.node.nvml import Found
from tests.support.machines import INTERPRETER
from tests.support.nvml import Driver, Gpu

up = importlib.import_module("subak.cli.up")

FAILED = "no NVIDIA cards are used: Driver/library version mismatch"
UNCUT = "card GPU-a is left out: it is in MIG mode, and no instances are cut"


@pytest.fixture
def hardware(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.yaml"
    path.write_text("nodes: [{profile: moore-threads, name: lab}]")
    return path


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Found(None, (FAILED,)), [FAILED]),
        (Found(None, (UNCUT, "no NVIDIA cards are used: the driver knows none")), [UNCUT]),
        (Found(None, ("no NVIDIA cards are used: NVML Shared Library Not Found",), driver=False), []),
    ],
)
def test_why_cards_are_not_used_is_told_where_there_is_a_driver(
    hardware: Path, monkeypatch: pytest.MonkeyPatch, found: Found, said: list[str]
) -> None:
    monkeypatch.setattr(nvml, "find", lambda languages: found)
    machines, notes = up._machines(INTERPRETER, str(hardware))
    assert [each.name for each in machines] == ["lab"]
    assert notes[:1] == said


def test_cards_are_not_left_out_silently_because_a_described_node_has_the_name(
    hardware: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = nvml.find(INTERPRETER, Driver([Gpu("GPU-a", "0000:3b:00.0")]), tmp_path)
    monkeypatch.setattr(nvml, "find", lambda languages: found)
    monkeypatch.setattr(up, "DIRECTORY", tmp_path / "slices")
    assert found.machine is not None
    hardware.write_text(f"nodes: [{{profile: moore-threads, name: {found.machine.name}}}]")
    machines, notes = up._machines(INTERPRETER, str(hardware))
    assert len(machines) == 1
    assert notes == [
        f"the NVIDIA cards of this machine are left out: another node has its name, {found.machine.name}: "
        f"give it another in {hardware}"
    ]
