"""The program that shows the agent on a real card (`native/tests/gpu/agent.py`), on the card of the tests."""

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

ROOT = Path(__file__).parents[2]


def test_the_agent_finds_a_card_shares_it_and_refuses_what_would_overcommit_it(
    mock_driver: Path, tmp_path: Path
) -> None:
    if obstacle := asyncio.run(capability.obstacle()):
        pytest.skip(obstacle)
    (tmp_path / "state").mkdir()
    card, rows = Card(mock_driver, tmp_path / "state" / "card"), tmp_path / "rows"
    env = {**os.environ, **card.env, "PYTHONPATH": str(ROOT), "SUBAK_TABLE": str(rows)}
    command = [sys.executable, "native/tests/gpu/agent.py"]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    verdicts = {what: verdict for _, what, *_, verdict in map(json.loads, rows.read_text().splitlines())}
    assert set(verdicts.values()) == {"ok"}
    assert {"discovery", "container of koordinator", "metrics: the card", "a record that overcommits"} <= set(verdicts)
