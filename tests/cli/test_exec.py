"""`subak exec` on a real terminal and on pipes: it ends when its program ends, and leaves the terminal as it was."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import write
from tests.support.live import PATIENCE, Live, live

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "infinity"]}],
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("exec")
    hardware = write(folder / "hardware.yaml", "nodes: [{profile: volcano, name: here}]")
    with live("--hardware", hardware) as running:
        running.subak("apply", "-f", write(folder / "pod.yaml", POD))
        running.subak("wait", "--for=condition=Ready", "pod/a", "--timeout", f"{PATIENCE}s")
        yield running


@dataclass
class Terminal:
    """A terminal with a program on it."""

    master: int
    slave: int
    process: subprocess.Popen[bytes]
    seen: str = ""

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self.slave)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, text: str) -> None:
        """Read until the program has printed a text."""
        while text not in self.seen:
            assert select.select([self.master], [], [], PATIENCE)[0], self.seen
            chunk = os.read(self.master, 4096)
            assert chunk, self.seen
            self.seen += chunk.decode(errors="replace")
        self.seen = self.seen.partition(text)[2]


@contextmanager
def on_a_terminal(cluster: Live, *command: str) -> Iterator[Terminal]:
    if shutil.which(command[0], path=cluster.env["PATH"]) is None:
        pytest.skip(f"{command[0]} is not installed")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=cluster.env, start_new_session=True
    )
    try:
        yield Terminal(master, slave, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize("program", ["subak", "kubectl"])
def test_it_ends_with_the_shell_and_not_at_the_next_key(cluster: Live, program: str) -> None:
    with on_a_terminal(cluster, program, "exec", "-it", "a", "--", "sh") as terminal:
        before = terminal.settings()
        terminal.type("echo rea''dy\n")
        terminal.read_until("ready")
        terminal.type("exit 7\n")
        assert terminal.process.wait(PATIENCE) == 7
        assert terminal.settings() == before


def test_keys_such_as_ctrl_c_go_to_the_program(cluster: Live) -> None:
    script = "trap 'exit 5' INT; echo rea''dy; while :; do sleep 0.1; done"
    with on_a_terminal(cluster, "subak", "exec", "-it", "pod/a", "--", "sh", "-c", script) as terminal:
        terminal.read_until("ready")
        terminal.type("\x03")
        assert terminal.process.wait(PATIENCE) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_restored_when_it_is_asked_to_end(cluster: Live, number: signal.Signals) -> None:
    with on_a_terminal(cluster, "subak", "exec", "-it", "a", "--", "sh") as terminal:
        before = terminal.settings()
        terminal.type("echo rea''dy\n")
        terminal.read_until("ready")
        assert terminal.settings() != before
        terminal.process.send_signal(number)
        assert terminal.process.wait(PATIENCE) == 128 + number
        assert terminal.settings() == before


def test_input_that_does_not_end_keeps_nobody_waiting(cluster: Live) -> None:
    reader, writer = os.pipe()
    try:
        command = ["subak", "exec", "-i", "default/a", "--", "sh", "-c", "read line; echo $line; exit 3"]
        process = subprocess.Popen(command, stdin=reader, stdout=subprocess.PIPE, env=cluster.env, text=True)
        os.write(writer, b"hello\n")
        out, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (3, "hello\n")
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("program", ["subak", "kubectl"])
def test_arguments_may_be_long(cluster: Live, program: str) -> None:
    words = ["x" * 100_000] * 8
    done = cluster.run(program, "exec", "a", "--", "sh", "-c", 'echo "$# ${#1}"', "sh", *words)
    assert done.stdout == "8 100000\n"


def test_arguments_beyond_what_the_server_takes_are_refused(cluster: Live) -> None:
    done = cluster.subak("exec", "a", "--", "echo", *["x" * 100_000] * 12, check=False)
    assert done.returncode == 1
    assert "431: the command is longer than the API server takes" in done.stderr


@pytest.mark.parametrize("size", [0, pytest.param(3, marks=pytest.mark.long), 1 << 20])
def test_a_file_is_passed_on_to_its_end(cluster: Live, tmp_path: Path, size: int) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * size)
    with path.open("rb") as file:
        command = ["subak", "exec", "-i", "pods/a", "--", "wc", "-c"]
        done = subprocess.run(command, stdin=file, capture_output=True, env=cluster.env, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout.strip()) == (0, str(size))


def test_a_program_that_ends_before_it_has_read_its_input(cluster: Live, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * (8 << 20))
    with path.open("rb") as file:
        command = ["subak", "exec", "-i", "a", "--", "true"]
        done = subprocess.run(command, stdin=file, capture_output=True, env=cluster.env, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_without_a_terminal_it_says_that_none_is_given(cluster: Live) -> None:
    done = cluster.subak("exec", "-t", "a", "--", "test", "-t", "1", check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "note: no terminal is given to the program: standard input is none\n",
    )
