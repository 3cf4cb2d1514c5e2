"""The host's side of what a vendor's plugin mounts into containers, in a folder of ours.

On a node of a cluster the plugin keeps these files under /usr/local, /run and /tmp.  Here those belong to the computer,
where an ordinary user could not write; so each such path has its place in the folder instead.  Only turns are taken
where everybody on the machine takes them.

A real card comes with the library that holds programs to their share.  Simulated ones have no driver that it could
hold: they come with a library that does nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from subak.dialects import Mount, isolation
from subak.local.hardware.library import empty
from subak.model import manifest
from subak.node import library, trees, turns

LIBRARY = f"{isolation.HOST_DIRECTORY}/{library.NAME}"
CONTAINERS = f"{isolation.HOOK}/containers/"
LIMITS = f"{isolation.HOST_LIMITS}/"


class Host:
    """The folder, made when it is first needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def mount(self, mount: Mount, real: bool) -> Mount:
        """The same mount from its place in the folder.

        Without a library the mount for a real card stays as it is: no such file is there, and no container starts.
        Raises NoTurns.
        """
        place = self._place(mount, real)
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

    def _place(self, mount: Mount, real: bool) -> Path | None:
        source = mount.source
        if source.startswith(CONTAINERS):
            return self._for_container(source.removeprefix(CONTAINERS))
        if source.startswith(LIMITS):
            # Not in the container's own directory: there it could write.
            return self._file(f"limits/{source.removeprefix(LIMITS)}", (mount.content or "").encode(), 0o444)
        if source == LIBRARY:
            return self._library(real)
        if source == f"{isolation.HOST_DIRECTORY}/ld.so.preload":
            return self._file("ld.so.preload", f"{isolation.LIBRARY}\n".encode())
        if source == isolation.LOCKS:
            return turns.directory() if real else _for_everybody(self._directory / "vgpulock")
        return None

    def _library(self, real: bool) -> Path | None:
        if not real:
            return self._file("stand-in.so", empty())
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
