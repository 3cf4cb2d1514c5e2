"""Regions as libsubak and HAMi-core write them, byte by byte."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from subak.node import regions

MIB = 1 << 20
NOW = 1_000_000_000_000
SOMEWHERE_ELSE = 12345
"""A pid namespace that is not ours."""


def region(*, own: bool = True, cards: int = 1, limit: int = 1024 * MIB, cores: int = 50) -> bytearray:
    """A region without processes; the cards are GPU-00, GPU-01, ..."""
    content = bytearray(regions.OWN_SIZE if own else regions.HAMI_SIZE + 1)
    struct.pack_into("<iii", content, 0, regions.HAMI_MAGIC, 1, 2)
    struct.pack_into("<Q", content, 56, cards)
    for card in range(min(cards, regions.CARDS)):
        content[64 + 96 * card : 64 + 96 * card + 6] = f"GPU-{card:02}".encode()
        struct.pack_into("<Q", content, 1600 + 8 * card, limit)
        struct.pack_into("<Q", content, 1728 + 8 * card, cores)
    if own:
        struct.pack_into("<QII", content, regions.OWN_START, regions.OWN_MAGIC, regions.OWN_VERSION, regions.OWN_SIZE)
    return content


def add(
    content: bytearray,
    slot: int,
    pid: int,
    used: int,
    *,
    beat: int = NOW,
    namespace: int = SOMEWHERE_ELSE,
    start: int = 7,
    card: int = 0,
    container: int | None = None,
) -> None:
    """A process with memory on a card, in HAMi's part and (where there is one) in ours."""
    at = 1856 + 1960 * slot
    struct.pack_into("<ii", content, at, pid, pid)
    struct.pack_into("<Q", content, at + 8 + 64 * card + 32, used)
    struct.pack_into("<i", content, at + 1928, 1)
    struct.pack_into("<i", content, 2_008_896, slot + 1)
    if len(content) == regions.OWN_SIZE:
        own = regions.OWN_START + 4096
        struct.pack_into("<QQQ", content, own + 64 * slot, start << 32 | pid, namespace, beat)
        struct.pack_into("<Q", content, own + 64 * slot + 32, 0 if container is None else container + 1)
        uses = own + 64 * regions.SLOTS + (card * regions.SLOTS + slot) * 64
        struct.pack_into("<QQQ", content, uses, used - 2 * MIB, MIB, MIB)


def add_me(content: bytearray, used: int) -> None:
    """This process, which lives as long as the test does."""
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) + 1
    add(content, 0, os.getpid(), used, namespace=os.stat("/proc/self/ns/pid").st_ino, start=start)


def work(content: bytearray, moment: int, *, card: int = 0, charged: int = 0) -> None:
    """The tenant had work for a card at this moment of the monotonic clock, and so much time was charged so far."""
    at = regions.COMPUTE + card * regions.COMPUTE_SIZE
    struct.pack_into("<Q", content, at + 16, charged)
    struct.pack_into("<Q", content, at + 248, moment)


def launched(content: bytearray, seconds: int) -> None:
    """The tenant had work for any of its cards at this time of day, as HAMi-core tells it."""
    struct.pack_into("<q", content, regions.LAST_KERNEL, seconds)
