"""The host's side of what is mounted into containers, in a folder of ours.

On a node of a cluster a vendor's plugin keeps these files under /usr/local, /run and /tmp.  Here those belong to the
computer, where an ordinary user could not write; so each has its place in the folder instead.  Only turns on real cards
are taken where everybody on the machine takes them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from subak.dialects import isolation
from subak.model import manifest
from subak.model.mount import Mount, Purpose
from subak.node import library, trees, turns


class Host:
    """The folder, made when it is first needed.  The programs on `simulated` cards take turns there."""

    def __init__(self, directory: Path, simulated: bool = False) -> None:
        self._directory = directory
        self._simulated = simulated

    def mount(self, mount: Mount, pod: manifest.Pod, container: manifest.Container) -> Mount:
        """A container's mount from its place in the folder.

        Without a library its mount stays as it is: no such file is there, and no container starts.
        Raises NoTurns.
        """
        place = self._place(mount, isolation.owner(pod, container))
        return mount if place is None else replace(mount, source=str(place))

    def region(self, pod: manifest.Pod, container: manifest.Container) -> Path:
        """Where a container keeps its region."""
        owner = isolation.owner(pod, container)
        return self._of_container(owner) / f"{owner}.cache"

    def forget_use(self, pod: manifest.Pod, container: manifest.Container) -> None:
        """Throw a container's region away: it lists who ran before, and nobody inside can know that they ended."""
        trees.discard(self.region(pod, container))

    def remove(self, pod: manifest.Pod) -> None:
        """Throw away what the pod's containers had."""
        for container in pod.containers:
            owner = isolation.owner(pod, container)
            trees.discard(self._of_container(owner))
            (self._directory / "limits" / owner).unlink(missing_ok=True)

    def _place(self, mount: Mount, owner: str) -> Path | None:
        match mount.purpose:
            case Purpose.NONE:
                return None
            case Purpose.ACCOUNT:
                return self._for_container(owner)
            case Purpose.LIMITS:
                # Not in the container's own directory: there it could write.
                return self._file(f"limits/{owner}", mount.content.encode(), 0o444)
            case Purpose.LIBRARY:
                return self._library()
            case Purpose.PRELOAD:
                return self._file("ld.so.preload", f"{isolation.LIBRARY}\n".encode())
            case Purpose.TURNS:
                return _for_everybody(self._directory / "vgpulock") if self._simulated else turns.directory()

    def _library(self) -> Path | None:
        try:
            # A copy: running containers keep theirs when it is built or installed anew.
            return self._file(library.NAME, library.find().read_bytes())
        except library.NoLibrary:
            return None

    def _of_container(self, owner: str) -> Path:
        return self._directory / "containers" / owner

    def _for_container(self, owner: str) -> Path:
        place = _for_everybody(self._of_container(owner))
        self._file(f"containers/{owner}/{Path(isolation.LIBRARY).name}", b"")  # the library is mounted over it
        return place

    def _file(self, name: str, content: bytes, mode: int = 0o755) -> Path:
        path = self._directory / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            begun = path.with_name(f".{path.name}")  # a full disk leaves a part of it, which must not pass for the file
            begun.write_bytes(content)
            begun.chmod(mode)
            begun.replace(path)
        return path


def _for_everybody(directory: Path) -> Path:
    """A directory where every user of a container may write."""
    if not directory.exists():
        directory.mkdir(parents=True)
        directory.chmod(0o1777)
    return directory
