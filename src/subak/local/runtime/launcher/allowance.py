"""What a container may take of the things that the kernel counts for each user, and when it has to give way.

What a container has of them is counted for its own user and, since its user namespace was made by us, for ours too: a
container that takes all leaves none to the machine's root, or to the user who runs the cluster.
"""

from __future__ import annotations

from . import kernel
from .bare import suppress

_PARTS = 4
"""A container may have one part in so many."""

_MOST = {11: 8192, 12: 200 << 10}
"""RLIMIT_SIGPENDING, of which each timer takes one, and RLIMIT_MSGQUEUE, in bytes.

The kernel compares them with what our user has in all, so that all containers have no more together.
"""
_NO_PRIORITY = (13, 14)
"""RLIMIT_NICE and RLIMIT_RTPRIO."""
_FILES = 7
"""RLIMIT_NOFILE"""
_CORE = 4
_NO_CORE = 1
"""No core dump: with a limit of 0, the machine's handler would still get it, which usually runs as root."""

TERMINALS = 256

_COUNTED = {"inotify_instances": "max_user_instances", "inotify_watches": "max_user_watches"}
"""By the name of its limit for a user namespace, that of its limit for a user."""
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")

_FIRST_TO_GO = "1000"
"""As a kubelet says of pods that reserve no memory."""


def lower() -> None:
    """Lower the limits of this process, before it makes a user namespace, which takes them over."""
    for resource, most in _MOST.items():
        kernel.limit(resource, min(most, kernel.limit_of(resource) // _PARTS))
    for resource in _NO_PRIORITY:
        kernel.limit(resource, 0)
    with suppress(PermissionError):  # not even one byte is allowed
        kernel.limit(_CORE, _NO_CORE)


def lower_program() -> None:
    """Lower the limits of this process, which is about to become a program of a container, below those of launchers.

    The kernel lets a process pass descriptors on through a socket while no more of its user's are on their way than the
    process may have open.  Programs leave them there for as long as they like, and launchers pass descriptors on too.
    """
    kernel.limit(_FILES, kernel.present_limit_of(_FILES) // 2)


def lower_namespace(proc: str) -> None:
    """Lower the limits of the user namespace in which we are root; `proc` is a writable /proc."""
    for name, of_user in _COUNTED.items():
        with suppress(FileNotFoundError), open(f"{proc}/sys/fs/inotify/{of_user}", encoding="ascii") as file:
            _write(f"{proc}/sys/user/max_{name}", str(max(int(file.read()) // _PARTS, 1)))
    for name in _NAMESPACES:
        with suppress(FileNotFoundError):
            _write(f"{proc}/sys/user/max_{name}_namespaces", "0")


def give_way() -> None:
    """Let the kernel end this process, and those that it starts, before others when the machine is out of memory."""
    _write("/proc/self/oom_score_adj", _FIRST_TO_GO)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
