"""Files and sockets of the machine that a container has no business with, on a machine that has such."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Run where /opt and /srv are new, in a mount namespace of its own.
PROGRAM = """
import asyncio, os, shlex, socket, sys
from tests.local.runtime.containers import run
from subak.local.runtime.namespaces import Namespaces

listeners = []
for top in ("/opt", "/srv"):
    place = f"{top}/app/deep/down"
    os.makedirs(place)
    for name, mode in (("key", 0o600), ("word", 0o644)):
        with open(f"{place}/{name}", "w") as file:
            file.write(f"{name} of {top}\\n")
        os.chmod(f"{place}/{name}", mode)
    listeners.append(socket.socket(socket.AF_UNIX))
    listeners[-1].bind(f"{place}/socket")
    os.chmod(f"{place}/socket", 0o600)
    listeners[-1].listen()

connect = '''
import socket, sys
for top in ("/opt", "/srv"):
    try:
        socket.socket(socket.AF_UNIX).connect(top + "/app/deep/down/socket")
        print("socket of", top)
    except OSError:
        pass
'''
python = shlex.join([sys.executable, "-S", "-c", connect])
script = f"cat /opt/app/deep/down/* /srv/app/deep/down/*; {python}"
print(asyncio.run(run(Namespaces(), script)).stdout, end="")
"""


def test_what_is_deep_in_the_machines_directories_is_out_of_reach(able: None) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("util-linux's unshare is not installed")
    for place in map(Path, (sys.executable, sys.base_prefix, *sys.path)):
        if place.is_relative_to("/opt") or place.is_relative_to("/srv"):
            pytest.skip(f"{place} would be covered too")
    cover = 'for path in /opt /srv; do mount -t tmpfs none $path; done; exec "$@"'
    own = "-m" if os.geteuid() == 0 else "-Urm"
    finished = subprocess.run(
        ["unshare", own, "sh", "-ec", cover, "sh", sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert finished.returncode == 0, finished.stderr
    seen = finished.stdout.splitlines()
    if os.geteuid() == 0:
        assert seen == ["word of /opt"]
    else:  # what is in places for programs is read with the user's own rights
        assert seen == ["key of /opt", "word of /opt", "socket of /opt"]
