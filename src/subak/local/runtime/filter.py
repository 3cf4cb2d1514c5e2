"""Which system calls a container may make: the program of a seccomp filter.

Programs of a container run as they do on the machine, so calls are allowed unless they are listed here:

    the kernel itself      modules, kexec, bpf, perf, reboot, swap, accounting, quotas, the clock, the kernel's log
    ways around the view   mount and its successors, setns, new namespaces, files opened by handle, fanotify
    shared with others     keyrings, which no namespace separates; io_uring, which no filter sees into; userfaultfd
    setuid and setgid      any call that would set these bits, since a file in a `hostPath` keeps them for other users
    sockets                all but UNIX, IPv4, IPv6 and netlink: the others lead to the hypervisor or to rare code
    terminals              typing into a terminal in the place of its user
    leases                 of files: they hold up whoever else opens the file, such as the user who runs the cluster
    asynchronous I/O       `io_setup`: all users of the machine, root included, share a small number of requests

Some calls do not exist (ENOSYS), and programs fall back to others: `clone3` and `openat2`, whose arguments the filter
cannot see, `io_setup`, and those that are newer than this table.  Programs of another architecture, such as 32-bit
ones, are killed, because their calls have other numbers.

Docker's default profile lists what is allowed instead.  It refuses more that does no harm here, such as the placing of
memory on NUMA nodes, and allows setuid bits, since its containers have file systems of their own.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from functools import cache
from itertools import chain

_LAST = 469
"""The newest call that was looked at: `file_setattr`, of Linux 6.17."""

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""By the machine's name: the kernel's code for it, and the column of its numbers below."""

_ABSENT = -1
NUMBERS = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chmod": (90, _ABSENT),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "creat": (85, _ABSENT),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fcntl": (72, 25),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mknod": (133, _ABSENT),
    "mknodat": (259, 33),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open": (2, _ABSENT),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
"""The number of each call that is looked at, on x86_64 and on aarch64."""

_MISSING = ("clone3", "io_setup", "openat2")

_SET_ID = 0o6000
_CREATES = 0o20000100
"""O_CREAT and O_TMPFILE: without them `open` has no mode."""
_NEW_TIME = 0x80
_NEW_NAMESPACES = 0x7E020000
"""Those of mounts, cgroups, names, IPC, users, processes and the network."""
_TYPE_INTO_TERMINAL = (0x5412, 0x541C)
"""TIOCSTI, and TIOCLINUX, which pastes into a console."""
_LEASE = (1024, 1040)
"""F_SETLEASE, and F_SETDELEG of Linux 6.19."""
_FAMILIES = (1, 2, 10, 16)
"""UNIX, IPv4, IPv6, netlink."""

Instruction = tuple[int, int, int, int]
"""Code, how many instructions to skip if a test is true, how many if it is false, value."""

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where the kernel puts what the program may look at."""

_ALLOW = (_RETURN, 0, 0, 0x7FFF0000)
_KILL = (_RETURN, 0, 0, 0x80000000)


@cache
def program(machine: str = "") -> bytes:
    """The filter for a kind of machine, by default this one; empty for one whose calls are not known here."""
    architecture = _ARCHITECTURES.get(machine or os.uname().machine)
    if architecture is None:
        return b""
    code, column = architecture
    instructions: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, code),
        _KILL,
        (_LOAD, 0, 0, _NUMBER),
        (_GREATER, 0, 1, _LAST),  # of x86_64 also the calls with 32-bit pointers, which have a bit added
        _refuse(errno.ENOSYS),
    ]
    for name, numbers in NUMBERS.items():
        if numbers[column] != _ABSENT:
            verdict = _LOOKED_AT.get(name, [_refuse(errno.ENOSYS if name in _MISSING else errno.EPERM)])
            instructions += [(_EQUAL, 0, len(verdict), numbers[column]), *verdict]
    return b"".join(struct.pack("=HBBI", *each) for each in (*instructions, _ALLOW))


def _refuse(number: int) -> Instruction:
    return (_RETURN, 0, 0, 0x00050000 | number)


def _argument(position: int) -> Instruction:
    """Load the lower half of an argument; the kernel ignores the other half of those that we look at."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * position)


def _without_bits(position: int, bits: int) -> list[Instruction]:
    """Refuse the call if any of the bits is set in its argument."""
    return [_argument(position), (_ANY_BIT, 0, 1, bits), _refuse(errno.EPERM), _ALLOW]


def _mode_if_created(flags: int, mode: int) -> list[Instruction]:
    return [_argument(flags), (_ANY_BIT, 1, 0, _CREATES), _ALLOW, *_without_bits(mode, _SET_ID)]


def _family() -> list[Instruction]:
    tests = [(_EQUAL, len(_FAMILIES) - index, 0, family) for index, family in enumerate(_FAMILIES)]
    return [_argument(0), *tests, _refuse(errno.EAFNOSUPPORT), _ALLOW]


def _without_values(position: int, values: Iterable[int]) -> list[Instruction]:
    """Refuse the call if its argument has one of the values."""
    refusals = ([(_EQUAL, 0, 1, value), _refuse(errno.EPERM)] for value in values)
    return [_argument(position), *chain.from_iterable(refusals), _ALLOW]


_LOOKED_AT = {
    "chmod": _without_bits(1, _SET_ID),
    "creat": _without_bits(1, _SET_ID),
    "fchmod": _without_bits(1, _SET_ID),
    "fchmodat": _without_bits(2, _SET_ID),
    "fchmodat2": _without_bits(2, _SET_ID),
    "mknod": _without_bits(1, _SET_ID),
    "mknodat": _without_bits(2, _SET_ID),
    "open": _mode_if_created(1, 2),
    "openat": _mode_if_created(2, 3),
    "clone": _without_bits(0, _NEW_NAMESPACES),  # the bit of time namespaces is part of a signal's number there
    "unshare": _without_bits(0, _NEW_NAMESPACES | _NEW_TIME),
    "socket": _family(),
    "socketpair": _family(),
    "ioctl": _without_values(1, _TYPE_INTO_TERMINAL),
    "fcntl": _without_values(1, _LEASE),
}
