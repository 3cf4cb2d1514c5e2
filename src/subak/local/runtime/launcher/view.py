"""The container's view of the machine: a private root that ends with the container, and nothing outside to write to.

The root is a tmpfs.  The machine's directories are bound into it read-only (`tree`), volumes and the vendor's files
come on top, `/proc` shows only the container's processes, `/dev` only harmless devices and the requested ones.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress

from . import kernel
from .tree import COPIED, MACHINE, STAGE, Tree, content_of, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .order import File, Mount, Order

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_USUAL_PLACES = {
    "/root": 0o700,
    "/tmp": 0o1777,
    "/run/lock": 0o1777,
    **dict.fromkeys(("/var/cache", "/var/lib", "/var/log", "/var/opt", "/var/spool"), 0o755),
    "/var/tmp": 0o1777,
}

# Files of the kernel through which root inside could change or learn about the whole machine; other runtimes hide them.
_PROC_READ_ONLY = ("bus", "driver", "fs", "irq", "sys", "sysrq-trigger")
_PROC_HIDDEN = ("acpi", "asound", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list", "timer_stats")
_SYS_HIDDEN = ("firmware", "devices/virtual/powercap")


def enter(order: Order) -> None:
    """Build the view around this process, which is the first of its pid namespace, and make it the root."""
    sources = [os.path.realpath(mount["source"]) if mount["source"] else "" for mount in order["mounts"]]
    copies = {path: content_of(path) for path, mark in order["marks"].items() if mark == COPIED}
    _pivot()
    _devices(order["devices"])
    _proc()
    staged = []
    for number, (mount, source) in enumerate(zip(order["mounts"], sources, strict=True)):
        with _concerning(mount):
            staged.append(_stage(f"{STAGE}/{number}", source, mount["read_only"]))
    kernel.restrict(MACHINE, kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV)
    tree = Tree(order["marks"], order["public_only"])
    files = [(tree.make_way_for_file(file), file) for file in order["files"]]
    mounts = [(tree.make_way_for_mount(mount), mount) for mount in order["mounts"]]
    tree.lay("/")
    _usual_places()
    _sys()
    for path, content in copies.items():
        if content is not None:
            write(path, content, 0o644)
    for path, file in files:
        _add(file, path)
    for (path, mount), place in zip(mounts, staged, strict=True):
        with _concerning(mount):
            _attach(mount, path, place)
    kernel.unmount(MACHINE)
    os.rmdir(MACHINE)
    os.rmdir(STAGE)


def _pivot() -> None:
    kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    # Any directory would do: once it is the root, its original content is visible again below MACHINE.
    root = os.path.realpath("/tmp")
    kernel.mount("tmpfs", root, "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=755")
    os.mkdir(root + MACHINE)
    os.mkdir(root + STAGE)
    kernel.pivot_root(root, root + MACHINE)
    os.chdir("/")


def _devices(further: list[str]) -> None:
    for path in ("/dev", "/dev/pts", "/dev/shm"):
        os.mkdir(path, 0o755)
    for path in (*(f"/dev/{name}" for name in _DEVICES), *further):
        source = MACHINE + path
        if not os.path.exists(source):
            raise OSError(errno.ENOENT, f"the machine has no device {path}")
        if os.path.exists(path):
            continue
        os.makedirs(path if os.path.isdir(source) else os.path.dirname(path), exist_ok=True)
        if not os.path.isdir(source):
            write(path, b"", 0o600)
        kernel.bind(source, path)
        # Programs can still write to a read-only device, but its owner and mode are the machine's.
        kernel.restrict(path, kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_EXEC)
    kernel.mount("devpts", "/dev/pts", "devpts", kernel.NO_SUID | kernel.NO_EXEC, "newinstance,ptmxmode=0666,mode=0620")
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=1777")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")


def _proc() -> None:
    os.mkdir("/proc")
    kernel.mount("proc", "/proc", "proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
    for name in _PROC_READ_ONLY:
        if os.path.exists(f"/proc/{name}"):
            kernel.bind(f"/proc/{name}", f"/proc/{name}")
            kernel.restrict(f"/proc/{name}", kernel.READ_ONLY)
    for name in _PROC_HIDDEN:
        _cover(f"/proc/{name}")


def _sys() -> None:
    os.mkdir("/sys")
    if os.path.isdir(MACHINE + "/sys/kernel"):
        kernel.bind(MACHINE + "/sys", "/sys")
        for name in _SYS_HIDDEN:
            _cover(f"/sys/{name}")


def _cover(path: str) -> None:
    """Cover a file or directory of the kernel with an empty one."""
    if os.path.isdir(path):
        kernel.mount("tmpfs", path, "tmpfs", kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV, "size=0")
    elif os.path.exists(path):
        kernel.bind("/dev/null", path)


def _usual_places() -> None:
    for path, mode in _USUAL_PLACES.items():
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
    for path, target in (("/var/run", "/run"), ("/var/lock", "/run/lock")):
        if not os.path.lexists(path):
            os.symlink(target, path)


@contextmanager
def _concerning(mount: Mount) -> Iterator[None]:
    """Errors name the mount as its user knows it."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        what = f"mount {mount['source'] or 'a tmpfs'} at {mount['destination']}"
        raise OSError(error.errno, f"{what}: {reason}") from error


def _stage(place: str, source: str, read_only: bool) -> str:
    """Keep the source of a mount at `place`, if it has one."""
    if not source:
        return ""
    if os.path.isdir(MACHINE + source):
        os.mkdir(place)
    else:
        write(place, b"", 0o644)
    kernel.bind(MACHINE + source, place)
    if read_only:
        kernel.restrict(place, kernel.READ_ONLY)
    return place


def _attach(mount: Mount, path: str, place: str) -> None:
    if not place or os.path.isdir(place):
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, b"", 0o644)
    if place:
        kernel.mount(place, path, flags=kernel.MOVE)
        (os.rmdir if os.path.isdir(place) else os.unlink)(place)
    else:
        limit = f",size={mount['size']}" if mount["size"] else ""
        flags = kernel.NO_SUID | kernel.NO_DEV | (kernel.READ_ONLY if mount["read_only"] else 0)
        kernel.mount("tmpfs", path, "tmpfs", flags, "mode=1777" + limit)


def _add(file: File, path: str) -> None:
    os.makedirs(path if file["directory"] else os.path.dirname(path), exist_ok=True)
    if file["directory"]:
        os.chmod(path, file["mode"] | (file["mode"] & 0o444) >> 2)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)  # an earlier one
        write(path, file["content"], file["mode"])
