"""Logs of containers: finds the log of the right attempt, and reads it as `kubectl logs` asks.

Each attempt of a container has its own file, `CONTAINER/RESTARTS.log`, in the format of the Container Runtime Interface
(see `runtime.spec`); a long one has an older part beside it, `RESTARTS.log.1`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tinykube.server.kubelet import LogOptions
from tinykube.status import ApiError

CHUNK = 1 << 16
LOOK_AGAIN = 0.05
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The first second of the year 1 and the last of the year 9999: what is beyond has no date."""


def attempt(pod: dict[str, Any], container: str, previous: bool) -> int:
    """The attempt whose log to read.  Raises ApiError with a kubelet's answer if there is none."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    found = next((each for each in statuses if each["name"] == container), None)
    if found is None:
        raise _bad(f'container "{container}" in pod "{name}" is not available')
    state, last = found.get("state") or {}, (found.get("lastState") or {}).get("terminated")
    ran_before = bool(last and last.get("containerID"))
    restarts = int(found.get("restartCount") or 0)
    waits = "running" not in state and "terminated" not in state
    if previous:
        if not ran_before:
            raise _bad(f'previous terminated container "{container}" in pod "{name}" not found')
        return restarts if waits else restarts - 1
    if not waits:
        if "terminated" in state and not state["terminated"].get("containerID") and not ran_before:
            raise _bad(f'container "{container}" in pod "{name}" is terminated')
        return restarts
    if ran_before:
        return restarts
    reason = (state.get("waiting") or {}).get("reason")
    if reason:
        raise _bad(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    raise _bad(f'container "{container}" in pod "{name}" is waiting to start - no logs yet')


def _bad(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def opened(path: Path) -> BinaryIO:
    """A file to read.  Raises OSError, also if it is no plain file: a pipe would keep us waiting for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return os.fdopen(descriptor, "rb")


async def read(path: Path, options: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The output in a log file; with `follow`, also further output until the container has `ended`."""
    left = options.limit_bytes
    printer = _Printer(options)
    async for data in _lines(path, options, ended):
        text = printer.print(data)
        if left is not None:
            text = text[:left]
            left -= len(text)
        if text:
            yield text
        if left is not None and left <= 0:
            return


class _Printer:
    """Turns lines of the file back into output."""

    def __init__(self, options: LogOptions) -> None:
        self._timestamps = options.timestamps
        self._since = b"" if options.since is None else _stamp(options.since)
        self._within_line = False

    def print(self, lines: list[bytes]) -> bytes:
        out = []
        for line in lines:
            parts = line.split(b" ", 3)
            if len(parts) < 4 or parts[0] < self._since:
                continue
            stamp, _, tag, text = parts
            if self._timestamps and not self._within_line:
                out.append(stamp + b" ")
            self._within_line = tag.startswith(b"P")
            out.append(text if self._within_line else text + b"\n")
        return b"".join(out)


def _stamp(moment: float) -> bytes:
    """A moment as logs write it; the first or the last that has four digits for its year, if it is beyond them."""
    second, nanos = divmod(round(min(max(moment, _FIRST), _LAST) * 10**9), 10**9)
    date = time.gmtime(second)
    # `%Y` has fewer than four digits for early years, which would then come after later ones.
    return f"{date.tm_year:04}-{time.strftime('%m-%dT%H:%M:%S', date)}.{nanos:09d}Z".encode()


async def _lines(path: Path, options: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[list[bytes]]:
    """Whole lines of the file, from where the options want them."""
    older = path.with_name(path.name + ".1")
    skip = None if options.tail_lines is None else _skip([older, path], options.tail_lines)
    for index, each in enumerate((older, path)):
        try:
            file = opened(each)
        except OSError:
            if each is path and options.follow and not ended():
                async for lines in _follow(path, None, ended):
                    yield lines
            continue
        try:
            if skip is not None:
                file.seek(skip[index])
            for lines in _whole(file):
                yield lines
                await asyncio.sleep(0)
            if each is path and options.follow:
                async for lines in _follow(path, file, ended):
                    yield lines
        finally:
            file.close()


def _whole(file: BinaryIO) -> Iterator[list[bytes]]:
    """The rest of the file in whole lines; leaves the file at the beginning of an unfinished line."""
    while True:
        start = file.tell()
        data = file.read(CHUNK)
        end = data.rfind(b"\n")
        while data and end < 0 and (more := file.read(CHUNK)):
            data += more
            end = data.rfind(b"\n")
        if end < 0:
            file.seek(start)
            return
        file.seek(start + end + 1)
        yield data[:end].split(b"\n")


async def _follow(path: Path, file: BinaryIO | None, ended: Callable[[], bool]) -> AsyncIterator[list[bytes]]:
    """Lines that are added later.  The file may not exist yet, and may be replaced by a new one."""
    own: BinaryIO | None = None
    try:
        while True:
            last = ended()
            if file is None:
                try:
                    file = own = opened(path)
                except OSError:
                    if last:
                        return
            if file is not None:
                replaced = _replaced(path, file)
                for lines in _whole(file):
                    yield lines
                if replaced:
                    if own is not None:
                        own.close()
                    file = own = None
                    continue
            if last:
                return
            await asyncio.sleep(LOOK_AGAIN)
    finally:
        if own is not None:
            own.close()


def _replaced(path: Path, file: BinaryIO) -> bool:
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _skip(paths: list[Path], lines: int) -> list[int]:
    """The position in each file where the last so many lines begin."""
    offsets = []
    for path in reversed(paths):
        try:
            with opened(path) as file:
                offset, found = _tail(file, lines)
        except OSError:
            offset, found = 0, 0
        offsets.append(offset)
        lines -= found
    return offsets[::-1]


def _tail(file: BinaryIO, lines: int) -> tuple[int, int]:
    """The position where the last `lines` lines begin, and how many there are."""
    position = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return position, 0
    found = 0
    end = position
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        file.seek(position)
        data = file.read(step)
        at = len(data)
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            if position + at == end - 1:
                continue  # the end of the last line
            found += 1
            if found == lines:
                return position + at + 1, lines
    return 0, found + (end > 0)


def excerpt(path: Path, lines: int) -> bytes:
    """The last lines of output."""
    try:
        with opened(path) as file:
            file.seek(_tail(file, lines)[0])
            return b"".join(_Printer(LogOptions()).print(each) for each in _whole(file))
    except OSError:
        return b""
