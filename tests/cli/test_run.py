"""`subak run`: a slice of a card for one command.  The commands run for real, on simulated cards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Start `subak run` on a machine with one card of 16,000 MiB."""
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text(
        "nodes: [{name: here, speaks: [hami], cards: {vendor: nvidia, model: A10, count: 1, memory: 16000Mi}}]"
    )

    def start(*arguments: str, hardware: Path | None = hardware) -> subprocess.Popen[str]:
        options = ["--hardware", str(hardware)] if hardware else []
        return subprocess.Popen(
            [sys.executable, "-m", "subak.cli", "run", *options, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SUBAK_SLICES": str(tmp_path / "slices")},
        )

    return start


def end(process: subprocess.Popen[str], words: str | None = None) -> tuple[int, str, str]:
    out, err = process.communicate(words, timeout=60)
    return process.returncode, out, err


def test_the_command_finds_its_limits_in_its_environment(run: Run) -> None:
    code, out, err = end(run("--memory", "8Gi", "--cores", "30", "--", "env"))
    assert code == 0
    assert {"CUDA_DEVICE_MEMORY_LIMIT_0=8192m", "CUDA_DEVICE_SM_LIMIT=30"} <= set(out.splitlines())
    assert err == "note: env-1 has card 0 8,192 MiB 30 % of its time\n"


def test_the_exit_code_is_the_commands_own(run: Run) -> None:
    assert end(run("--", "sh", "-c", "exit 7"))[0] == 7


def test_input_reaches_the_command(run: Run) -> None:
    assert end(run("--memory", "1Gi", "--", "cat"), "hello\n")[1] == "hello\n"


def test_who_finds_the_card_full_waits_for_its_turn(run: Run) -> None:
    first = run("--memory", "10Gi", "--", "sh", "-c", "echo started; read line")
    assert first.stdout is not None
    assert first.stdout.readline() == "started\n"
    second = run("--memory", "8Gi", "--", "echo", "my turn")
    assert second.stderr is not None
    assert "waiting for a card: largest free slice 5,760 MiB, 8,192 MiB asked" in second.stderr.readline()
    assert second.poll() is None
    end(first, "go on\n")
    code, out, _ = end(second)
    assert (code, out) == (0, "my turn\n")


def test_waiting_can_be_bounded(run: Run) -> None:
    first = run("--", "sh", "-c", "echo started; read line")
    assert first.stdout is not None
    assert first.stdout.readline() == "started\n"
    code, out, err = end(run("--memory", "1Gi", "--timeout", "0", "--", "echo", "never"))
    assert (code, out) == (75, "")
    assert "no slice was free within 0 s" in err
    end(first, "\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "17Gi"], "the cards never have that much: largest free slice 16,000 MiB, 17,408 MiB asked"),
        (["--memory", "8"], "--memory '8' is less than 1 MiB: give an amount with a unit, such as 8Gi"),
        (["--memory", "much"], "--memory 'much'"),
        (["--cards", "2"], "never have that much"),
    ],
)
def test_what_cannot_be_had_is_refused(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = end(run(*arguments, "--", "echo", "no"))
    assert (code, out) == (2, "")
    assert message in err


def test_a_command_that_is_not_there(run: Run) -> None:
    code, _, err = end(run("--", "no-such-command"))
    assert code == 127
    assert "error: no-such-command: No such file or directory" in err


def test_hardware_without_nvidia_cards(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("nodes: [{profile: moore-threads}]")
    code, _, err = end(run("--", "true", hardware=other))
    assert (code, "no node has NVIDIA cards" in err) == (2, True)
