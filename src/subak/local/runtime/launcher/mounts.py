"""System calls for mounts that are not attached anywhere yet: each is an open descriptor, and no path leads to it.

They need Linux 5.12.  Their numbers are the same on all architectures; the C library knows them only since glibc 2.36.
"""

from __future__ import annotations

import ctypes
import errno
import os

from .bare import suppress

READ_ONLY = 0x1
NO_SUID = 0x2
NO_DEV = 0x4
NO_EXEC = 0x8
_SHIFTED_IDS = 0x100000
_PRIVATE = 1 << 18

_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 437, 442
_CLONE = 0x1
_CLOSE_ON_EXEC = 0x1
_CREATE = 6
_EMPTY_PATH = 0x1000
_RECURSIVE = 0x8000
_FROM_EMPTY_PATH, _TO_EMPTY_PATH = 0x4, 0x40
_WORKING_DIRECTORY = -100
_NO_MAGIC_LINKS = 0x02
_BENEATH = 0x08
_TRIES = 100

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def open_beneath(root: int, path: str, flags: int = 0) -> int:
    """Find a path below a directory, without opening it; whatever links it has, it never leads out.

    A tenant may rename directories meanwhile.  The kernel then does not know whether the path leads out, and asks us to
    try again.
    """
    how = _How(flags=flags | os.O_PATH | os.O_CLOEXEC, resolve=_BENEATH | _NO_MAGIC_LINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            return _call("openat2", _OPENAT2, ctypes.c_int(root), os.fsencode(path), ctypes.byref(how), size)
    raise BlockingIOError(errno.EAGAIN, f"openat2: {os.strerror(errno.EAGAIN)}")


def clone(place: int, flags: int) -> int:
    """A copy of what is mounted at an open place, with all below it: with these flags, and deaf to later mounts."""
    made = _call(
        "open_tree",
        _OPEN_TREE,
        ctypes.c_int(place),
        b"",
        ctypes.c_uint(_CLONE | _RECURSIVE | _EMPTY_PATH | os.O_CLOEXEC),
    )
    _change(made, _Attributes(set=flags, propagation=_PRIVATE), _RECURSIVE)
    return made


def memory(flags: int) -> int:
    """A new tmpfs."""
    context = _call("fsopen", _FSOPEN, b"tmpfs", ctypes.c_uint(_CLOSE_ON_EXEC))
    try:
        _call("fsconfig", _FSCONFIG, ctypes.c_int(context), ctypes.c_uint(_CREATE), None, None, ctypes.c_int(0))
        return _call("fsmount", _FSMOUNT, ctypes.c_int(context), ctypes.c_uint(_CLOSE_ON_EXEC), ctypes.c_uint(flags))
    finally:
        os.close(context)


def restrict(path: str, flags: int, all_below: bool = True) -> None:
    """Set some of READ_ONLY, NO_SUID, NO_DEV, NO_EXEC on what is mounted at a path, and usually on all below it."""
    _change(_WORKING_DIRECTORY, _Attributes(set=flags), _RECURSIVE if all_below else 0, path)


def keep_ids(mount: int, namespace: int) -> bool:
    """Let files have the same owners inside the user namespace as they have outside, as far as the file system can.

    False if it cannot: then only what is open to others can be used inside.
    """
    for depth in (_RECURSIVE, 0):
        try:
            _change(mount, _Attributes(set=_SHIFTED_IDS, user_namespace=namespace), depth)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
        else:
            return True
    return False


def attach(mount: int, place: str | int) -> None:
    """Put a mount at its place, a path or what was opened there; its descriptor then is one of that place."""
    path, directory = (place, _WORKING_DIRECTORY) if isinstance(place, str) else ("", place)
    _call(
        f"mount at {path}".rstrip(),
        _MOVE_MOUNT,
        ctypes.c_int(mount),
        b"",
        ctypes.c_int(directory),
        os.fsencode(path),
        ctypes.c_uint(_FROM_EMPTY_PATH | (0 if path else _TO_EMPTY_PATH)),
    )


def _change(mount: int, attributes: _Attributes, depth: int, path: str = "") -> None:
    _call(
        f"mount_setattr {path}".rstrip(),
        _MOUNT_SETATTR,
        ctypes.c_int(mount),
        os.fsencode(path),
        ctypes.c_uint(depth if path else depth | _EMPTY_PATH),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
