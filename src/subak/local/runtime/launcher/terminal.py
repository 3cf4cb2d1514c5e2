"""A new terminal of a container, for a program that a client watches.

Programs of the container may have put anything in the place of `/dev/ptmx`, such as a file that keeps whoever opens it
waiting.  So only its file system of terminals is asked, in which they can make nothing, and no name is looked up twice.
"""

from __future__ import annotations

import ctypes
import errno
import os

_PLACE = "/dev/pts"
_TERMINALS = 0x1CD1
"""DEVPTS_SUPER_MAGIC"""
_UNLOCK, _OTHER_SIDE = 0x40045431, 0x5441
"""TIOCSPTLCK and TIOCGPTPEER"""
_FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


def open_terminal() -> tuple[int, int]:
    """Our side and the program's side.  Raises OSError."""
    place = os.open(_PLACE, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _kind(place) != _TERMINALS:
            raise OSError(errno.ENOTTY, "there is something else in the place of its terminals", _PLACE)
        near = os.open("ptmx", _FLAGS, dir_fd=place)
    finally:
        os.close(place)
    _control(near, _UNLOCK, ctypes.byref(ctypes.c_int(0)))
    return near, _control(near, _OTHER_SIDE, ctypes.c_long(_FLAGS))


def _kind(place: int) -> int:
    """The kind of file system."""
    info = (ctypes.c_long * 32)()
    if _libc.fstatfs(place, ctypes.byref(info)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), _PLACE)
    return info[0]


def _control(terminal: int, request: int, argument: object) -> int:
    result: int = _libc.ioctl(terminal, ctypes.c_ulong(request), argument)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), _PLACE)
    return result
