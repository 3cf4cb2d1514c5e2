"""`subak agent`: what is said of options that cannot be used, and how it begins and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from subak.cli import cli
from subak.node.lock import HostLock
from tests.cli.test_controller import PATIENCE, kubeconfig, taken

CARDS = "nodes: [{profile: volcano}]\n"


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    path = tmp_path / "cards.yaml"
    path.write_text(CARDS)
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "9394"], "'9394' is no ADDRESS:PORT"),
        (["--node-name", "Not A Node"], "'Not A Node' is no name of a node: see kubectl get nodes"),
        (["--injection", "magic"], "'magic' is not one of"),
        (["--simulate", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
        (["--kubeconfig", "/nowhere"], "kubeconfig: /nowhere: No such file or directory"),
    ],
)
def test_bad_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    usual = ["--kubeconfig", str(kubeconfig(tmp_path, 1)), "--host-root", str(tmp_path)]
    answer = CliRunner().invoke(cli, ["agent", *usual, *options])
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_description_without_this_node_is_bad_input(tmp_path: Path, cards: Path) -> None:
    cards.write_text("nodes: [{profile: volcano}, {profile: koordinator}]")
    options = ["--kubeconfig", str(kubeconfig(tmp_path, 1)), "--simulate", str(cards), "--node-name", "n1"]
    answer = CliRunner().invoke(cli, ["agent", *options])
    assert answer.exit_code == 2
    assert "it describes gtx1080ti, p40, but not n1: add an entry with name: n1" in answer.stderr


def test_a_second_agent_of_a_machine_is_told_of_the_first(tmp_path: Path, cards: Path) -> None:
    first = HostLock(tmp_path / "run" / "subak")
    options = ["--kubeconfig", str(kubeconfig(tmp_path, 1)), "--simulate", str(cards), "--host-root", str(tmp_path)]
    answer = CliRunner().invoke(cli, ["agent", *options])
    first.release()
    assert answer.exit_code == 1
    assert f"agent.lock is held by process {os.getpid()} (subak agent): one agent a machine" in answer.stderr


def test_an_address_in_use_is_bad_input(tmp_path: Path, cards: Path) -> None:
    config = tmp_path / "device-config.yaml"
    config.write_text("{}")
    with taken() as port:
        usual = ["--kubeconfig", str(kubeconfig(tmp_path, port)), "--host-root", str(tmp_path)]
        more = ["--simulate", str(cards), "--device-config", str(config), "--listen", f"127.0.0.1:{port}"]
        answer = CliRunner().invoke(cli, ["agent", *usual, *more])
    assert answer.exit_code == 2
    assert f"error: 127.0.0.1:{port} cannot be listened on: " in answer.stderr


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """An agent in a process of its own, and its log."""
    log = folder / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "subak.cli", "agent", "--host-root", str(folder), *options]
        process = subprocess.Popen(command, stderr=output, env={**os.environ, "HOME": "/"})
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def until(process: subprocess.Popen[bytes], log: Path, words: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while words not in (text := log.read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("with_config", [False, pytest.param(True, marks=pytest.mark.long)])
def test_without_an_api_server_it_goes_on_until_it_is_asked_to_end(
    with_config: bool, tmp_path: Path, cards: Path
) -> None:
    with taken() as free:
        pass  # nobody listens there any more
    config = tmp_path / "device-config.yaml"
    config.write_text("{}")
    options = ["--kubeconfig", str(kubeconfig(tmp_path, free)), "--listen", "127.0.0.1:0", "--simulate", str(cards)]
    options += ["--device-config", str(config)] if with_config else []
    with running(tmp_path, *options, "--node-name", "n1") as (process, log):
        until(process, log, "next try in")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert not [line for line in lines if line["level"] == "error"]
