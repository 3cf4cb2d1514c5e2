"""The write-ahead log of a SQLite file, `state.db-wal`, and whether all of it is there.

    header   magic, format, page size, ..., two salts, sum of the header
    frame    page number, size of the database if this frame is a commit, the salts, sum of all so far; then a page

SQLite reads the log up to the first frame that does not fit, and takes what is behind it for remains.  That is right
after a kill, which leaves half a write at the end, and after a restart of the log, which leaves frames with other
salts.  It is wrong if a frame in the middle was damaged: what was committed behind it would be gone without a word.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from tinykube.server.state import Damaged

_MAGIC = 0x377F0682
"""Its last bit says in which order the bytes of a number are summed up."""
_HEADER, _FRAME = 32, 24
_PAGE_SIZES = {1 << power for power in range(9, 17)}

Sum = tuple[int, int]


def path_of(file: Path) -> Path:
    """The log of a database."""
    return file.with_name(f"{file.name}-wal")


def check(file: Path) -> None:
    """Refuse a database whose log lacks something in its middle.  Raises Damaged and OSError.

    Nobody may write to the database meanwhile.
    """
    path = path_of(file)
    content = _content(path)
    if content.count(0) == len(content):  # as it is made, before the first write
        return
    header = _Header.of(content)
    if header is None:
        raise Damaged(f"{path}: damaged: its header is not that of a log")
    frames = _frames(content, header.page)
    sound = _sound(header, frames)
    if any(header.has_written(frame) and _is_commit(frame) for frame in frames):
        raise Damaged(f"{path}: damaged: frame {sound + 1} has changed, and changes behind it would be lost")


@dataclass(frozen=True, slots=True)
class _Header:
    order: Literal["<", ">"]
    page: int
    salts: bytes
    sum: Sum

    @classmethod
    def of(cls, content: bytes) -> Self | None:
        if len(content) < _HEADER:
            return None
        magic, _, page = struct.unpack_from(">3I", content)
        first, second = struct.unpack_from(">2I", content, 24)
        order: Literal["<", ">"] = "<" if magic & 1 == 0 else ">"
        if magic | 1 != _MAGIC | 1 or page not in _PAGE_SIZES or _sum(order, content[:24], (0, 0)) != (first, second):
            return None
        return cls(order, page, content[16:24], (first, second))

    def has_written(self, frame: bytes) -> bool:
        """Whether a frame is of this turn of the log, and not left from an earlier one."""
        return frame[8:16] == self.salts


def _content(path: Path) -> bytes:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # it may be a pipe
    except FileNotFoundError:
        return b""
    with open(opened, "rb") as log:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise Damaged(f"{path}: it is no plain file")
        return log.read()


def _frames(content: bytes, page: int) -> Iterator[bytes]:
    size = _FRAME + page
    for start in range(_HEADER, len(content) - size + 1, size):
        yield content[start : start + size]


def _sound(header: _Header, frames: Iterator[bytes]) -> int:
    """How many frames fit; takes them from the others, with the first that does not."""
    after = header.sum
    for number, frame in enumerate(frames):
        after = _sum(header.order, frame[_FRAME:], _sum(header.order, frame[:8], after))
        if not header.has_written(frame) or after != struct.unpack_from(">2I", frame, 16):
            return number
    return 0


def _is_commit(frame: bytes) -> bool:
    return frame[4:8] != bytes(4)


def _sum(order: Literal["<", ">"], data: bytes, before: Sum) -> Sum:
    """The sum that SQLite makes of a multiple of eight bytes."""
    first, second = before
    numbers = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(numbers, numbers, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
