"""Files of the host that are mounted into containers lie in a folder of ours."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from subak.dialects import isolation
from subak.model.manifest import Container, Metadata, Pod, PodSpec
from subak.model.mount import Mount
from subak.model.placement import Share
from subak.node import library
from subak.node.host import Host

POD = Pod(metadata=Metadata(name="p", uid="u"), spec=PodSpec(containers=[Container(name="c")]))
SHARE = Share("GPU-0", 0, 1 << 30, 50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "host"


def mounts() -> list[Mount]:
    injection = isolation.limits(POD, 0, [SHARE])
    return injection.mounts + isolation.guard(POD, 0, injection)


def mounted(folder: Path, real: bool = False) -> dict[str, Path]:
    place = Host(folder, simulated=not real)
    return {each.destination: Path(place.mount(each, POD, POD.containers[0]).source) for each in mounts()}


def test_everything_that_is_mounted_exists_in_the_folder(folder: Path, libsubak: Path) -> None:
    sources = mounted(folder)
    assert sources.keys() == {
        "/usr/local/vgpu",
        "/usr/local/vgpu/libvgpu.so",
        "/tmp/vgpulock",
        "/etc/subak/limits",
        "/etc/subak/state",
        "/etc/ld.so.preload",
    }
    assert all(folder in each.parents and each.exists() for each in sources.values())
    assert sources["/etc/ld.so.preload"].read_text() == "/usr/local/vgpu/libvgpu.so\n"
    assert sources["/usr/local/vgpu/libvgpu.so"].read_bytes() == libsubak.read_bytes()


def test_the_limits_lie_where_no_container_can_write(folder: Path) -> None:
    sources = mounted(folder)
    assert f"CUDA_DEVICE_MEMORY_LIMIT_0={1 << 30}" in sources["/etc/subak/limits"].read_text().splitlines()
    assert sources["/etc/subak/limits"].stat().st_mode & 0o777 == 0o444
    for writable in ("/usr/local/vgpu", "/tmp/vgpulock"):
        assert sources[writable] not in sources["/etc/subak/limits"].parents


def test_programs_on_real_cards_take_turns_with_the_whole_machine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "turns"))
    simulated, real = mounted(folder), mounted(folder, real=True)
    assert real["/tmp/vgpulock"] == tmp_path / "turns"
    assert folder in simulated["/tmp/vgpulock"].parents


@pytest.mark.parametrize("real", [True, False])
def test_without_the_library_a_container_has_nothing_to_start_with(
    real: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "turns"))
    for name in ("PACKAGED", "BUILT"):
        monkeypatch.setattr(library, name, tmp_path / "none")
    assert not mounted(folder, real)["/usr/local/vgpu/libvgpu.so"].exists()


def test_a_file_that_could_not_be_written_whole_is_not_there(folder: Path) -> None:
    """Else the container would start when it is tried again: with an empty file of limits, or a library cut short."""
    (mount,) = (each for each in mounts() if each.destination == "/etc/subak/limits")
    with no_room(), pytest.raises(OSError, match="File too large"):
        Host(folder, simulated=True).mount(mount, POD, POD.containers[0])
    assert Path(Host(folder, simulated=True).mount(mount, POD, POD.containers[0]).source).read_text() == mount.content


@contextmanager
def no_room() -> Iterator[None]:
    """As on a disk with room for a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_container_may_write_where_its_library_does(folder: Path) -> None:
    sources = mounted(folder)
    assert sources["/usr/local/vgpu"].stat().st_mode & 0o777 == 0o777
    assert sources["/tmp/vgpulock"].stat().st_mode & 0o777 == 0o777
    assert (sources["/usr/local/vgpu"] / "libvgpu.so").exists()  # the library is mounted over it


def test_a_mount_keeps_its_destination_and_its_rights(folder: Path) -> None:
    for mount in mounts():
        moved = Host(folder, simulated=True).mount(mount, POD, POD.containers[0])
        assert (moved.destination, moved.read_only) == (mount.destination, mount.read_only)
    foreign = Mount("/opt/vendor", "/opt/vendor")
    assert Host(folder, simulated=True).mount(foreign, POD, POD.containers[0]) == foreign


def test_what_a_pod_had_is_thrown_away(folder: Path) -> None:
    sources = mounted(folder)
    assert Host(folder).region("u_c").parent == sources["/usr/local/vgpu"]
    Host(folder).remove(POD)
    assert not sources["/usr/local/vgpu"].exists()
    assert not sources["/etc/subak/limits"].exists()
    Host(folder).remove(POD)


def test_a_container_that_hami_has_started_keeps_its_region(folder: Path) -> None:
    """Its plugin names the file after nothing that we know."""
    place = mounted(folder)["/usr/local/vgpu"]
    (place / "8a6d1e0a.cache").touch()
    assert Host(folder).region("u_c") == place / "8a6d1e0a.cache"
    (place / "u_c.cache").touch()
    assert Host(folder).region("u_c") == place / "u_c.cache"
    assert Host(folder).region("gone").name == "gone.cache"
