"""What a node reads from the files of its containers, sound and unsound."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node import regions
from subak.node.regions import NoRegion, Region
from tests.support.fuzz import examples
from tests.support.regions import MIB, NOW, add, region


def read(content: bytes | bytearray) -> Region:
    return regions.parse(bytes(content), Path("test.cache"), NOW)


def test_a_container_shows_its_limit_use_and_processes() -> None:
    content = region(cards=2)
    add(content, 0, 17, 100 * MIB)
    add(content, 1, 18, 200 * MIB, card=1)
    found = read(content)
    assert [card.uuid for card in found.cards] == ["GPU-00", "GPU-01"]
    assert [card.used_bytes for card in found.cards] == [100 * MIB, 200 * MIB]
    assert found.cards[0].memory_limit_bytes == 1024 * MIB
    assert found.cards[0].core_limit_percent == 50
    assert [process.pid for process in found.processes] == [17, 18]


def test_no_limit_is_none() -> None:
    card = read(region(limit=0, cores=100)).cards[0]
    assert card.memory_limit_bytes is None
    assert card.core_limit_percent is None


def test_a_file_of_hami_core_is_read_too() -> None:
    content = region(own=False)
    add(content, 0, 17, 100 * MIB)
    assert read(content).cards[0].used_bytes == 100 * MIB


def test_a_process_without_a_sign_of_life_is_left_out() -> None:
    content = region()
    add(content, 0, 17, 100 * MIB, beat=NOW - 11_000_000_000)
    add(content, 1, 18, 200 * MIB, beat=NOW - 1_000_000_000)
    assert [process.pid for process in read(content).processes] == [18]


def test_who_takes_its_leave_holds_its_memory_until_it_is_gone() -> None:
    """The driver may need seconds to give back what a process held that ended."""
    content, namespace = region(), os.stat("/proc/self/ns/pid").st_ino
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) + 1
    add(content, 0, os.getpid(), 100 * MIB, namespace=namespace, start=start)
    add(content, 1, 17, 200 * MIB)  # which we cannot ask for
    for slot in (0, 1):
        struct.pack_into("<i", content, 1856 + 1960 * slot + 1928, 0)
    assert read(content).cards[0].used_bytes == 100 * MIB


def test_signs_of_life_from_before_the_machine_was_restarted_are_none() -> None:
    """The monotonic clock began anew, so they are in the future until the machine has run as long as it had then."""
    content = region()
    add(content, 0, 17, 100 * MIB, beat=NOW + 30 * 86_400_000_000_000)
    add(content, 1, 18, 200 * MIB, beat=NOW + 1_000_000)  # written while we looked at the clock
    assert [process.pid for process in read(content).processes] == [18]


def test_in_our_own_namespace_proc_says_who_lives() -> None:
    content = region()
    namespace, me = os.stat("/proc/self/ns/pid").st_ino, os.getpid()
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) + 1
    add(content, 0, me, 100 * MIB, namespace=namespace, start=start, beat=0)
    add(content, 1, me, 100 * MIB, namespace=namespace, start=start + 1)  # an earlier process of the same number
    add(content, 2, 2**22 + 1, 100 * MIB, namespace=namespace)  # no such number
    assert [process.pid for process in read(content).processes] == [me]
    assert read(content).cards[0].used_bytes == 100 * MIB


def test_another_users_process_that_proc_hides_lives_while_it_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc is mounted with hidepid."""
    content, namespace = region(), os.stat("/proc/self/ns/pid").st_ino
    add(content, 0, 1, 100 * MIB, namespace=namespace, beat=NOW - regions.SILENT_NS + 1)
    add(content, 1, 1, 100 * MIB, namespace=namespace, beat=NOW - regions.SILENT_NS)

    def hidden(path: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", hidden)
    assert len(regions.parse(bytes(content), Path("r"), NOW).processes) == 1


def test_a_slot_that_is_being_reaped_does_not_count() -> None:
    content = region()
    add(content, 0, 17, 100 * MIB, start=1 << 31 | 7)
    assert read(content).processes == ()


def test_a_process_says_whose_it_is_where_containers_count_together() -> None:
    content = region()
    add(content, 0, 17, 100 * MIB, container=2)
    add(content, 1, 17, 200 * MIB)
    add(content, 2, 18, 300 * MIB, container=2**40)  # a scribble
    assert [process.container for process in read(content).processes] == [2, None, None]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes, a region has at least 2008952"),
        (bytes(regions.OWN_SIZE), "prepared, and nobody has used a card yet"),
        (
            struct.pack("<iii", regions.HAMI_MAGIC, 2, 0) + bytes(regions.HAMI_SIZE),
            "layout 2.0, this program reads 1.x",
        ),
    ],
)
def test_what_is_no_region_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(NoRegion, match=f"test.cache: {reason}"):
        read(content)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoRegion, match="No such file"):
        regions.read(tmp_path / "none.cache", NOW)


def test_a_pipe_or_a_link_in_its_place_is_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cache")
    (tmp_path / "secret").write_bytes(region())
    (tmp_path / "link.cache").symlink_to(tmp_path / "secret")
    (tmp_path / "directory.cache").mkdir()
    for name in ("pipe.cache", "link.cache", "directory.cache"):
        with pytest.raises(NoRegion, match=name):
            regions.read(tmp_path / name, NOW)


@examples(quick=20, ci=100)
@given(seed=st.integers(0, 2**32), own=st.booleans(), length=st.none() | st.integers(0, regions.OWN_SIZE))
def test_scribbles_never_crash_the_reader(seed: int, own: bool, length: int | None) -> None:
    content = region(own=own)
    add(content, 0, 17, 100 * MIB)
    chance = random.Random(seed)
    places = [chance.randrange(4, len(content)) for _ in range(2000)]
    places += [chance.randrange(4, 4000) for _ in range(200)] + list(range(2_008_890, 2_008_952))
    for place in places:
        content[place] = chance.randrange(256)
    try:
        found = read(content[:length])
    except NoRegion:
        return
    for card in found.cards:
        assert 0 <= card.used_bytes <= regions.MOST_BYTES * 3 * regions.SLOTS
        assert 0 <= card.core_percent <= 100
        assert card.uuid.isprintable()


@examples(quick=20, ci=100)
@given(
    processes=st.dictionaries(st.integers(0, 40), st.integers(3, 4000), max_size=5),
    own=st.booleans(),
    length=st.none() | st.integers(0, regions.OWN_SIZE + 100),
    tail=st.binary(max_size=8),
)
def test_a_file_reads_as_its_bytes_do(
    tmp_path_factory: pytest.TempPathFactory, processes: dict[int, int], own: bool, length: int | None, tail: bytes
) -> None:
    """Only the parts in use are read."""
    content = region(own=own, cards=3)
    for slot, mib in sorted(processes.items()):
        add(content, slot, slot + 1, mib * MIB, card=slot % 3)
    content[2_008_896 : 2_008_896 + len(tail)] = tail
    path = tmp_path_factory.mktemp("r") / "r"
    path.write_bytes(content[:length])
    try:
        expected: object = regions.parse(bytes(content[:length]), path, NOW)
    except NoRegion as error:
        expected = str(error)
    try:
        found: object = regions.read(path, NOW)
    except NoRegion as error:
        found = str(error)
    assert found == expected
