"""`subak doctor`: what people see, and what scripts rely on."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands import subak
from tests.support.live import Live, commands, live


@pytest.fixture(scope="module")
def cluster() -> Iterator[Live]:
    with live() as running:
        yield running


@pytest.mark.long
def test_the_cluster_of_subak_up_is_well(cluster: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    answer = subak("doctor")
    assert (answer.code, answer.err) == (0, "")
    rows = answer.out.splitlines()
    assert rows[0] == "API server"
    assert rows[1].split()[:3] == ["ok", "version", "v1.36.3+subak,"]
    assert rows[-1].endswith(" ok")  # nothing else was found
    data = subak("doctor", "-o", "json").data["checks"]
    assert {each["state"] for each in data} == {"ok"}
    assert data[0].keys() == {"group", "check", "state", "seen", "to_do"}
    assert {each["check"] for each in data} >= {"webhook answers", "records guarded", "capacity", "overcommitted"}


def test_a_computer_that_is_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    answer = subak("doctor", "--node", "--host-root", tmp_path)
    assert answer.code == 1
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert "failed kubelet no kubelet runs on this computer" in lines
    assert "to do: is this a node? for one machine without Kubernetes: subak up" in lines
    assert any(line.startswith("ok library ") for line in lines)
    data = subak("doctor", "--node", "--host-root", tmp_path, "-o", "json").data["checks"]
    assert [each for each in data if each["check"] == "clock"] == []  # there is no cluster to compare with
    assert list(tmp_path.iterdir()) == []  # looking makes nothing


def test_misuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert subak("doctor").code == 2
    answer = subak("doctor", "--node", "--host-root", tmp_path / "nowhere")
    assert (answer.code, "does not exist" in answer.err) == (2, True)
    assert subak("doctor", "-o", "table").code == 2


def test_a_cluster_that_does_not_answer_is_one_error(cluster: Live, tmp_path: Path) -> None:
    text = cluster.kubeconfig.read_text()
    (tmp_path / "config").write_text(text.replace(text.partition("server: ")[2].split()[0], "https://127.0.0.1:1"))
    answer = subak("doctor", "--kubeconfig", tmp_path / "config")
    assert (answer.code, answer.out) == (1, "")
    assert len(answer.err.splitlines()) == 1
    assert "the cluster cannot be reached" in answer.err


@pytest.mark.long
def test_a_terminal_shows_progress_and_lines_that_fit(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = commands({"KUBECONFIG": str(tmp_path / "none"), "COLUMNS": "90", "LINES": "50"})
    command = [sys.executable, "-m", "subak.cli", "doctor", "--node", "--host-root", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env) as running:
        os.close(theirs)
        printed = b""
        with suppress(OSError):  # how Linux says that nobody writes there any more
            while chunk := os.read(ours, 4096):
                printed += chunk
        os.close(ours)
    assert running.returncode == 1
    progress, wiped, report = printed.decode().rpartition("\r\x1b[K")
    assert "0 of " in progress
    assert wiped
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in report.split("\r\n")]
    assert max(map(len, lines)) <= 90
    assert "\x1b[31mfailed" in report
