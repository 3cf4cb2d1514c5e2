"""Limits of containers' memory and processes, where this process may make cgroups: as root, or below a delegated one.

    PLACE/subak-RANDOM/NUMBER      the programs of one container

Version 1 has a tree for each controller, and the place is our own cgroup.  Version 2 has one tree, in which a cgroup
with processes hands no controllers down; there the place is the nearest cgroup above us that hands down both.

All processes of a container are in its cgroups, from process 1 on; the launcher around it is not.  A run holds a lock
on its directories, so that the next run knows which ones a killed run has left behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PROCESSES = 4096
"""How many processes and threads a container may have, as OpenShift limits a pod.  A pod has no field for it."""

_CONTROLLERS = ("memory", "pids")
_PREFIX = "subak-"
_MOST_MEMORY = 1 << 62
"""What the kernel can still count in bytes."""


class NoCgroups(Exception):
    """Why no cgroups can be made."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where cgroups for some controllers can be made."""

    directory: Path
    controllers: frozenset[str]
    unified: bool
    """Whether it is of version 2."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroups of one container; `late` collects those that could not be removed yet."""

    directories: tuple[Path, ...]
    late: list[Path]

    def entrances(self) -> list[int]:
        """Open files; a process that writes `0` to them enters.  Raises OSError, and then none is open."""
        opened: list[int] = []
        try:
            for each in self.directories:
                opened.append(os.open(each / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process because the container had used up its memory."""
        return any(
            line.split()[1] != "0"
            for directory in self.directories
            for name in ("memory.events", "memory.oom_control")
            for line in _read(directory / name).splitlines()
            if line.startswith("oom_kill ")
        )

    def remove(self) -> None:
        """Remove them, now or, if the kernel is not quite done with the last process, a little later."""
        self.late.extend(each for each in self.directories if not _removed(each))


class Cgroups:
    """The cgroups of one runtime's containers, made when the first is wanted."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._numbers = count()
        self._homes: list[tuple[Place, Path, int]] = []
        self._late: list[Path] = []
        self._problem = ""

    @property
    def obstacle(self) -> str:
        """Why there are none, empty if there are.  Raises OSError if that cannot be said now."""
        if not self._homes and not self._problem:
            try:
                for place in places(self._proc):
                    self._homes.append((place, *_home(place.directory)))
            except NoCgroups as error:
                self.close()
                self._problem = str(error)
            except OSError:  # no descriptor is left; half of the limits must not pass for all of them
                self.close()
                raise
        return self._problem

    def make(self, memory: int) -> Cgroup | None:
        """The cgroups of a new container with so many bytes of memory, 0 for any; None if there are none here.

        Raises OSError, and then leaves none.
        """
        if self.obstacle:
            return None
        self._late[:] = [each for each in self._late if not _removed(each)]
        number = str(next(self._numbers))
        wanted = [(place, home / number) for place, home, _ in self._homes if place.controllers != {"memory"} or memory]
        made = Cgroup(tuple(directory for _, directory in wanted), self._late)
        try:
            for place, directory in wanted:
                directory.mkdir()
                for name, value in _settings(place, memory).items():
                    if (directory / name).exists():
                        (directory / name).write_text(value)
        except OSError:  # no memory or no descriptor is left, and the container is tried again
            made.remove()
            raise
        return made

    def close(self) -> None:
        """Remove all that is left."""
        for _, home, lock in self._homes:
            _clear(home)
            os.close(lock)
        self._homes = []


def places(proc: Path) -> list[Place]:
    """Where to make cgroups, so that both controllers have one.  Raises NoCgroups."""
    trees = dict(_trees(proc))
    found = []
    missing = {each for each in _CONTROLLERS if each not in trees}
    for controller in _CONTROLLERS:
        if controller in trees:
            found.append(Place(trees[controller][1], frozenset([controller]), unified=False))
    if missing:
        if "" not in trees:
            raise NoCgroups(f"none are mounted for {' and '.join(sorted(missing))}")
        found.append(Place(_hands_down(*trees[""], missing), frozenset(missing), unified=True))
    return found


def _trees(proc: Path) -> Iterator[tuple[str, tuple[Path, Path]]]:
    """By controller, and by "" for version 2: the top of the tree, and our own cgroup in it."""
    own = {}
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    for line in (proc / "self/mountinfo").read_text().splitlines():
        fields, _, (kind, _, options, *_) = (part.split(" ") for part in line.partition(" - "))
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            inside = _below(own[name], fields[3]) if name in own else None
            if inside is not None:
                yield name, (Path(fields[4]), Path(fields[4], inside))


def _below(path: str, root: str) -> str | None:
    """The path as seen from a mount of which `root` is the root; None if it lies outside."""
    if root == "/":
        return path.strip("/")
    return path[len(root) :].strip("/") if f"{path}/".startswith(f"{root}/") else None


def _hands_down(top: Path, own: Path, controllers: set[str]) -> Path:
    """The nearest cgroup from our own upwards whose children have these controllers.  Raises NoCgroups."""
    for directory in (own, *own.parents):
        if controllers <= set(_read(directory / "cgroup.subtree_control").split()):
            return directory
        if directory == top:
            break
    _hand_down(own, controllers)
    return own


def _hand_down(directory: Path, controllers: Iterable[str]) -> None:
    try:
        (directory / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in sorted(controllers)))
    except OSError as error:
        raise NoCgroups(f"{directory}/cgroup.subtree_control: {error.strerror}") from error


def _settings(place: Place, memory: int) -> Mapping[str, str]:
    """What to write to the files of a container's cgroup, as far as the kernel has them."""
    settings = {}
    limit = str(min(memory, _MOST_MEMORY))
    if "pids" in place.controllers:
        settings["pids.max"] = str(PROCESSES)
    if "memory" in place.controllers and memory and place.unified:
        # As a kubelet does: a container that runs out of memory ends whole.
        settings |= {"memory.max": limit, "memory.swap.max": "0", "memory.oom.group": "1"}
    elif "memory" in place.controllers and memory:
        settings |= {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
    return settings


def _home(place: Path) -> tuple[Path, int]:
    """A new directory for our containers, and the descriptor that keeps it locked.  Raises NoCgroups."""
    for left in place.glob(f"{_PREFIX}*"):
        _clear_if_abandoned(left)
    while True:
        home = place / f"{_PREFIX}{secrets.token_hex(4)}"
        try:
            home.mkdir()
        except OSError as error:
            raise NoCgroups(f"{place}: {error.strerror}") from error
        # Another run may take it for one that was left behind, before we have locked it; and whoever sees it, as the
        # containers of another run do, may lock it for ever.
        with suppress(FileNotFoundError):
            lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if home.exists():
                    break
            os.close(lock)
            _removed(home)
    if (home / "cgroup.subtree_control").exists():  # only of version 2
        _hand_down(home, set(_CONTROLLERS).intersection(_read(home / "cgroup.controllers").split()))
    return home, lock


def _clear_if_abandoned(home: Path) -> None:
    with suppress(OSError):
        lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(home)
        finally:
            os.close(lock)


def _clear(home: Path) -> None:
    with suppress(OSError):
        for child in home.iterdir():
            if child.is_dir():
                _removed(child)
        home.rmdir()


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
