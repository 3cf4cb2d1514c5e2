"""A shared library that does nothing: what simulated hardware has in the place of the vendors' libraries.

Programs load it where their vendor's image has a library, or copy it.  An empty file there would make the dynamic
loader complain with every program; this one loads, and exports nothing.
"""

from __future__ import annotations

import struct
import sys
from functools import cache
from pathlib import Path

_PAGE = 0x10000
"""The largest page size that any 64-bit Linux uses."""

_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ_WRITE = 6
_SHARED_OBJECT = 3
_HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE = 4, 5, 6, 10, 11


@cache
def empty() -> bytes:
    """The library, for the processor of this computer; no bytes at all where programs are not 64-bit ELF files."""
    with Path(sys.executable).open("rb") as file:
        own = file.read(64)
    if own[:5] != b"\x7fELF\x02":
        return b""
    order = "<" if own[5] == 1 else ">"
    (machine,), (flags,) = struct.unpack_from(f"{order}H", own, 18), struct.unpack_from(f"{order}I", own, 48)
    headers = 64 + 3 * 56
    table = struct.pack(f"{order}4I", 1, 1, 0, 0)  # a hash table with one empty bucket
    symbols = bytes(24)
    strings = bytes(8)
    at = [headers, headers + len(table), headers + len(table) + len(symbols)]
    dynamic_at = at[2] + len(strings)
    entries = {_HASH: at[0], _SYMBOLS: at[1], _STRINGS: at[2], _STRINGS_SIZE: 1, _SYMBOL_SIZE: 24, 0: 0}
    dynamic = b"".join(struct.pack(f"{order}2Q", tag, value) for tag, value in entries.items())
    size = dynamic_at + len(dynamic)
    header = own[:16] + struct.pack(
        f"{order}2HI3QI6H", _SHARED_OBJECT, machine, 1, 0, 64, 0, flags, 64, 56, 3, 64, 0, 0
    )
    segments = (
        (_LOAD, 0, size, _PAGE),
        (_DYNAMIC, dynamic_at, len(dynamic), 8),
        (_STACK, 0, 0, 16),
    )
    programs = b"".join(
        struct.pack(f"{order}2I6Q", type, _READ_WRITE, offset, offset, offset, length, length, align)
        for type, offset, length, align in segments
    )
    return header + programs + table + symbols + strings + dynamic
