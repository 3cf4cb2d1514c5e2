"""Leases: whoever owns a file can hold up everybody who opens it, for 45 seconds at a time by default."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from subak.local.runtime import filter, ownership
from subak.local.runtime.namespaces import Namespaces
from subak.model.mount import Mount
from tests.local.runtime.containers import printed, running, until

HOLD = """
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
try:
    fcntl.fcntl(os.open("/v/file", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print("held", flush=True)
except OSError as error:
    print(error.strerror, flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(not filter.program(), reason="the calls of this machine are not known")
async def test_no_container_holds_up_those_who_open_its_files(runtime: Namespaces, tmp_path: Path) -> None:
    """As an ordinary user's: nor any file of that user that it can read, such as the programs in a home directory."""
    file, log = tmp_path / "file", tmp_path / "log"
    file.touch()
    ownership.give(file, 0o644)
    hold = shlex.join([sys.executable, "-c", HOLD])
    async with running(runtime, hold, mounts=[Mount("/v", str(tmp_path), read_only=True)], log=log):
        await until(lambda: printed(log, "stdout"))
        os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
    assert printed(log, "stdout") == "Operation not permitted\n"
