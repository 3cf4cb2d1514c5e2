"""`scripts/move.py`: what it changes in a file, and what it says when it cannot."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "move.py"
spec = importlib.util.spec_from_file_location("move", SCRIPT)
assert spec is not None
assert spec.loader is not None
move = importlib.util.module_from_spec(spec)
spec.loader.exec_module(move)

MOVES = {"subak.local.turns": "subak.node.turns"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from subak.local.turns import wait\n", "from subak.node.turns import wait\n"),
        ("from subak.local import trees, turns\n", "from subak.local import trees\nfrom subak.node import turns\n"),
        ("from subak.local.turnstile import x\n", "from subak.local.turnstile import x\n"),
        ('PATH = "tests/local/test_turns.py"\n', 'PATH = "tests/node/test_turns.py"\n'),
    ],
)
def test_imports_and_paths_follow_a_module(before: str, after: str) -> None:
    assert move.reworded(before, MOVES, True) == after


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("subak.model", "usage: "),
        ("subak.nothing=subak.something", "error: there is no src/subak/nothing.py"),
        ("subak.model.node=subak.model.device", "error: src/subak/model/device.py is there already"),
    ],
)
def test_a_move_that_cannot_be_is_refused_in_a_sentence(word: str, said: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), word], capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith(said)) == (1, True)
