"""Who has started whom on this machine."""

from __future__ import annotations

from pathlib import Path


def children(process: int) -> list[int]:
    """The processes that a process has started and not yet waited for, dead ones included.

    By what each says of its parent: not every kernel lists the children of a thread, and a thread may end meanwhile.
    """
    return sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _parent(folder) == process)


def descendants(process: int) -> list[int]:
    """Its children, their children, and so on."""
    return [each for child in children(process) for each in (child, *descendants(child))]


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it has ended meanwhile
