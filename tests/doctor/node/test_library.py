"""libsubak on a node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from subak import __version__
from subak.doctor import Level
from subak.doctor.node import library
from subak.node import library as installation
from tests.doctor.node.host import Host


async def test_the_library_of_this_installation_loads(host: Host) -> None:
    assert [each.seen for each in await library.loadable(host.computer)] == [f"{__version__} loads"]


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little") + bytes(44)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (elf(183 if os.uname().machine == "x86_64" else 62), "this computer is"),
        (elf(243), "is for processor 243"),
        (b"not a library", "no processor that we know"),
        (elf(62 if os.uname().machine == "x86_64" else 183), "a program does not load"),  # cut off
    ],
)
async def test_a_library_that_does_not_load(
    host: Host, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    path = host.root / "libsubak.so"
    path.write_bytes(content)
    monkeypatch.setattr(installation, "PACKAGED", path)
    (finding,) = await library.loadable(host.computer)
    assert finding.level is Level.FAILED
    assert words in finding.seen


async def test_no_library(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACKAGED", "BUILT"):
        monkeypatch.setattr(installation, name, Path("/nowhere"))
    (finding,) = await library.loadable(host.computer)
    assert finding.level is Level.FAILED
    assert "install subak again" in finding.remedy


def copy(host: Host, version: str, content: bytes) -> None:
    host.write(f"/usr/local/subak/{version}/libsubak.so").write_bytes(content)


def mounted(host: Host, pid: int, source: str) -> None:
    """A process of a container in which a file of the host is mounted."""
    host.write(f"/proc/{pid}/mountinfo", f"36 35 8:1 {source} /usr/local/vgpu/libvgpu.so ro - ext4 /dev/sda1 rw\n")
    (host.root / f"proc/{pid}/ns").mkdir()
    (host.root / f"proc/{pid}/ns/mnt").symlink_to(f"mnt:[{pid}]")


async def test_copies_on_the_host(host: Host) -> None:
    (finding,) = await library.installed(host.computer)
    assert "none at /usr/local/subak yet" in finding.seen
    copy(host, __version__, installation.find().read_bytes())
    assert [each.seen for each in await library.installed(host.computer)] == [__version__]
    copy(host, "0.0.1", b"old")
    copy(host, "0.0.2", b"old")
    mounted(host, 9, "/usr/local/subak/0.0.2/libsubak.so")
    (finding,) = await library.installed(host.computer)
    assert (finding.level, finding.seen) == (Level.WARNING, "old versions: 0.0.1")
    assert finding.remedy.endswith("rm -r /usr/local/subak/0.0.1")


async def test_another_build_of_the_same_version(host: Host) -> None:
    copy(host, __version__, b"another build")
    (finding,) = await library.installed(host.computer)
    assert (finding.level, "is not the library of this installation" in finding.seen) == (Level.WARNING, True)
