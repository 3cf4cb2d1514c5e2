"""Writes a container's output to its log file: each line with time, stream and whether it is whole (see `spec`).

A line longer than PIECE is written in pieces, all but the last marked as partial.  Output that ends without a newline
is partial too.  If the disk is full, lines are lost, but the container runs on.
"""

from __future__ import annotations

import os
import time

from .bare import suppress

PIECE = 16 << 10
"""Bytes, as in containerd."""


class Log:
    """The file, and the one before it."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file = -1
        self._size = 0
        self._open()

    def write(self, content: bytes) -> None:
        """Append whole entries; begin a new file once this one is large enough."""
        with suppress(OSError):
            if self._size >= self._limit:
                os.replace(self._path, self._path + ".1")
                full = self._file
                self._open()
                os.close(full)
            while content:
                written = os.write(self._file, content)
                self._size += written
                content = content[written:]

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._file).st_size


class Stream:
    """Standard output or standard error on its way to the log."""

    def __init__(self, log: Log, name: bytes) -> None:
        self._log = log
        self._name = name
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take in more output; an unfinished line waits for its rest."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        whole, partial = self._prefixes()
        entries = []
        for line in lines:
            while len(line) > PIECE:
                entries.append(partial + line[:PIECE])
                line = line[PIECE:]
            entries.append(whole + line)
        while len(self._rest) > PIECE:
            entries.append(partial + self._rest[:PIECE])
            self._rest = self._rest[PIECE:]
        if entries:
            entries.append(b"")
            self._log.write(b"\n".join(entries))

    def end(self) -> None:
        """Write the unfinished line, since no more output comes."""
        if self._rest:
            self._log.write(self._prefixes()[1] + self._rest + b"\n")
            self._rest = b""

    def _prefixes(self) -> tuple[bytes, bytes]:
        seconds, rest = divmod(time.time_ns(), 10**9)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"
        start = stamp.encode() + b" " + self._name
        return start + b" F ", start + b" P "
