"""Folders of the host, and what it preloads itself."""

from __future__ import annotations

import os

import pytest

from subak.doctor import Level
from subak.doctor.node import Computer, paths
from tests.doctor.node.host import Host


async def test_folders_that_can_be_written_or_made(host: Host) -> None:
    assert [each.level for each in await paths.writable(host.computer)] == [Level.OK]
    assert not (host.root / "run/subak").exists()  # looking makes nothing


async def test_a_file_in_the_place_of_a_folder(host: Host) -> None:
    host.write("/run/subak")
    (finding,) = await paths.writable(host.computer)
    assert (finding.level, "is no directory" in finding.seen) == (Level.FAILED, True)


@pytest.mark.parametrize(
    ("flags", "words"),
    [(os.ST_RDONLY, "read-only file system"), (os.ST_NOEXEC, "/usr/local/subak is on a file system without programs")],
)
async def test_file_systems_that_do_not_serve(monkeypatch: pytest.MonkeyPatch, flags: int, words: str) -> None:
    mounted_with(monkeypatch, flags)
    findings = await paths.writable(Computer())
    assert {each.level for each in findings} == {Level.FAILED}
    assert any(words in each.seen for each in findings)


async def test_a_pod_sees_the_host_through_a_mount_that_is_read_only(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted_with(monkeypatch, os.ST_RDONLY)
    assert {each.level for each in await paths.writable(host.computer)} == {Level.UNKNOWN}


def mounted_with(monkeypatch: pytest.MonkeyPatch, flags: int) -> None:
    """Let every file system have these flags."""
    values = list(os.statvfs("/"))
    values[8] = flags
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))


async def test_where_programs_take_turns(host: Host) -> None:
    assert [each.level for each in await paths.turns(host.computer)] == [Level.OK]
    place = host.root / "tmp/vgpulock"
    place.mkdir(parents=True)
    place.chmod(0o755)
    (finding,) = await paths.turns(host.computer)
    assert (finding.level, "mode 755" in finding.seen) == (Level.WARNING, True)
    place.chmod(0o1777)
    assert [each.level for each in await paths.turns(host.computer)] == [Level.OK]
    place.rmdir()
    place.write_text("")
    assert [each.level for each in await paths.turns(host.computer)] == [Level.FAILED]


@pytest.mark.parametrize(
    ("content", "level", "words"),
    [
        (None, Level.OK, "nothing"),
        ("\n", Level.OK, "nothing"),
        ("/usr/lib/there.so\n", Level.OK, "names /usr/lib/there.so"),
        ("/usr/lib/gone.so", Level.WARNING, "every program complains"),
        ("/usr/lib/there.so:/usr/local/vgpu/libvgpu.so\n", Level.FAILED, "every program of the host is limited"),
    ],
)
async def test_what_the_host_preloads(host: Host, content: str | None, level: Level, words: str) -> None:
    host.write("/usr/lib/there.so")
    if content is not None:
        host.write("/etc/ld.so.preload", content)
    (finding,) = await paths.preload(host.computer)
    assert finding.level is level
    assert words in finding.seen
