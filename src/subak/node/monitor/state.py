"""A container's state: the small file in which the agent says what holds at the moment (`words`).

The container has it read-only, so it cannot lift its own share.  It is written in place, because it is mounted by
itself; libsubak (`native/src/state.c`) looks five times a second:

    offset  0  uint64  MAGIC
    offset  8  uint64  beat: CLOCK_MONOTONIC in ns when the agent last wrote; 0 never
    offset 16  uint32  a word for each card, numbered as in the container's file of limits

It counts only while the agent lives: 3 s after the last beat nobody is blocked any more, and every share holds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from subak.node.monitor.words import Word

MAGIC = int.from_bytes(b"skstate1", "little")
CARDS, SIZE = 16, 4096
STALE_NS = 3_000_000_000

_HEAD, _WORDS = struct.Struct("<QQ"), struct.Struct(f"<{CARDS}I")
EMPTY = _HEAD.pack(MAGIC, 0).ljust(SIZE, b"\0")
"""A state that says nothing: the agent has not spoken yet."""


def write(path: Path, words: Mapping[int, Word], now_ns: int) -> None:
    """Say what holds now, by the cards' numbers.  Raises OSError; a container that is gone has no state."""
    numbers = [words.get(number, Word.NOTHING).value for number in range(CARDS)]
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # First what holds, then the beat: of two agents' words no mixture is ever fresh.
        os.pwrite(file, _WORDS.pack(*numbers), _HEAD.size)
        os.pwrite(file, _HEAD.pack(MAGIC, now_ns), 0)
    finally:
        os.close(file)


def read(path: Path, now_ns: int) -> dict[int, Word]:
    """What holds, by the cards' numbers, as libsubak understands it; nothing if the agent is silent."""
    content = path.read_bytes()
    if len(content) < SIZE:
        return {}
    magic, beat = _HEAD.unpack_from(content)
    if magic != MAGIC or abs(now_ns - beat) >= STALE_NS:
        return {}
    known = (Word.LIFTED | Word.BLOCKED).value
    return {number: Word(each & known) for number, each in enumerate(_WORDS.unpack_from(content, _HEAD.size))}
