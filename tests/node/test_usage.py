"""What tenants really use; their files may hold anything."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from subak.node import regions, usage
from subak.node.usage import Use

MIB = 1 << 20


def region(path: Path, cores: int = 30) -> Path:
    """A region in HAMi's layout: one process that holds 200 MiB and 12 % of the time of its only card."""
    content = bytearray(regions.HAMI_SIZE)
    struct.pack_into("<iii", content, 0, regions.HAMI_MAGIC, 1, 2)
    struct.pack_into("<Q", content, 56, 1)  # one card
    content[64:69] = b"GPU-a"
    struct.pack_into("<Q", content, 1728, cores)
    struct.pack_into("<i", content, 2_008_896, 1)  # one process
    struct.pack_into("<ii", content, 1856, 77, 77)
    struct.pack_into("<Q", content, 1856 + 8 + 32, 200 * MIB)
    struct.pack_into("<Q", content, 1856 + 1160 + 16, 12)
    struct.pack_into("<i", content, 1856 + 1928, 1)
    path.write_bytes(content)
    return path


def read(path: Path) -> dict[str, Use]:
    return dict(usage.read(path, time.monotonic_ns()))


def test_what_a_region_says(tmp_path: Path) -> None:
    assert read(region(tmp_path / "r")) == {"GPU-a": Use(200 * MIB, 12)}


def test_time_counts_only_where_it_is_limited(tmp_path: Path) -> None:
    assert read(region(tmp_path / "r", cores=100)) == {"GPU-a": Use(200 * MIB, None)}


@pytest.mark.parametrize("what", ["nothing", "text", "directory", "pipe", "link"])
def test_what_is_no_region_says_nothing(tmp_path: Path, what: str) -> None:
    path = tmp_path / "r"
    match what:
        case "text":
            path.write_text("not a region")
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)  # who opens it as usual waits for ever
        case "link":
            path.symlink_to(region(tmp_path / "other"))
    assert read(path) == {}


def test_two_containers_together() -> None:
    assert Use(1, 2) + Use(3, 4) == Use(4, 6)
    assert Use(1, None) + Use(3, 4) == Use(4, None)
