from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from subak.local.runtime.launcher.order import FAILED, hear
from subak.local.runtime.launcher.session import open_session

if TYPE_CHECKING:
    from subak.local.runtime.launcher.order import Program


def test_a_session_for_which_there_is_no_process_left_is_refused_and_nothing_else_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program: Program = {
        "argv": [b"true"],
        "env": {},
        "path": b"",
        "working_directory": "/",
        "uid": 0,
        "gid": 0,
        "groups": [],
        "capabilities": [],
        "filter": b"",
        "cgroups": [],
        "processes": 0,
        "tty": False,
    }
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "fork", refuse)
    assert open_session(program, [], theirs, []) == (0, 0)
    assert hear(ours) == (FAILED, 128, "cannot enter the container: Resource temporarily unavailable", 11)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    ours.close()
    theirs.close()
