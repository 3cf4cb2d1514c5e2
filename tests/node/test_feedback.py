"""The words by which a node and a tenant speak in the tenant's region."""

from __future__ import annotations

import os
import random
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node import feedback, regions
from subak.node.regions import Missing, NoRegion
from tests.support.fuzz import examples
from tests.support.regions import MIB, NOW, add, launched, region, work


def words(path: Path) -> tuple[int, int]:
    """`utilization_switch` and `recent_kernel`, at HAMi's places."""
    found: tuple[int, int] = struct.unpack_from("<ii", path.read_bytes(), 2_008_900)
    return found


def test_a_look_tells_when_the_tenant_worked_on_each_card(tmp_path: Path) -> None:
    content = region(cards=2)
    launched(content, 1_800_000_000)
    work(content, NOW, card=1, charged=5_000)
    (tmp_path / "r").write_bytes(content)
    seen = feedback.glance(tmp_path / "r")
    assert seen.uuids == ("GPU-00", "GPU-01")
    assert seen.last_kernel == 1_800_000_000
    assert seen.worked_ns == {"GPU-01": NOW}
    assert seen.charged_ns == {"GPU-00": 0, "GPU-01": 5_000}


def test_hami_core_tells_the_last_kernel_alone(tmp_path: Path) -> None:
    content = region(own=False)
    launched(content, 1_800_000_000)
    (tmp_path / "r").write_bytes(content)
    seen = feedback.glance(tmp_path / "r")
    assert (seen.last_kernel, seen.worked_ns, seen.charged_ns) == (1_800_000_000, {}, {})


def test_a_tenant_of_hami_core_is_told_to_wait_and_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "r"
    content = region(own=False)
    struct.pack_into("<ii", content, 2_008_900, 1, 2)  # its share holds, and it had work
    path.write_bytes(content)
    feedback.instruct(path, blocked=True, lifted=False)
    assert words(path) == (1, -1)
    feedback.instruct(path, blocked=False, lifted=True)
    assert words(path) == (0, 0)
    struct.pack_into("<i", content, 2_008_904, 2)
    path.write_bytes(content)
    feedback.instruct(path, blocked=False, lifted=False)
    assert words(path) == (1, 2)  # what the tenant itself wrote stays


def test_nothing_else_of_a_region_is_written(tmp_path: Path) -> None:
    path = tmp_path / "r"
    before = region()
    add(before, 0, 17, 100 * MIB)
    path.write_bytes(before)
    feedback.instruct(path, blocked=True, lifted=True)
    after = path.read_bytes()
    assert {place for place in range(len(after)) if after[place] != before[place]} <= set(range(2_008_900, 2_008_908))


def test_only_the_ended_container_of_a_pod_falls_silent(tmp_path: Path) -> None:
    path, content = tmp_path / "r", region()
    add(content, 0, 17, 100 * MIB, container=0)
    add(content, 1, 17, 200 * MIB, container=1)
    add(content, 2, 18, 300 * MIB, container=1)
    path.write_bytes(content)
    feedback.silence(path, 1)
    found = regions.read(path, NOW)
    assert [process.container for process in found.processes] == [0]
    assert found.cards[0].used_bytes == 100 * MIB


def test_a_slot_that_changes_hands_is_left_alone(tmp_path: Path) -> None:
    content, path = region(), tmp_path / "r"
    add(content, 0, 17, 200 * MIB, container=1)
    content[regions.SLOTS_START + 7] |= 0x80
    path.write_bytes(content)
    feedback.silence(path, 1)
    assert path.read_bytes() == content


def test_what_is_no_region_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(region())
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "text").write_text("not a region")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "text", "pipe"):
        with pytest.raises(NoRegion, match=name):
            feedback.glance(tmp_path / name)
        with pytest.raises(NoRegion, match=name):
            feedback.instruct(tmp_path / name, blocked=True, lifted=True)
        feedback.silence(tmp_path / name, 0)
    assert (tmp_path / "secret").read_bytes() == region()
    assert (tmp_path / "text").read_text() == "not a region"
    with pytest.raises(Missing):
        feedback.glance(tmp_path / "none")
    feedback.silence(tmp_path / "none", 0)
    assert not (tmp_path / "none").exists()


@examples(quick=20, ci=100)
@given(seed=st.integers(0, 2**32), own=st.booleans(), length=st.none() | st.integers(0, regions.OWN_SIZE))
def test_scribbles_never_crash_the_look(
    tmp_path_factory: pytest.TempPathFactory, seed: int, own: bool, length: int | None
) -> None:
    content, chance = region(own=own), random.Random(seed)
    for place in [chance.randrange(4, len(content)) for _ in range(500)] + list(range(2_008_890, 2_008_952)):
        content[place] = chance.randrange(256)
    path = tmp_path_factory.mktemp("r") / "r"
    path.write_bytes(content[:length])
    try:
        seen = feedback.glance(path)
        feedback.instruct(path, blocked=True, lifted=True)
    except NoRegion:
        return
    assert seen.last_kernel >= 0
    assert len(seen.uuids) <= regions.CARDS
    assert words(path)[0] == 0
    assert words(path)[1] < 0


def test_a_file_that_is_cut_while_we_look_harms_nobody(tmp_path: Path) -> None:
    """A map of it would end us with a SIGBUS."""
    path, done = tmp_path / "r", threading.Event()
    path.write_bytes(region())

    def cut() -> None:
        while not done.is_set():
            os.truncate(path, 2_000)
            os.truncate(path, regions.OWN_SIZE)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        for _ in range(200):
            try:
                feedback.glance(path)
                feedback.instruct(path, blocked=True, lifted=True)
            except NoRegion:
                continue
    finally:
        done.set()
        thread.join()
