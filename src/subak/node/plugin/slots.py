"""The slots of a node: what kubelet counts, and a folder for each, through which its container gets what is its own.

    slots/slot-7/limits    a link to the limits file of the container that has the slot
                 account   its own directory, in which libsubak counts
                 library   libsubak
                 preload   the list of libraries that every program loads first
                 turns     where all programs on the node's cards take turns
                 state     what the node tells libsubak while the container runs

Kubelet asks for the mounts of a slot before it says whose it is, so it always gets the same six.  A link is followed
when the container is created.  That of a closed slot leads to itself: the container runtime cannot follow it, so that
no container starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from subak.dialects import isolation
from subak.model.device import Device
from subak.model.mount import Mount
from subak.node import trees

FEWEST = 256
"""More containers than usually fit on a node: kubelet takes 110 pods."""

ENTRIES = {
    isolation.HOOK: "account",
    isolation.LIBRARY: "library",  # inside the directory above, so it comes after it
    isolation.LOCKS: "turns",
    isolation.PRELOAD: "preload",
    isolation.LIMITS: "limits",
    isolation.STATE: "state",
}
"""What a slot's folder has for each path in the container."""

_DIRECTORIES = ("account", "turns")
_OWNER, _NOTHING = "owner", "nothing"


def count(devices: Sequence[Device]) -> int:
    """How many slots a node with these cards has: one for each share, and enough for dialects that count none."""
    return max(sum(each.slots for each in devices), FEWEST)


class Slots:
    """The folders, in a directory that containers do not see."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.names: tuple[str, ...] = ()
        self.owners: dict[str, str] = {}
        """Whose each open slot is."""

    def prepare(self, number: int) -> None:
        """Have so many slots, or more.  Raises OSError.

        Those that are not there yet are closed: a container runtime makes what it does not find.
        """
        names = tuple(f"slot-{n}" for n in range(max(number, len(self.names))))
        for name in names[len(self.names) :]:
            if not self._folder(name).exists():
                self.close(name)
            elif owner := self._written(name):
                self.owners[name] = owner
        self.names = names

    def close(self, name: str) -> None:
        """Nobody has the slot.  Raises OSError."""
        folder = self._folder(name)
        self.owners.pop(name, None)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _OWNER).unlink(missing_ok=True)
        for entry in ENTRIES.values():
            _link(folder / entry, folder / entry)
        trees.discard(folder / _NOTHING)

    def open(self, name: str, owner: str, sources: Mapping[str, str]) -> None:
        """The slot is the owner's, who gets these places on the machine, by their path in the container.

        What is not among them is empty.  Raises OSError.
        """
        folder = self._folder(name)
        nothing = folder / _NOTHING
        nothing.mkdir(parents=True, exist_ok=True)
        empty = nothing / Path(isolation.LIBRARY).name  # where the library is mounted
        empty.touch()
        for path, entry in ENTRIES.items():
            _link(folder / entry, Path(sources.get(path) or (nothing if entry in _DIRECTORIES else empty)))
        _write(folder / _OWNER, owner)
        self.owners[name] = owner

    def mounts(self, name: str) -> list[Mount]:
        """What a container with the slot gets mounted."""
        return [
            Mount(path, str(self._folder(name) / entry), read_only=entry not in _DIRECTORIES)
            for path, entry in ENTRIES.items()
        ]

    def _written(self, name: str) -> str:
        """The owner of a slot by its folder; empty if it is closed."""
        try:
            return (self._folder(name) / _OWNER).read_text()
        except OSError:
            return ""

    def _folder(self, name: str) -> Path:
        return self._directory / name


def _link(path: Path, target: Path) -> None:
    begun = path.with_name(f".{path.name}")
    begun.unlink(missing_ok=True)
    begun.symlink_to(target)
    os.replace(begun, path)


def _write(path: Path, text: str) -> None:
    begun = path.with_name(f".{path.name}")
    begun.write_text(text)
    os.replace(begun, path)
