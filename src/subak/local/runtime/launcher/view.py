"""The container's view of the machine: a private root that ends with the container, and nothing outside to write to.

The root is a tmpfs.  The machine's directories are bound into it read-only (`tree`), volumes and the vendor's files
come on top, `/proc` shows only the container's processes, `/dev` only harmless devices and the requested ones.  Nothing
here has setuid programs, and only `/dev` has devices.
"""

from __future__ import annotations

import os

from . import allowance, kernel, mounts
from .bare import suppress
from .sources import concerning
from .tree import COPIED, MACHINE, STAGE, Tree, content_of, plain, write
from .volumes import Volumes, make_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .order import File, Mount, Order
    from .sources import Sources

_DEVICE_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_LINKS = {"/var/run": "/run", "/var/lock": "/run/lock"}
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


def enter(order: Order, sources: Sources) -> None:
    """Build the view around this process, which is the first of its pid namespace, and make it the root."""
    copies = {path: content_of(path) for path, mark in order["marks"].items() if mark == COPIED}
    _pivot()
    _devices(sources)
    _proc()
    mounts.restrict(MACHINE, mounts.READ_ONLY | mounts.NO_SUID | mounts.NO_DEV)
    tree = Tree(order["marks"], _stage(sources), _LINKS | {f"/dev/{name}": to for name, to in _DEVICE_LINKS.items()})
    files = [(tree.make_way_for_file(file), file) for file in order["files"]]
    places = _places(tree, list(zip(order["mounts"], sources.mounts, strict=True)))
    tree.lay()
    _usual_places()
    _sys()
    for path, content in copies.items():
        if content is not None:
            write(path, content, 0o644)
    for path, file in files:
        _add(file, path)
    for place in (STAGE, MACHINE):  # before mounts: no link in a volume leads there
        kernel.unmount(place)
        os.rmdir(place)
    volumes = Volumes()
    for path, mount, source in places:
        with concerning(mount):
            volumes.attach(mount, path, source)
    volumes.close()


def _places(tree: Tree, wanted: list[tuple[Mount, int]]) -> list[tuple[str, Mount, int]]:
    """Where to mount what, outer mounts first, so that none hides another.

    What the node has made for the container, such as its limits, comes on top of what a pod mounts at the same place.
    """
    places = []
    for mount, source in sorted(wanted, key=lambda each: plain(each[0]["destination"]).count("/")):
        with concerning(mount):
            places.append((tree.make_way_for_mount(mount), mount, source))
    return sorted(places, key=lambda each: (each[0].count("/"), each[1]["no_link"]))


def _pivot() -> None:
    kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    # Any directory would do: once it is the root, its original content is visible again below MACHINE.
    root = os.path.realpath("/tmp")
    kernel.mount("tmpfs", root, "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=755")
    os.mkdir(root + MACHINE)
    os.mkdir(root + STAGE)
    kernel.pivot_root(root, root + MACHINE)
    os.chdir("/")
    kernel.mount("tmpfs", STAGE, "tmpfs", kernel.NO_SUID | kernel.NO_DEV)


def _stage(sources: Sources) -> dict[str, str]:
    """Where the paths that are shown of the machine are while the view is built."""
    staged = {}
    for number, (path, source) in enumerate(sources.shown.items()):
        staged[path] = f"{STAGE}/{number}"
        make_place(staged[path], source)
        mounts.attach(source, staged[path])
        os.close(source)
    for path, target in sources.links.items():
        staged[path] = f"{STAGE}/{len(staged)}"
        os.symlink(target, staged[path])
    return staged


def _devices(sources: Sources) -> None:
    for path in ("/dev", "/dev/pts", "/dev/shm"):
        os.mkdir(path, 0o755)
    for path, source in sources.devices.items():
        make_place(path, source)
        mounts.attach(source, path)
        os.close(source)
    if sources.closed:
        place = f"{STAGE}/devices"
        os.mkdir(place)
        mounts.attach(sources.copies, place)
        os.close(sources.copies)
        for path, name in sources.closed.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write(path, b"", 0o600)
            kernel.bind(f"{place}/{name}", path)
            mounts.restrict(path, mounts.READ_ONLY)
    terminals = f"newinstance,ptmxmode=0666,mode=0620,max={allowance.TERMINALS}"
    kernel.mount("devpts", "/dev/pts", "devpts", kernel.NO_SUID | kernel.NO_EXEC, terminals)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=1777")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")


def _proc() -> None:
    os.mkdir("/proc")
    kernel.mount("proc", "/proc", "proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
    allowance.lower_namespace("/proc")
    for name in _PROC_READ_ONLY:
        if os.path.exists(f"/proc/{name}"):
            kernel.bind(f"/proc/{name}", f"/proc/{name}")
            mounts.restrict(f"/proc/{name}", mounts.READ_ONLY)
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
    for path, target in _LINKS.items():
        if not os.path.lexists(path):
            os.symlink(target, path)


def _add(file: File, path: str) -> None:
    os.makedirs(path if file["directory"] else os.path.dirname(path), exist_ok=True)
    if file["directory"]:
        os.chmod(path, file["mode"] | (file["mode"] & 0o444) >> 2)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)  # an earlier one
        write(path, file["content"], file["mode"])
