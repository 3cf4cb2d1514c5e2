"""`subak run`: a slice of a card for one command.  The commands run for real, on simulated cards and a mock driver."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import subak
from subak.local.hardware.library import empty
from tests.support.card import OUT_OF_MEMORY, TAKEN, UUID, Card, Tenant

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
        pytest.param(["--memory", "much"], "--memory 'much'", marks=pytest.mark.long),
        pytest.param(["--memory", "9Ei"], "--memory '9Ei' is more than any card has", marks=pytest.mark.long),
        pytest.param(["--cards", "2"], "never have that much", marks=pytest.mark.long),
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
    code, _, err = end(run("--", ""))
    assert (code, "Traceback" in err) == (126, False)


@pytest.mark.parametrize("name", ["no-interpreter", "./no-interpreter"])
def test_a_script_that_names_no_interpreter_is_the_shell_s(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "no-interpreter").write_text('echo "$1" from "$0"; exit 3\n')
    (tmp_path / "no-interpreter").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    code, out, _ = end(run("--", name, "hello"))
    found = name if "/" in name else tmp_path / name
    assert (code, out) == (3, f"hello from {found}\n")


def test_what_follows_the_command_is_its_own(run: Run) -> None:
    code, out, _ = end(run("--memory", "1Gi", "echo", "train", "--memory", "9Gi", "--help", "-x"))
    assert (code, out) == (0, "train --memory 9Gi --help -x\n")
    code, out, err = end(run("--memroy", "1Gi", "--", "echo", "hi"))
    assert (code, out, "No such option" in err) == (2, "", True)


def test_the_command_starts_as_from_a_shell(run: Run) -> None:
    """Python ignores some signals, which programs would inherit."""
    _, out, _ = end(run("--", "grep", "SigIgn", "/proc/self/status"))
    ours = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, restore_signals=True)
    assert out == ours.stdout


def test_names_and_arguments_may_be_anything(run: Run, tmp_path: Path) -> None:
    long = tmp_path / "abcdefghijklmnopqrstuvwxyzabcdefghijklm_x"
    long.symlink_to(shutil.which("echo") or "")
    code, out, err = end(run("--", str(long), "fine"))
    assert (code, out) == (0, "fine\n"), err
    assert end(run("--", "test", "caf\udce9", "=", "caf\udce9"))[0] == 0


@pytest.mark.long
def test_a_closed_output_is_no_obstacle(run: Run, tmp_path: Path) -> None:
    done = tmp_path / "done"
    inner = shlex.join([sys.executable, "-m", "subak.cli", "run", "--hardware", str(tmp_path / "hardware.yaml")])
    env = {**os.environ, "SUBAK_SLICES": str(tmp_path / "slices")}
    closed = subprocess.run(["sh", "-c", f"exec {inner} -- touch {done} >&-"], env=env, capture_output=True, text=True)
    assert (closed.returncode, done.exists()) == (0, True), closed.stderr


def test_a_note_that_nobody_reads_is_no_obstacle(run: Run, tmp_path: Path) -> None:
    """As after the terminal was closed in which it waited."""
    waits = run("--", "touch", str(tmp_path / "done"))
    assert waits.stderr is not None
    waits.stderr.close()
    assert (waits.wait(60), (tmp_path / "done").exists()) == (0, True)


@pytest.mark.parametrize(
    ("script", "files"),
    [
        pytest.param("echo words; echo words >&2", "<&- >&- 2>&-", id="writes where nothing is open"),
        pytest.param("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-", "", id="has numbers for files of its own"),
    ],
)
def test_the_lock_of_a_slice_is_not_in_the_command_s_way(run: Run, tmp_path: Path, script: str, files: str) -> None:
    words = tmp_path / "words"
    os.mkfifo(words)
    quiet = shlex.join([sys.executable, "-m", "subak.cli", "run", "--hardware", str(tmp_path / "hardware.yaml")])
    held = subprocess.Popen(
        ["sh", "-c", f"exec {quiet} -- sh -c '{script}; echo ready >{words}; read line <{words}' {files}"],
        env={**os.environ, "SUBAK_SLICES": str(tmp_path / "slices")},
    )
    try:
        assert words.read_text() == "ready\n"
        assert end(run("--memory", "1Gi", "--timeout", "0", "--", "true"))[0] == 75
    finally:
        held.kill()
        held.wait()


def test_interrupted_while_it_waits(run: Run) -> None:
    first = run("--", "sh", "-c", "echo started; read line")
    assert first.stdout is not None
    assert first.stdout.readline() == "started\n"
    second = run("--", "true")
    assert second.stderr is not None
    assert "waiting for a card" in second.stderr.readline()
    second.send_signal(signal.SIGINT)
    code, _, err = end(second)
    assert (code, "Traceback" in err) == (130, False)
    end(first, "\n")


def test_slices_are_not_kept_where_others_could_remove_them(run: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    code, out, err = end(run("--", "echo", "never"))
    assert (code, out) == (2, "")
    assert f"the cards cannot be had: everybody can remove what others keep in {tmp_path}: chmod +t {tmp_path}" in err


def test_hardware_without_nvidia_cards(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("nodes: [{profile: moore-threads}]")
    code, _, err = end(run("--", "true", hardware=other))
    assert (code, "no node has NVIDIA cards" in err) == (2, True)


# On a card that is real to all but the driver.


@pytest.fixture
def real(
    run: Run, card: Card, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Tenant]:
    """Start a program that uses the card with a slice of it."""
    more = {"SUBAK_TURNS": str(tmp_path / "turns"), "PYTHONPATH": str(checkout / "src")}
    for name, value in (card.env | more).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return lambda *options: Tenant(run(*options, "--", *card.tenant, hardware=None))


def test_a_program_stops_at_its_limit_and_goes_on(real: Callable[..., Tenant]) -> None:
    tenant = real("--memory", "1Gi")
    assert tenant.ask("total") == "1024\n"
    assert [tenant.ask("take 500") for _ in range(2)] == [TAKEN, OUT_OF_MEMORY]  # with its context of 100 MiB
    assert tenant.ask("take 400") == TAKEN
    assert tenant.end() == 0


@pytest.mark.long
def test_two_slices_share_a_card(real: Callable[..., Tenant]) -> None:
    one, two = real("--memory", "1Gi", "--cores", "50"), real("--memory", "2Gi", "--cores", "50")
    assert (one.ask("total"), two.ask("total")) == ("1024\n", "2048\n")
    assert (one.ask("take 1500"), two.ask("take 1500")) == (OUT_OF_MEMORY, TAKEN)
    for each in (one, two):
        assert each.end() == 0


@pytest.mark.long
def test_a_killed_program_leaves_its_slice_to_the_next(real: Callable[..., Tenant], tmp_path: Path) -> None:
    first = real("--memory", "8Gi")
    assert first.ask("take 4000") == TAKEN
    first.process.kill()
    first.end()
    second = real("--memory", "8Gi", "--timeout", "0")
    assert second.ask("take 8000") == TAKEN
    kept = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / f"slices-{os.getuid()}").glob("0*")}
    assert set(kept) == {"002.alive", "002.json", "002.held", "002.cache", "002.limits"}
    assert kept["002.cache"] == 0o600
    second.end()


@pytest.mark.long
def test_a_slice_of_the_second_card_is_limited_there(
    real: Callable[..., Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOCK_DEVICES", "2")
    first, second = real("--memory", "8Gi"), real("--memory", "1Gi", "--cores", "30")
    assert (first.ask("total"), second.ask("total")) == ("8192\n", "1024\n")
    assert (first.ask("take 4000"), second.ask("take 1000"), second.ask("take 800")) == (TAKEN, OUT_OF_MEMORY, TAKEN)
    both = real("--cards", "2", "--memory", "100Mi", "--timeout", "0")
    assert both.process.wait(60) == 75
    for each in (first, second):
        each.end()


def test_cards_on_which_no_limit_would_hold_are_not_used(
    real: object, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library counts on the first sixteen."""
    monkeypatch.setenv("MOCK_DEVICES", "17")
    all_of_them = run("--cards", "16", "--", "sh", "-c", "echo started; read line", hardware=None)
    assert all_of_them.stdout is not None
    assert all_of_them.stdout.readline() == "started\n"
    assert end(run("--memory", "1Gi", "--timeout", "0", "--", "true", hardware=None))[0] == 75
    _, _, err = end(all_of_them, "\n")
    assert "note: the first 16 of 17 cards are used: no limit would hold on more" in err


def test_a_choice_of_card_that_is_not_heeded_is_told(real: object, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    code, output, err = end(run("--memory", "1Gi", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", hardware=None))
    assert (code, output) == (0, f"{UUID}\n")
    assert "note: CUDA_VISIBLE_DEVICES=3 is not heeded: the slice is of whichever card has room\n" in err


def test_an_amount_that_means_nothing_is_told_before_cards_are_looked_for(run: Run) -> None:
    code, _, err = end(run("--memory", "lots", "--", "true", hardware=Path("/nowhere")))
    assert (code, "--memory 'lots'" in err, "/nowhere" in err) == (2, True, False)


@pytest.mark.long
def test_inside_a_slice_there_is_no_other(real: object, run: Run) -> None:
    inner = (sys.executable, "-m", "subak.cli", "run", "--memory", "1Gi", "--", "true")
    code, _, err = end(run("--memory", "2Gi", "--", *inner, hardware=None))
    assert (code, "error: this is inside a slice already" in err) == (2, True)


@pytest.mark.long
def test_workers_that_outlive_their_launcher_keep_the_slice(real: object, run: Run, card: Card, tmp_path: Path) -> None:
    """`subprocess` closes inherited files in what it starts, the slice's lock among them."""
    words, said = tmp_path / "words", tmp_path / "said"
    os.mkfifo(words)
    launch = """
import os, subprocess, sys, time
subprocess.Popen(sys.argv[3:], stdin=open(sys.argv[1]), stdout=open(sys.argv[2], "w"))
while not os.path.getsize(sys.argv[2]):
    time.sleep(0.01)
"""
    launcher = run(
        "--memory", "6Gi", "--", sys.executable, "-c", launch, str(words), str(said), *card.tenant, hardware=None
    )  # fmt: skip
    with words.open("w") as worker:
        worker.write("take 5000\n")
        worker.flush()
        assert launcher.wait(60) == 0
        assert said.read_text() == TAKEN
        assert end(run("--memory", "6Gi", "--timeout", "0", "--", "true", hardware=None))[0] == 75
    assert end(run("--memory", "6Gi", "--", "true", hardware=None))[0] == 0
    end(launcher)


def test_an_environment_that_says_less_lifts_no_limit(real: object, run: Run, card: Card) -> None:
    tricks = (
        "unset CUDA_DEVICE_MEMORY_LIMIT_0 CUDA_DEVICE_SM_LIMIT CUDA_DEVICE_MEMORY_SHARED_CACHE",
        "export CUDA_DEVICE_MEMORY_LIMIT_0=0",
        "export CUDA_DEVICE_MEMORY_LIMIT_0=8g",
        "export CUDA_DISABLE_CONTROL=true",
        "unset SUBAK_LIMITS",
    )
    script = "; ".join(f"({trick}; printf 'total\\ntake 2000\\n' | \"$@\")" for trick in tricks)
    code, out, _ = end(run("--memory", "1Gi", "--", "sh", "-c", script, "sh", *card.tenant, hardware=None))
    assert (code, out) == (0, f"1024\n{OUT_OF_MEMORY}" * len(tricks))


def test_directories_may_be_named_as_seen_from_here(
    real: object, run: Run, card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUBAK_TURNS", "turns")
    command = [sys.executable, "-m", "subak.cli", "run", "--memory", "1Gi", "--", *card.tenant]
    env = {**os.environ, "SUBAK_SLICES": "slices"}
    done = subprocess.run(command, input="total\n", capture_output=True, text=True, env=env, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1024\n"), done.stderr


@pytest.mark.long
def test_the_library_comes_after_what_is_preloaded_already(
    real: object, run: Run, libsubak: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(empty())
    monkeypatch.setenv("LD_PRELOAD", str(other))
    code, out, err = end(run("--memory", "1Gi", "--cores", "0", "--", "env", hardware=None))
    assert (code, "cannot be preloaded" in err) == (0, False)
    found = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    assert found["LD_PRELOAD"] == f"{other}:{libsubak}"
    assert found["SUBAK_TURNS"] == str(tmp_path / "turns")
    assert found["CUDA_VISIBLE_DEVICES"] == UUID
    assert (tmp_path / "turns").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.long
def test_without_the_library_nothing_runs_on_a_real_card(
    real: object, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in an installation from which the library was taken: a copy of the package without it."""
    shutil.copytree(Path(subak.__file__).parent, tmp_path / "site/subak", ignore=shutil.ignore_patterns("*.so"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    code, out, err = end(run("--memory", "1Gi", "--", "echo", "never", hardware=None))
    assert (code, out) == (2, "")
    assert "error: no limit would hold: libsubak.so, which holds programs to their share, is neither at" in err


def test_where_no_turns_can_be_taken_nothing_runs(
    real: object, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "file"))
    code, out, err = end(run("--", "echo", "never", hardware=None))
    assert (code, out) == (2, "")
    assert f"no limit would hold: {tmp_path / 'file'}, where programs take turns on the cards, cannot be used" in err
