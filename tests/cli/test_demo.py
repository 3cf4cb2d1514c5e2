"""`subak demo`: what a newcomer sees first is short, and everything that it shows is true of `subak up`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import PATIENCE, ROOT, commands, live

TWO_SCREENS = 48
WIDTH = 80
DEMO = [sys.executable, "-m", "subak.cli", "demo"]


@pytest.fixture(scope="module")
def shown() -> list[str]:
    done = subprocess.run(DEMO, capture_output=True, text=True, cwd=ROOT, env=commands({}), timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def steps(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The commands, each with what is shown below it."""
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        below = lines[start + 1 : end]
        yield lines[start].removeprefix("$ "), below[: below.index("")] if "" in below else below


def test_it_fits_on_less_than_two_screens_and_begins_with_the_essence(shown: list[str]) -> None:
    rows = sum(-(-len(line) // WIDTH) or 1 for line in shown)
    assert rows < TWO_SCREENS
    assert shown[1].startswith("One card, three systems")
    assert shown[-2:] == [
        "All as expected: one pod waits, all others run.",
        "Next: subak up, then these commands in another terminal; or: subak demo --keep",
    ]


def test_the_limit_is_seen_in_koordinators_pod(shown: list[str]) -> None:
    assert "0MiB /  11520MiB" in shown
    assert "12288 MiB refused, 11420 of 11520 MiB were free: CUDA_ERROR_OUT_OF_MEMORY" in shown


def test_all_documents_are_there(shown: list[str]) -> None:
    text = "\n".join(shown)
    for document in ("Volcano", "Koordinator", "Moore Threads", "Iluvatar", "MetaX"):
        assert re.search(rf"^{document}.* MiB +\d+/\d+$", text, re.MULTILINE), text


@pytest.mark.long
def test_its_commands_work_on_a_cluster_of_subak_up(shown: list[str]) -> None:
    compared = 0
    with live() as cluster:
        for command, below in steps(shown):
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=cluster.env, timeout=PATIENCE
            )
            refused = "subak-allocate" in command
            assert done.returncode == refused, command
            assert refused or not done.stderr, command
            if "subak apply" not in command:
                assert done.stdout.splitlines() == below, command
                compared += 1
            elif "shared" in command:
                ready = ("wait", "--for=condition=Ready", "pod", "hami", "volcano", "koordinator")
                cluster.subak(*ready, "--timeout", f"{PATIENCE}s")
                cluster.subak("wait", "--for=condition=PodScheduled=False", "pod/too-big", "--timeout", f"{PATIENCE}s")
    assert compared == 7


@pytest.mark.long
def test_the_cluster_can_be_kept(tmp_path: Path) -> None:
    env = commands({"TMPDIR": str(tmp_path)})
    with subprocess.Popen([*DEMO, "--keep"], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env) as process:
        try:
            assert process.stdout is not None
            export = next(line for line in process.stdout if "export KUBECONFIG=" in line)
            (word,) = shlex.split(export.partition("=")[2])
            assert os.stat(word).st_mode & 0o077 == 0
            subak = [sys.executable, "-m", "subak.cli", "top", "a10", "--kubeconfig", word]
            assert "default/hami" in subprocess.run(subak, capture_output=True, text=True, timeout=PATIENCE).stdout
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
            assert not Path(word).exists()
        finally:
            process.kill()
