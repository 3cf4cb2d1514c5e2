"""Files of the host that are mounted into containers lie in a folder of ours."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from subak import __version__
from subak.dialects import isolation
from subak.model.manifest import Container, Metadata, Pod, PodSpec
from subak.model.mount import Mount
from subak.model.placement import Share
from subak.node import library, trees
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


def test_nobody_else_gets_to_what_containers_make(folder: Path) -> None:
    (folder / "containers").mkdir(parents=True)
    (folder / "containers").chmod(0o777)  # as an agent of HAMi leaves it
    place = mounted(folder)["/usr/local/vgpu"]
    assert place.stat().st_mode & 0o7777 == 0o1777
    assert place.parent.stat().st_mode & 0o777 == 0o700


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


def test_nobody_waits_for_what_pods_of_before_have_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, go_on, removed = mounted(folder), Event(), Event()
    remove = trees.discard

    def slow(path: Path) -> None:
        if path.parent == folder / "containers":
            go_on.wait(60)
        remove(path)
        if path.parent == folder / "containers":
            removed.set()

    monkeypatch.setattr(trees, "discard", slow)
    for _ in range(2):
        Host(folder).sweep({"u"})
        assert all(each.exists() for each in sources.values())
    for _ in range(2):  # the second time it is about to be removed, and left to that
        Host(folder).sweep(())
        assert len(list((folder / "containers").iterdir())) == 1
        assert not sources["/usr/local/vgpu"].exists()
        assert not sources["/etc/subak/limits"].exists()
    go_on.set()
    assert removed.wait(60)
    assert list((folder / "containers").iterdir()) == []


def test_a_container_that_hami_has_started_keeps_its_region(folder: Path) -> None:
    """Its plugin names the file after nothing that we know."""
    place = mounted(folder)["/usr/local/vgpu"]
    (place / "8a6d1e0a.cache").touch()
    assert Host(folder).region("u_c") == place / "8a6d1e0a.cache"
    (place / "u_c.cache").touch()
    assert Host(folder).region("u_c") == place / "u_c.cache"
    assert Host(folder).region("gone").name == "gone.cache"


def on_node(root: Path) -> dict[str, Path]:
    host = Host.on_node(root)
    return {each.destination: Path(host.mount(each, POD, POD.containers[0]).source) for each in mounts()}


def test_on_a_node_everything_has_its_own_place(tmp_path: Path, libsubak: Path) -> None:
    places = {destination: str(path.relative_to(tmp_path)) for destination, path in on_node(tmp_path).items()}
    assert places == {
        "/usr/local/vgpu": "usr/local/vgpu/containers/u_c",
        "/usr/local/vgpu/libvgpu.so": f"usr/local/subak/{__version__}/libsubak.so",
        "/tmp/vgpulock": "tmp/vgpulock",
        "/etc/subak/limits": "run/subak/limits/u_c",
        "/etc/subak/state": "run/subak/state/u_c",
        "/etc/ld.so.preload": f"usr/local/subak/{__version__}/ld.so.preload",
    }


def test_limits_of_an_earlier_run_are_brought_up_to_date_and_whoever_has_them_keeps_them(tmp_path: Path) -> None:
    limits = on_node(tmp_path)["/etc/subak/limits"]
    right = limits.read_text()
    limits.unlink()
    limits.write_text("CUDA_DEVICE_MEMORY_LIMIT_0=0\n")
    with limits.open() as mounted:
        assert on_node(tmp_path)["/etc/subak/limits"].read_text() == right
        assert mounted.read() == "CUDA_DEVICE_MEMORY_LIMIT_0=0\n"


def test_a_rebuilt_library_takes_the_place_of_the_old_one(tmp_path: Path, libsubak: Path) -> None:
    library = on_node(tmp_path)["/usr/local/vgpu/libvgpu.so"]
    library.write_bytes(b"an older build")
    with library.open("rb") as mounted:
        assert on_node(tmp_path)["/usr/local/vgpu/libvgpu.so"].read_bytes() == libsubak.read_bytes()
        assert mounted.read() == b"an older build"


def test_a_link_that_a_container_left_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    own = on_node(tmp_path)["/usr/local/vgpu"]
    (own / "libvgpu.so").unlink()
    for name in ("libvgpu.so", ".libvgpu.so"):
        (own / name).symlink_to(precious)
    on_node(tmp_path)
    assert precious.read_text() == "precious"


def test_only_our_own_files_count_as_ours(tmp_path: Path) -> None:
    host = Host.on_node(tmp_path)
    places = on_node(tmp_path)
    for destination in ("/usr/local/vgpu/libvgpu.so", "/etc/subak/limits", "/etc/ld.so.preload"):
        assert host.owns(str(places[destination]))
    assert host.owns(str(tmp_path / "usr/local/subak/0.0.1/libsubak.so"))
    assert not host.owns("/var/lib/kubelet/pods/u/volumes/limits")
    assert not host.owns("/etc/subak/limits")
