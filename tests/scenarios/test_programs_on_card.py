"""The programs that show Subak on a real card (`native/tests/gpu/`), on the card of the tests."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from subak.local.runtime import capability
from tests.support.card import Card

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def verdicts(mock_driver: Path, folder: Path, *command: str) -> dict[str, str]:
    """Run a program on the card of the tests; what it says of each of its rows."""
    if obstacle := asyncio.run(capability.obstacle()):
        pytest.skip(obstacle)
    (folder / "state").mkdir()
    card, rows = Card(mock_driver, folder / "state" / "card"), folder / "rows"
    own = {"SUBAK_TABLE": str(rows), "SUBAK_SLICES": str(folder / "slices"), "SUBAK_TURNS": str(folder / "turns")}
    env = {**os.environ, **card.env, "PYTHONPATH": str(ROOT), **own}
    ran = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return {what: verdict for _, what, *_, verdict in map(json.loads, rows.read_text().splitlines()) if verdict}


def test_the_agent_finds_a_card_shares_it_and_refuses_what_would_overcommit_it(
    mock_driver: Path, tmp_path: Path
) -> None:
    found = verdicts(mock_driver, tmp_path, "native/tests/gpu/agent.py", str(tmp_path))  # no driver is installed there
    assert set(found.values()) == {"ok"}
    assert {"discovery", "container of koordinator", "metrics: the card", "a record that overcommits"} <= set(found)


def test_containers_of_up_are_confined_and_held_to_their_parts(mock_driver: Path, tmp_path: Path) -> None:
    found = verdicts(mock_driver, tmp_path, "native/tests/gpu/up.py", "confined", "memory")
    assert set(found.values()) == {"ok"}
    assert {"/proc/self/status: Seccomp", "container of hami", "container of koordinator"} <= set(found)
