"""A network namespace of our own: nothing that tests start can be reached from outside, or reach anything there.

Ports can therefore be fixed, and two checkouts can run side by side.  An ordinary user gets a user namespace around it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence

ADDRESS = "10.99.0.1"
"""Ours, on the loopback interface.  An API server does not want to be known by an address of 127/8."""

_INSIDE = "SUBAK_E2E_NAMESPACE"
_SIOCSIFADDR, _SIOCSIFFLAGS, _IFF_UP = 0x8916, 0x8914, 0x1


class NoNamespace(Exception):
    """The machine does not let us have a namespace; the message says why."""


def inside() -> bool:
    """Whether this process runs in such a namespace."""
    return os.environ.get(_INSIDE) == _identity()


def entering(command: Sequence[str]) -> list[str]:
    """A command that runs `command` in a new namespace; it calls `set_up` there.  Raises NoNamespace."""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        raise NoNamespace("There is no `unshare` on PATH (Debian and Ubuntu: apt install util-linux).")
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True)
    if tried.returncode:
        raise NoNamespace(
            f"`{' '.join(unshare)}` was refused: {tried.stderr.strip()}\n"
            "Real Kubernetes runs in a network namespace of its own. Run as root, or allow user namespaces"
            " (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces)."
        )
    # If this process is killed, the kernel ends the command too.
    return ["setpriv", "--pdeathsig", "TERM", "--", *unshare, "--", *command]


def set_up() -> None:
    """Bring the loopback interface up, with an address of our own."""
    add_address("lo", "127.0.0.1")
    add_address("lo:1", ADDRESS)
    os.environ[_INSIDE] = _identity()


def add_address(interface: str, address: str) -> None:
    """Give an interface an address; `lo:2` is a second name of `lo`, for one more."""
    named = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFADDR, struct.pack("16sH2x4s8x", named, socket.AF_INET, socket.inet_aton(address)))
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", named, _IFF_UP))


def _identity() -> str:
    return os.readlink("/proc/self/ns/net")
