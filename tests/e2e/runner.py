"""`subak controller` as a process of its own, without a Lease: what single replicas do, and how fast they are."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOST, PORT = "127.0.0.1", 9440
COMMAND = (sys.executable, "-m", "subak.cli", "controller", "--no-leader-elect", "--log-level=warning")
PATIENCE = 120.0


@contextmanager
def running(kubeconfig: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once it has seen all objects; killed at the end."""
    command = [*COMMAND, f"--kubeconfig={kubeconfig}", f"--listen={HOST}:{PORT}", *options]
    # setpriv: if this process is killed, the kernel ends the controller too.
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *command]) as process:
        try:
            _wait(process)
            yield process
        finally:
            process.kill()


def _wait(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not _ready():
        if process.poll() is not None:
            raise RuntimeError(f"subak controller ended with {process.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise RuntimeError(f"subak controller is not ready after {PATIENCE:.0f} s")
        time.sleep(0.02)


def _ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{PORT}/readyz", timeout=5) as answer:
            return b'"role": "leader"' in answer.read()
    except (OSError, urllib.error.HTTPError):
        return False
