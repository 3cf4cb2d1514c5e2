"""System calls for namespaces, mounts and privileges that Python 3.11 does not have."""

from __future__ import annotations

import ctypes
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

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
_READ_BOUND = 23
_DROP_BOUND = 24
_SET_SECCOMP = 22
_SET_SUBREAPER = 36
_SET_NO_NEW_PRIVILEGES = 38

CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "SYS_CHROOT": 18,
}
"""What root inside may have at most.

With these, root inside has full control over its own files and processes, but cannot change the view around it.  They
are Docker's, without those that mean nothing in a user namespace, and without FSETID and SETFCAP: no program outside
may gain privileges from a file that a container wrote.
"""
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64

PROCESSES = 6
"""RLIMIT_NPROC.  Since Linux 5.14 the processes of a user are counted in each user namespace by themselves."""
_FILTER = 2
"""SECCOMP_MODE_FILTER"""
_INSTRUCTION = 8
"""Bytes of an instruction of a filter."""
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1

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


def _within_bound(capability: int) -> bool:
    """Asked of the kernel itself, not read from /proc, where a volume may be mounted."""
    unused = ctypes.c_ulong(0)
    return int(_libc.prctl(_READ_BOUND, ctypes.c_ulong(capability), unused, unused, unused)) == 1


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def bound_capabilities(most: Collection[int]) -> None:
    """Let no program that this process becomes have more than these capabilities."""
    for number in range(_MOST_CAPABILITIES):
        if number not in most and _within_bound(number):
            _prctl(_DROP_BOUND, number, "PR_CAPBSET_DROP")


def give_up_privileges(kept: Collection[int]) -> None:
    """Keep only these capabilities, for good: not even a setuid program gains more."""
    bits = sum(1 << number for number in kept)
    # Effective, permitted and inheritable, first for capabilities 0 to 31, then for those above.
    sets = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
    header = _CapabilityHeader(version=_CAPABILITY_VERSION, pid=0)
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(sets)), "capset")
    _prctl(_SET_NO_NEW_PRIVILEGES, 1, "PR_SET_NO_NEW_PRIVS")


def limit_of(resource: int) -> int:
    """How much of a resource this process may have at most."""
    return _limits(resource)[1]


def present_limit_of(resource: int) -> int:
    """How much of a resource this process may have now, unless it allows itself more."""
    return _limits(resource)[0]


def _limits(resource: int) -> ctypes.Array[ctypes.c_ulong]:
    limits = (ctypes.c_ulong * 2)()
    _check(_libc.getrlimit(resource, ctypes.byref(limits)), f"getrlimit({resource})")
    return limits


def limit(resource: int, most: int) -> None:
    """Let this process, and those that it starts, have so much of a resource and no more."""
    limits = (ctypes.c_ulong * 2)(most, most)
    _check(_libc.setrlimit(resource, ctypes.byref(limits)), f"setrlimit({resource})")


def leave_keyring() -> None:
    """Leave the session's keyring for a new one, as far as the kernel and the user's quota of keys allow it.

    Where they do not, the filter alone keeps programs from the old one.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls(program: bytes) -> None:
    """Let this process and its descendants make only the system calls that the program allows, if there is one.

    To be called after `give_up_privileges`.
    """
    if program:
        given = _FilterProgram(len(program) // _INSTRUCTION, program)
        unused = ctypes.c_ulong(0)
        result = _libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.byref(given), unused, unused)
        if result < 0 and ctypes.get_errno() == errno.EINVAL:
            raise OSError(errno.EINVAL, "this kernel was built without filters of system calls (CONFIG_SECCOMP_FILTER)")
        _check(result, "prctl(PR_SET_SECCOMP)")
