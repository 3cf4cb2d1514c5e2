"""Terminals in containers whose programs try to keep us waiting, or to give us something else."""

from __future__ import annotations

import shlex
import sys

import pytest

from subak.local.runtime import filter
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import StartError
from tests.local.runtime.containers import execute, running

KEEP_WAITING = """
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
os.unlink("/dev/ptmx")
file = os.open("/dev/ptmx", os.O_RDWR | os.O_CREAT)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open("/tmp/ready", "w").close()
time.sleep(1000)
"""
READY = "until test -e /tmp/ready; do sleep 0.01; done"


async def test_a_file_in_the_place_of_ptmx_keeps_nobody_waiting(
    runtime: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease of the file would hold up whoever opens it, for 45 seconds by default, where no filter refuses it."""
    monkeypatch.setattr(filter, "program", lambda: b"")
    async with running(runtime, shlex.join([sys.executable, "-c", KEEP_WAITING])) as container:
        await execute(container, READY)
        outcome = await execute(container, "tty; stat -c %a $(tty)", tty=True)
    assert outcome.stdout.split() == ["/dev/pts/0", "620"]


async def test_another_directory_in_the_place_of_terminals_is_refused(runtime: Namespaces) -> None:
    moved = "mv /dev /elsewhere; mkdir -p /dev/pts; touch /tmp/ready; sleep 1000"
    async with running(runtime, moved) as container:
        await execute(container, READY)
        with pytest.raises(StartError, match="something else in the place of its terminals"):
            await execute(container, "true", tty=True)
