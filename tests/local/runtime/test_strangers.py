"""Containers of one cluster have the same ids, and an ordinary user's have those of the user: what keeps them apart."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import uuid
from pathlib import Path

from subak.local.runtime.namespaces import Namespaces
from tests.local.runtime.containers import printed, run, running, until

LISTEN = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind("\\0" + sys.argv[1]); door.listen(); print("ready", flush=True)
while True: door.accept()
"""
REACH = """
import ctypes, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
SO_PEERPIDFD, SEND_SIGNAL, GET_DESCRIPTOR = 77, 424, 438
door = socket.socket(socket.AF_UNIX)
door.connect("\\0" + sys.argv[1])
try:
    process = door.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
except OSError:
    print(json.dumps(["no handle", "no handle"]))  # before Linux 6.5
else:
    def call(*arguments):
        result = libc.syscall(*map(ctypes.c_long, arguments))
        return "done" if result >= 0 else os.strerror(ctypes.get_errno())
    print(json.dumps([call(SEND_SIGNAL, process, 9, 0, 0), call(GET_DESCRIPTOR, process, 1, 0)]))
"""
REFUSED = {"no handle", "Invalid argument", "Operation not permitted"}


def script(program: str, *arguments: str) -> str:
    return shlex.join([sys.executable, "-c", program, *arguments])


async def test_a_handle_of_a_process_from_its_socket_opens_nothing(runtime: Namespaces, tmp_path: Path) -> None:
    """The network is common, so a program of another container, or of the machine, can be had as a pidfd."""
    name, log = str(uuid.uuid4()), tmp_path / "log"
    async with running(runtime, script(LISTEN, name), log=log):
        await until(lambda: printed(log, "stdout"))
        assert REFUSED.issuperset(json.loads((await run(runtime, script(REACH, name))).stdout))
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"\0{name}-ours")
        door.listen()
        assert REFUSED.issuperset(json.loads((await run(runtime, script(REACH, f"{name}-ours"))).stdout))
