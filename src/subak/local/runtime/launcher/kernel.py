"""System calls for namespaces, mounts and privileges that Python 3.11 does not have."""

from __future__ import annotations

import ctypes
import os

NEW_USER = 0x10000000
NEW_MOUNT = 0x00020000
NEW_PID = 0x20000000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000

READ_ONLY = 0x1
NO_SUID = 0x2
NO_DEV = 0x4
NO_EXEC = 0x8
RECURSIVE = 0x4000
PRIVATE = 0x40000
_BIND = 0x1000
_DETACH = 0x2

_SET_DEATH_SIGNAL = 1
_SET_DUMPABLE = 4
_DROP_BOUND = 24
_SET_SUBREAPER = 36
_SET_NO_NEW_PRIVILEGES = 38

KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 18, 31)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, SYS_CHROOT and SETFCAP.

With these, root inside has full control over its own files and processes, but cannot change the view around it.  They
are Docker's, without those that mean nothing in a user namespace.
"""
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def words(error: OSError) -> str:
    """What went wrong, and where."""
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _check(_libc.unshare(flags), "unshare")


def join(namespace: int) -> None:
    """Enter the namespace of an open `/proc/PID/ns/...`."""
    _check(_libc.setns(namespace, 0), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """As mount(2)."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), os.fsencode(kind), ctypes.c_ulong(flags), os.fsencode(data)
    )
    _check(result, f"mount {kind or source} at {target}")


def bind(source: str, target: str) -> None:
    """Show a directory or file, with all that is mounted below it, at another place."""
    mount(source, target, flags=_BIND | RECURSIVE)


def unmount(target: str) -> None:
    """Detach a mount and all below it; the kernel removes it once nobody uses it."""
    _check(_libc.umount2(os.fsencode(target), _DETACH), f"umount {target}")


def pivot_root(root: str, old: str) -> None:
    """Make the mount `root` the root, and put the old root at `old`."""
    _check(_libc.pivot_root(os.fsencode(root), os.fsencode(old)), f"pivot_root {root}")


def _prctl(option: int, value: int, name: str) -> None:
    unused = ctypes.c_ulong(0)
    _check(_libc.prctl(option, ctypes.c_ulong(value), unused, unused, unused), f"prctl({name})")


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends."""
    _prctl(_SET_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def die_with_parent(signal: int) -> None:
    """Get this signal when the parent process ends."""
    _prctl(_SET_DEATH_SIGNAL, signal, "PR_SET_PDEATHSIG")


def keep_secrets() -> None:
    """Hide this process's memory and files from other processes, until it runs another program."""
    _prctl(_SET_DUMPABLE, 0, "PR_SET_DUMPABLE")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def give_up_privileges() -> None:
    """Keep only KEPT_CAPABILITIES, for good: not even a setuid program gains more."""
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        last = int(file.read())
    for number in range(last + 1):
        if number not in KEPT_CAPABILITIES:
            _prctl(_DROP_BOUND, number, "PR_CAPBSET_DROP")
    kept = sum(1 << number for number in KEPT_CAPABILITIES)
    # Effective, permitted and inheritable, first for capabilities 0 to 31, then for those above.
    sets = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    header = _CapabilityHeader(version=_CAPABILITY_VERSION, pid=0)
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(sets)), "capset")
    _prctl(_SET_NO_NEW_PRIVILEGES, 1, "PR_SET_NO_NEW_PRIVS")
