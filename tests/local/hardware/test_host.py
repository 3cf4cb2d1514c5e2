"""Files of the host that are mounted into containers lie in a folder of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from subak.dialects import Mount, isolation
from subak.local.hardware import host, library
from subak.local.hardware.host import Host
from subak.model.manifest import Container, Metadata, Pod, PodSpec
from subak.model.placement import Share

POD = Pod(metadata=Metadata(name="p", uid="u"), spec=PodSpec(containers=[Container(name="c")]))
SHARE = Share("GPU-0", 0, 1 << 30, 50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "host"


def mounted(folder: Path) -> dict[str, Path]:
    place = Host(folder)
    mounts = isolation.limits(POD, 0, [SHARE]).mounts
    return {each.destination: Path(place.mount(each).source) for each in mounts}


def test_everything_that_is_mounted_exists_in_the_folder(folder: Path) -> None:
    sources = mounted(folder)
    assert sources.keys() == {"/usr/local/vgpu", "/usr/local/vgpu/libvgpu.so", "/tmp/vgpulock", "/etc/ld.so.preload"}
    assert all(folder in each.parents and each.exists() for each in sources.values())
    assert sources["/etc/ld.so.preload"].read_text() == "/usr/local/vgpu/libvgpu.so\n"
    assert sources["/usr/local/vgpu/libvgpu.so"].read_bytes() == library.empty()


def test_a_container_may_write_where_its_library_does(folder: Path) -> None:
    sources = mounted(folder)
    assert sources["/usr/local/vgpu"].stat().st_mode & 0o777 == 0o777
    assert sources["/tmp/vgpulock"].stat().st_mode & 0o777 == 0o777
    assert (sources["/usr/local/vgpu"] / "libvgpu.so").exists()  # the library is mounted over it


def test_a_mount_keeps_its_destination_and_its_rights(folder: Path) -> None:
    for mount in isolation.limits(POD, 0, [SHARE]).mounts:
        moved = Host(folder).mount(mount)
        assert (moved.destination, moved.read_only) == (mount.destination, mount.read_only)
    foreign = Mount("/opt/vendor", "/opt/vendor")
    assert Host(folder).mount(foreign) == foreign


def test_what_a_pod_had_is_thrown_away(folder: Path) -> None:
    place = mounted(folder)["/usr/local/vgpu"]
    Host(folder).remove(POD)
    assert not place.exists()
    Host(folder).remove(POD)


def test_an_installed_library_is_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "libsubak.so"
    installed.write_bytes(b"real")
    monkeypatch.setattr(host, "INSTALLED", installed)
    assert Host(folder).mount(Mount(str(installed), "/usr/local/vgpu/libvgpu.so")).source == str(installed)
