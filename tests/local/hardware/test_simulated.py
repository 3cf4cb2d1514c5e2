"""Simulated cards of one node: which of a description they are, and that it is read again when it changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from subak.local.hardware.description import BadDescription
from subak.local.hardware.simulated import Simulated, described
from tests.support.machines import INTERPRETER, machine


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_entry_with_the_nodes_name_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "cards.yaml", "nodes: [{profile: volcano, name: n1}, {profile: koordinator, name: n2}]")
    assert [each.model for each in described(path, "n2", INTERPRETER).devices] == ["NVIDIA-Tesla P40"] * 2


def test_the_only_entry_serves_a_node_of_any_name(tmp_path: Path) -> None:
    path = write(tmp_path / "cards.yaml", "nodes: [{profile: volcano}]")
    assert described(path, "worker-7", INTERPRETER) == machine("volcano", name="worker-7")


def test_a_node_that_is_not_described_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = write(tmp_path / "cards.yaml", "nodes: [{profile: volcano}, {profile: koordinator}]")
    with pytest.raises(BadDescription, match="it describes gtx1080ti, p40, but not n1: add an entry with name: n1"):
        described(path, "n1", INTERPRETER)


def test_taints_of_a_profile_are_not_the_nodes(tmp_path: Path) -> None:
    path = write(tmp_path / "cards.yaml", "nodes: [{profile: shared}]")
    assert described(path, "n1", INTERPRETER).taints == ()


async def test_a_card_is_broken_by_editing_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "cards.yaml", "nodes: [{profile: koordinator}]")
    source = Simulated(path, "n1", INTERPRETER)
    found = source.look().machine
    assert found is not None
    assert all(each.healthy for each in found.devices)
    changing = asyncio.create_task(source.change())
    await asyncio.sleep(0)
    assert not changing.done()
    write(path, "nodes: [{profile: koordinator, cards: {unhealthy: [1]}}]")
    async with asyncio.timeout(30):
        await changing
    found = source.look().machine
    assert found is not None
    assert [each.healthy for each in found.devices] == [True, False]


async def test_a_file_that_cannot_be_read_any_more_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "cards.yaml", "nodes: [{profile: koordinator}]")
    source = Simulated(path, "n1", INTERPRETER)
    source.look()
    path.write_text("nodes: 3")
    found = source.look()
    assert found.machine is None
    assert "must be a list of nodes" in found.notes[0]
