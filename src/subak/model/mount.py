"""What a container sees of the machine's files, and what for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Purpose(Enum):
    """What a mount is for.  The node knows where its own side of each lies; a mount of no purpose is taken as it is."""

    NONE = auto()
    ACCOUNT = auto()  # the container's own directory, in which libsubak counts what it uses
    LIBRARY = auto()  # libsubak itself
    PRELOAD = auto()  # the list of libraries that every program loads first
    TURNS = auto()  # the directory in which all programs on the machine's cards take turns
    LIMITS = auto()  # the file of limits, which the node writes and the container cannot change
    STATE = auto()  # the file in which the node says what holds at the moment; the container cannot change it either


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of the machine that the container sees at `destination`, or a tmpfs of its own there.

    Parent directories and the destination itself come into being in the container's private layer.  `source` is a path
    on the machine; a tmpfs has none.  `size` is the most bytes that a tmpfs may hold; 0 leaves it to the kernel, half
    of the memory.  `content` is what the node writes into a file of limits.

    `beneath` is a path below the source: only that part is seen.  It is made if it is not there, and no link in it
    leads out of the source.  Where it cannot be had, `refusal` says so to the pod's user, who must not learn about the
    machine's own files.

    `true_ids`: owners of files are the same inside and outside, even where the ids of containers are shifted.  So root
    inside writes as the machine's root there.
    """

    destination: str
    source: str = ""
    read_only: bool = False
    size: int = 0
    purpose: Purpose = Purpose.NONE
    content: str = ""
    beneath: str = ""
    refusal: str = ""
    true_ids: bool = False
