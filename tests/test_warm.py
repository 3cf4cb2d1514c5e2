"""Commands that tests start warm are as if they had started cold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import fuzz, nest, warm
from tests.support.live import commands

SUBAK = [sys.executable, "-m", "subak.cli"]
TELL = """
import json, os, sys, resource, signal
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "env": {k: v for k, v in os.environ.items() if k not in ("_", "CUDA_DEVICE_MEMORY_SHARED_CACHE")},
    "directory": os.getcwd(), "parent": os.getppid(), "umask": status["Umask"], "threads": status["Threads"],
    "signals": {name: value for name, value in status.items() if name.startswith("Sig") and name != "SigQ"},
    "leads": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
    "files": [n for n in range(20, 64) if os.path.exists(f"/proc/self/fd/{n}")],
    "stdin": sys.stdin.read(), "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
}))
"""

pytestmark = pytest.mark.skipif(
    fuzz.long() or nest.CLONE is None, reason="commands start cold in the long run, and where fork is not known"
)


def cold() -> None:
    """Keeps a command from being started warm."""


@pytest.fixture
def hardware(tmp_path: Path) -> list[str]:
    """Options of `subak run`."""
    file = tmp_path / "hardware.yaml"
    file.write_text(
        "nodes: [{name: one, speaks: [hami], cards: {vendor: nvidia, model: A10, count: 1, memory: 16000Mi}}]\n"
    )
    return ["--hardware", str(file), "--memory", "1Gi", "--"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="all as we have it"),
        pytest.param({"process_group": 0, "cwd": "/"}, id="a group and a directory of its own"),
        pytest.param({"start_new_session": True, "env": commands({"A": "value"})}, id="a session and a variable"),
    ],
)
def test_what_a_command_inherits(hardware: list[str], tmp_path: Path, options: dict[str, Any]) -> None:
    env = {**options.pop("env", os.environ), "SUBAK_SLICES": str(tmp_path / "slices")}

    def told(**more: Any) -> Any:
        command = [*SUBAK, "run", *hardware, sys.executable, "-c", TELL]
        with open(tmp_path / "file", "w") as passed:
            os.dup2(passed.fileno(), 40)
            try:
                ran = subprocess.run(
                    command, env=env, input="words", capture_output=True, text=True, pass_fds=[40], **options, **more
                )
            finally:
                os.close(40)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    assert told() == told(preexec_fn=cold)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (SUBAK, ("get", "pods")),
        (["subak"], ("no-such-command",)),
        (["kubectl-subak"], ("--version",)),
    ],
)
def test_what_a_command_says(program: list[str], words: tuple[str, ...]) -> None:
    def said(**more: Any) -> tuple[int, str, str]:
        env = commands({"KUBECONFIG": "/no/such/file"})
        ran = subprocess.run([*program, *words], env=env, capture_output=True, text=True, **more)
        return ran.returncode, ran.stdout, ran.stderr

    assert said() == said(preexec_fn=cold)


def test_how_a_command_is_interrupted(tmp_path: Path) -> None:
    def ended(**more: Any) -> int:
        command = [*SUBAK, "up", "--runtime", "none", "--kubeconfig", str(tmp_path / "kubeconfig")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
        assert process.stdout is not None
        while process.stdout.readline() not in ("ready\n", ""):
            pass
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        return process.wait(60)

    assert ended() == ended(preexec_fn=cold)


@pytest.mark.parametrize(
    ("more", "is_warm"),
    [
        ({}, True),
        ({"env": {**os.environ, "LD_PRELOAD": "libc.so.6"}}, False),
        ({"preexec_fn": cold}, False),
        ({"umask": 0o77}, False),
    ],
)
def test_only_what_will_be_the_same_starts_warm(tmp_path: Path, more: dict[str, Any], is_warm: bool) -> None:
    command = [*SUBAK, "up", "--runtime", "none", "--kubeconfig", str(tmp_path / "kubeconfig")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **more)
    words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    process.kill()
    process.wait()
    assert (b"tests.support.nest" in words) == is_warm


def test_an_order_that_is_too_large_starts_cold() -> None:
    ran = subprocess.run([*SUBAK, "get", *["x" * 100_000] * 15], capture_output=True, text=True)
    assert ran.returncode != 0
    assert warm.nests
