"""The host's side of what a vendor's plugin mounts into containers, in a folder of ours.

On a node of a cluster the plugin keeps these files under /usr/local and /tmp.  Here those belong to the computer, where
an ordinary user could not write; so each such path has its place in the folder instead.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from subak.dialects import Mount, isolation
from subak.local.hardware import library
from subak.model import manifest

INSTALLED = Path(isolation.HOST_DIRECTORY) / "libsubak.so"
"""The library that holds programs to their share, where it has been installed."""

CONTAINERS = f"{isolation.HOOK}/containers/"


class Host:
    """The folder, made when it is first needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = INSTALLED if INSTALLED.exists() else directory / INSTALLED.name
        self._preload = directory / "ld.so.preload"
        self._locks = directory / "vgpulock"

    def mount(self, mount: Mount) -> Mount:
        """The same mount from its place in the folder."""
        source = mount.source
        if source.startswith(CONTAINERS):
            place = self._for_container(source.removeprefix(CONTAINERS))
        elif source == str(INSTALLED):
            place = self._file(self._library, library.empty())
        elif source == f"{isolation.HOST_DIRECTORY}/ld.so.preload":
            place = self._file(self._preload, f"{isolation.LIBRARY}\n".encode())
        elif source == isolation.LOCKS:
            place = _for_everybody(self._locks)
        else:
            return mount
        return replace(mount, source=str(place))

    def remove(self, pod: manifest.Pod) -> None:
        """Throw away what the pod's containers had."""
        for container in pod.containers:
            shutil.rmtree(self._directory / "containers" / isolation.owner(pod, container), ignore_errors=True)

    def _for_container(self, owner: str) -> Path:
        place = _for_everybody(self._directory / "containers" / owner)
        self._file(place / Path(isolation.LIBRARY).name, b"")  # the library is mounted over it
        return place

    @staticmethod
    def _file(path: Path, content: bytes) -> Path:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)
        return path


def _for_everybody(directory: Path) -> Path:
    """A directory where every user of a container may write."""
    if not directory.exists():
        directory.mkdir(parents=True)
        directory.chmod(0o1777)
    return directory
