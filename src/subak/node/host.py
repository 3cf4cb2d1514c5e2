"""The host's side of what is mounted into containers.

    on a node                              in a folder of ours
    /usr/local/subak/VERSION/libsubak.so   libsubak.so            the library, and the list that preloads it
    /run/subak/limits/UID_CONTAINER        limits/...             the limits, which the container cannot change
    /run/subak/state/UID_CONTAINER         state/...              what the monitor says, which it cannot change either
    /usr/local/vgpu/containers/...         containers/...         the container's own directory, with its region
    /tmp/vgpulock                          the same               where programs take turns

In a local cluster the computer belongs to others, and an ordinary user could not write there; so each has its place in
a folder instead.  Only turns are taken where everybody on the machine takes them.

Files come into being whole or not at all, and a new one takes the place of the old one: whoever has the old one mounted
keeps it.  So an upgrade disturbs no running container.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from subak.dialects import isolation
from subak.model import manifest
from subak.model.mount import Mount, Purpose
from subak.node import library, trees, turns
from subak.node.monitor import state
from tinykube import private

MOST_FILES = 64


class Host:
    """The folders, made when first needed.  In a folder of ours, programs on `simulated` cards take turns there too."""

    def __init__(self, directory: Path, simulated: bool = False) -> None:
        self._programs = directory
        self._limits = directory / "limits"
        self._states = directory / "state"
        self._containers = directory / "containers"
        self._turns = directory / "vgpulock" if simulated else None
        self._installed: set[Path] = set()

    @classmethod
    def on_node(cls, root: Path = Path("/")) -> Host:
        """The folders of a node; all below `root`, for tests."""
        host = cls(root / isolation.HOST_DIRECTORY[1:])
        host._limits = root / isolation.HOST_LIMITS[1:]
        host._states = root / isolation.HOST_STATE[1:]
        host._containers = root / isolation.HOOK[1:] / "containers"
        host._turns = None if root == Path("/") else root / isolation.LOCKS[1:]
        return host

    def mount(self, mount: Mount, pod: manifest.Pod, container: manifest.Container) -> Mount:
        """A container's mount from its place in the folder.

        Without a library its mount stays as it is: no such file is there, and no container starts.
        Raises NoTurns.
        """
        place = self._place(mount, isolation.owner(pod, container))
        return mount if place is None else replace(mount, source=str(place))

    def region(self, owner: str) -> Path:
        """Where the region is that has this owner's name; one that HAMi's plugin has started calls it otherwise."""
        place = self._of_container(owner)
        named = place / f"{owner}.cache"
        return named if named.exists() else next(_regions(place), named)

    def state(self, pod: manifest.Pod, container: manifest.Container) -> Path:
        """Where a container's state is."""
        return self._states / isolation.owner(pod, container)

    def limited(self, pod: manifest.Pod, container: manifest.Container) -> bool:
        """Whether a container has limits here."""
        return (self._limits / isolation.owner(pod, container)).is_file()

    def remove(self, pod: manifest.Pod) -> None:
        """Throw away what the pod's containers had."""
        for container in pod.containers:
            owner = isolation.owner(pod, container)
            trees.throw_away(self._of_container(owner))
            trees.discard(self._limits / owner)
            trees.discard(self.state(pod, container))

    def sweep(self, uids: Container[str]) -> None:
        """Throw away what the containers of all other pods had: of those that ended while nobody was looking."""
        for directory in (self._limits, self._states):
            for path in _of_others(directory, uids):
                trees.discard(path)
        trees.throw_away(*_of_others(self._containers, uids))

    def prune(self, mounted: Iterable[str]) -> None:
        """Remove other versions of the library of which nothing is mounted into a container."""
        used = {Path(source).parent for source in mounted}
        for path in self._programs.parent.iterdir() if self._programs.parent.is_dir() else ():
            if path != self._programs and path not in used and (path / library.NAME).is_file():
                trees.discard(path)

    def owns(self, source: str) -> bool:
        """Whether it is a file of ours, of this version or another one."""
        place = Path(source).parent
        return place in (self._limits, self._states) or place.parent == self._programs.parent

    def _place(self, mount: Mount, owner: str) -> Path | None:
        match mount.purpose:
            case Purpose.NONE:
                return None
            case Purpose.ACCOUNT:
                return self._for_container(Path(mount.source).name)  # another container's, where several count together
            case Purpose.LIMITS:
                # Not in the container's own directory: there it could write.
                return self._file(self._limits / owner, mount.content.encode(), 0o444)
            case Purpose.STATE:
                # Running programs have it mapped, and the monitor writes into it: it is never put in another's place.
                path = self._states / owner
                return path if path.is_file() else self._file(path, state.EMPTY, 0o644)
            case Purpose.LIBRARY:
                return self._library()
            case Purpose.PRELOAD:
                return self._program("ld.so.preload", f"{isolation.LIBRARY}\n".encode())
            case Purpose.TURNS:
                return turns.directory() if self._turns is None else _for_everybody(self._turns)

    def _library(self) -> Path | None:
        path = self._programs / library.NAME
        if path in self._installed and path.exists():
            return path
        try:
            # A copy: running containers keep theirs when it is built or installed anew.
            return self._program(library.NAME, library.find().read_bytes())
        except library.NoLibrary:
            return None

    def _program(self, name: str, content: bytes) -> Path:
        """A file that is the same for all containers."""
        path = self._file(self._programs / name, content, 0o755)
        self._installed.add(path)
        return path

    def _of_container(self, owner: str) -> Path:
        return self._containers / owner

    def _for_container(self, owner: str) -> Path:
        place = _for_everybody(self._of_container(owner))
        private.close(self._containers)  # other users of the machine never get to what containers make there
        # The library is mounted over this file.  The container can write here, so no link of its own is followed.
        with suppress(FileExistsError):
            os.close(os.open(place / Path(isolation.LIBRARY).name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755))
        return place

    def _file(self, path: Path, content: bytes, mode: int) -> Path:
        """A file with this content; what another run of ours left there may be out of date."""
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            begun = path.with_name(f".{path.name}")  # a full disk leaves a part of it, which must not pass for the file
            begun.write_bytes(content)
            begun.chmod(mode)
            begun.replace(path)
        return path


def _of_others(directory: Path, uids: Container[str]) -> list[Path]:
    """What the containers of pods with other UIDs have in a directory."""
    paths = list(directory.iterdir()) if directory.is_dir() else []
    named = ((path, *path.name.rpartition("_")[:2]) for path in paths)  # names of containers have no underscore
    return [path for path, uid, mark in named if mark and uid not in uids and not trees.is_leaving(path)]


def _regions(directory: Path) -> Iterator[Path]:
    """What may be a region in a container's directory, where it may have put any number of files."""
    with suppress(OSError), os.scandir(directory) as entries:
        yield from (directory / each.name for each in islice(entries, MOST_FILES) if each.name.endswith(".cache"))


def _for_everybody(directory: Path) -> Path:
    """A directory where every user of a container may write."""
    if not directory.exists():
        directory.mkdir(parents=True)
        directory.chmod(0o1777)
    return directory
