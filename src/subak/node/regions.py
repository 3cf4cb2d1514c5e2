"""Regions: the files in which the containers of a node say what they use of their cards.

libsubak keeps one such file in each container (`native/src/region.h` is its layout).  It starts with HAMi's layout,
version 1, so a file of HAMi-core can be read as well, with less in it.  A container can write into its file whatever it
likes: nothing here trusts it.  A file that is no region is an error with a reason; numbers in a region that cannot be
(more memory than any card has, a share above 100) are taken as unknown or cut.

Who has died without a word is still in the file until somebody of the container looks.  A process is left out when it
is known to be gone: in our own pid namespace /proc says so, elsewhere it has not given a sign of life for a while.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CARDS, SLOTS = 16, 1024
SILENT_NS = 5_000_000_000
MOST_BYTES = 1 << 50
"""More than any card has; a larger figure is a scribble."""
MOST_CONTAINERS = 1 << 16

HAMI_MAGIC, OWN_MAGIC, OWN_VERSION = 19920718, 0x6B61627573, 1
HAMI_SIZE, OWN_START = 2_008_952, 2_011_136
_UUIDS, _MEMORY, _CORES, PROCESSES, _PROCESS_SIZE = 64, 1600, 1728, 1856, 1960
_COUNT, _PRIORITY, LAST_KERNEL = 2_008_896, 2_008_908, 2_008_912
SLOTS_START, LINE = OWN_START + 4096, 64
CONTAINER = 32
_USES = SLOTS_START + SLOTS * LINE
COMPUTE, COMPUTE_SIZE = _USES + CARDS * SLOTS * LINE, 256
OWN_SIZE = COMPUTE + CARDS * COMPUTE_SIZE
PREPARED_SIZE = -(-OWN_SIZE // 4096) * 4096
"""Size of a file of zeros that the library makes a region of, even in a program that may not write such a file."""
CHANGING = 1 << 63
"""Bit of a slot's owner while the slot is being taken or given up."""


class NoRegion(ValueError):
    """The file is not a region, or not a whole one; the text says what is wrong with it."""


class Missing(NoRegion):
    """There is no file, or one that is only prepared: nobody in the container has used a card yet."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a container: what it holds on each card, by the card's number in the container."""

    pid: int
    """Its number in the container."""
    used_bytes: tuple[int, ...]
    core_percent: tuple[int, ...]
    container: int | None = None
    """The position of its container in the pod; None where the region does not tell."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card as one container has it."""

    uuid: str
    memory_limit_bytes: int | None
    core_limit_percent: int | None
    used_bytes: int
    core_percent: int


@dataclass(frozen=True, slots=True)
class Region:
    """One container's file at one moment."""

    path: Path
    cards: tuple[Card, ...]
    processes: tuple[Process, ...]
    priority: int
    last_kernel: int
    """Seconds since the epoch; 0 if never."""


def read(path: Path, now_ns: int) -> Region:
    """The region in a file.  `now_ns` is the monotonic clock, which is one for all containers of a machine."""
    with opened(path, os.O_RDONLY) as file:
        content = bytearray(min(os.fstat(file).st_size, OWN_SIZE))
        _fill(content, file, _COUNT, HAMI_SIZE)
        count = _process_count(content) if len(content) >= HAMI_SIZE else 0
        _fill(content, file, 0, PROCESSES + count * _PROCESS_SIZE)
        _fill(content, file, OWN_START, SLOTS_START + count * LINE)
        for start in (_USES + card * SLOTS * LINE for card in range(CARDS)):
            _fill(content, file, start, start + count * LINE)
    return parse(content, path, now_ns)


def _fill(content: bytearray, file: int, start: int, end: int) -> None:
    """Read a part of the file: most of its 3 MB is room for processes that are not there."""
    with memoryview(content) as whole, whole[start:end] as part:
        os.preadv(file, [part], start)


@contextmanager
def opened(path: Path, mode: int) -> Iterator[int]:
    """The file; never mapped, for its tenant can cut it short.  Raises NoRegion for all that goes wrong with it."""
    try:
        # The container can put a pipe there, which would make us wait, or a link to a file of somebody else.
        file = os.open(path, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise Missing(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise NoRegion(f"{path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NoRegion(f"{path}: not an ordinary file")
        yield file
    except OSError as error:
        raise NoRegion(f"{path}: {error.strerror}") from None
    finally:
        os.close(file)


def parse(content: bytes | bytearray, path: Path, now_ns: int) -> Region:
    """The region that these bytes are."""
    if len(content) < HAMI_SIZE:
        raise NoRegion(f"{path}: {len(content)} bytes, a region has at least {HAMI_SIZE}")
    check(content, path)
    processes = tuple(_processes(content, now_ns))
    (last_kernel,) = struct.unpack_from("<q", content, LAST_KERNEL)
    (priority,) = struct.unpack_from("<i", content, _PRIORITY)
    return Region(path, tuple(_cards(content, processes)), processes, priority, max(0, last_kernel))


def check(head: bytes | bytearray, path: Path) -> None:
    """Raise NoRegion unless a region starts with these bytes."""
    if len(head) < PROCESSES:
        raise NoRegion(f"{path}: {len(head)} bytes, a region has at least {HAMI_SIZE}")
    magic, major, minor = struct.unpack_from("<iii", head)
    if not magic:
        raise Missing(f"{path}: prepared, and nobody has used a card yet")
    if magic != HAMI_MAGIC:
        raise NoRegion(f"{path}: starts with {magic}, a region with {HAMI_MAGIC}")
    if major != 1:
        raise NoRegion(f"{path}: layout {major}.{minor}, this program reads 1.x")


def uuids_in(content: bytes | bytearray) -> Iterator[str]:
    """The cards of a container in the order of their numbers there."""
    (count,) = struct.unpack_from("<Q", content, 56)
    for number in range(min(count, CARDS)):
        raw = content[_UUIDS + 96 * number : _UUIDS + 96 * (number + 1)].split(b"\0", 1)[0]
        yield "".join(letter for letter in raw.decode("ascii", "replace") if letter.isprintable())


def _cards(content: bytes | bytearray, processes: tuple[Process, ...]) -> Iterator[Card]:
    memory = struct.unpack_from(f"<{CARDS}Q", content, _MEMORY)
    cores = struct.unpack_from(f"<{CARDS}Q", content, _CORES)
    for number, uuid in enumerate(uuids_in(content)):
        yield Card(
            uuid=uuid,
            memory_limit_bytes=memory[number] if 0 < memory[number] <= MOST_BYTES else None,
            core_limit_percent=cores[number] if 0 < cores[number] < 100 else None,
            used_bytes=sum(process.used_bytes[number] for process in processes),
            core_percent=min(100, sum(process.core_percent[number] for process in processes)),
        )


def _processes(content: bytes | bytearray, now_ns: int) -> Iterator[Process]:
    own = is_ours(content[OWN_START : OWN_START + 16], len(content))
    for slot in range(_process_count(content)):
        start = PROCESSES + slot * _PROCESS_SIZE
        pid, _, status = *struct.unpack_from("<ii", content, start), *struct.unpack_from("<i", content, start + 1928)
        if pid <= 0 or not (_alive(content, slot, pid, status, now_ns) if own else status):
            continue
        used = tuple(
            _own_use(content, card, slot)
            if own
            else _sane(struct.unpack_from("<Q", content, start + 8 + 64 * card + 32)[0])
            for card in range(CARDS)
        )
        util = (struct.unpack_from("<Q", content, start + 1160 + 48 * card + 16)[0] for card in range(CARDS))
        container = struct.unpack_from("<Q", content, SLOTS_START + slot * LINE + CONTAINER)[0] if own else 0
        known = container - 1 if 0 < container <= MOST_CONTAINERS else None
        yield Process(pid, used, tuple(min(100, percent) for percent in util), known)


def _process_count(content: bytes | bytearray) -> int:
    (count,) = struct.unpack_from("<i", content, _COUNT)
    return count if 0 <= count <= SLOTS else SLOTS


def is_ours(head: bytes | bytearray, size: int) -> bool:
    """Whether our own part follows HAMi's in a file of this size; `head` is what stands at OWN_START."""
    return size >= OWN_SIZE and struct.unpack_from("<QII", head) == (OWN_MAGIC, OWN_VERSION, OWN_SIZE)


def _own_use(content: bytes | bytearray, card: int, slot: int) -> int:
    charged, overhead, managed = struct.unpack_from("<QQQ", content, _USES + (card * SLOTS + slot) * LINE)
    return _sane(charged) + _sane(overhead) + _sane(managed)


def _sane(figure: int) -> int:
    return figure if figure <= MOST_BYTES else 0


def _alive(content: bytes | bytearray, slot: int, pid: int, status: int, now_ns: int) -> bool:
    """Whether a process is there.  One that took its leave (no status) holds its memory until the kernel is done."""
    owner, namespace, beat = struct.unpack_from("<QQQ", content, SLOTS_START + slot * LINE)
    if not owner or owner & CHANGING or owner & 0xFFFFFFFF != pid:
        return False
    if namespace and namespace == _own_namespace() and (started := _started(pid)) is not None:
        return bool(started & 0x7FFFFFFF == owner >> 32)
    # A beat far ahead is a scribble, or of before the machine was started.
    return bool(status and abs(now_ns - beat) < SILENT_NS)


def _own_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _started(pid: int) -> int | None:
    """When a process of this machine started, as libsubak writes it: clock ticks plus one.

    0 if it is gone; None if it is not ours to know (another user's, where /proc is mounted with hidepid).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        gone = fields[0] in "ZX" and int(fields[17]) <= 1
        return 0 if gone else int(fields[19]) + 1
    except OSError:
        return None if _exists(pid) else 0
    except (IndexError, ValueError):
        return 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
