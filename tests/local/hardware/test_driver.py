"""The files of the simulated driver on a node, and the mounts by which containers get them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from subak import __version__
from subak.local.hardware import driver
from tests.support.machines import machine, machines

P40 = machine("koordinator")

pytestmark = pytest.mark.usefixtures("libsubak")


def sources(directory: Path) -> dict[str, Path]:
    """What a container of a node with two Tesla P40 gets, by its place there."""
    return {each.destination: Path(each.source) for each in driver.installed(directory, P40).driver}


def test_containers_get_libraries_where_loaders_look_programs_and_the_folder_of_the_node(tmp_path: Path) -> None:
    made = driver.installed(tmp_path, P40)
    assert {each.destination: each.read_only for each in made.driver} == {
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1": True,
        "/usr/lib64/libcuda.so.1": True,
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": True,
        "/usr/lib64/libnvidia-ml.so.1": True,
        "/usr/bin/nvidia-smi": True,
        "/usr/bin/subak-allocate": True,
        "/run/subak/simulated/cards": True,
        "/run/subak/simulated/machine.1": False,
    }
    modes = {Path(each.destination).name: Path(each.source).stat().st_mode & 0o777 for each in made.driver}
    assert (modes["nvidia-smi"], modes["cards"], modes["machine.1"]) == (0o755, 0o444, 0o666)
    assert (made.driver_env, made.devices) == ({}, P40.devices)


def test_the_libraries_of_another_driver_are_covered(tmp_path: Path) -> None:
    real = "/usr/local/nvidia/lib64/libcuda.so.1"
    covered = {each.destination: each for each in driver.installed(tmp_path, P40, [real]).driver}
    assert (Path(covered[real].source).name, covered[real].read_only) == ("libcuda.so.1", True)
    assert covered.keys() - {real} == sources(tmp_path).keys()


def test_programs_lie_under_their_version_and_each_node_has_a_machine_of_its_own(tmp_path: Path) -> None:
    one, other = (driver.installed(tmp_path, each) for each in machines({"profile": "koordinator", "count": 2}))
    shared = {each.source for each in one.driver} & {each.source for each in other.driver}
    assert shared == {str(tmp_path / __version__ / name) for name in (*driver.LIBRARIES, *driver.PROGRAMS)}


def test_each_card_is_described_as_simulated(tmp_path: Path) -> None:
    first, second = (each.id for each in P40.devices)
    assert sources(tmp_path)["/run/subak/simulated/cards"].read_text().splitlines()[1:] == [
        f"{first} 0 {23040 << 20} 00000000:10:00.0 Tesla P40 (simulated)",
        f"{second} 1 {23040 << 20} 00000000:11:00.0 Tesla P40 (simulated)",
    ]


def test_cards_whose_agents_tell_no_uuids_have_some_in_their_driver() -> None:
    volcano = machine("volcano", speaks=["volcano"])
    assert not volcano.devices[0].id.startswith("GPU-")
    lines = driver.description(volcano).splitlines()[1:]
    assert len({line.split()[0] for line in lines if line.startswith("GPU-")}) == 8


@pytest.mark.parametrize("profile", ["moore-threads", "iluvatar-mr-v100", "metax-sgpu", "metax-gpu"])
def test_cards_of_other_vendors_have_no_such_driver(profile: str, tmp_path: Path) -> None:
    assert driver.installed(tmp_path, machine(profile)) == machine(profile)
    assert not list(tmp_path.iterdir())


def test_a_node_with_more_cards_than_the_driver_knows_has_none(tmp_path: Path) -> None:
    cards = {"vendor": "nvidia", "model": "A10", "memory": "24Gi", "count": driver.MOST_CARDS + 1}
    assert not driver.installed(tmp_path, machine(name="big", cards=cards, speaks=["hami"])).driver


def test_what_is_there_already_stays_and_what_has_changed_leaves_running_containers_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's mount is the file and not its name."""
    before = {place: source.stat().st_ino for place, source in sources(tmp_path).items()}
    assert {place: source.stat().st_ino for place, source in sources(tmp_path).items()} == before
    newer = tmp_path / "newer"
    newer.mkdir()
    for name in (*driver.LIBRARIES, *driver.PROGRAMS):
        (newer / name).write_bytes(b"another build")
    monkeypatch.setattr(driver, "PACKAGED", newer)
    now = sources(tmp_path)
    assert now["/usr/bin/nvidia-smi"].read_bytes() == b"another build"
    kept = {place for place, source in now.items() if source.stat().st_ino == before[place]}
    assert kept == {"/run/subak/simulated/cards", "/run/subak/simulated/machine.1"}


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            driver.installed(tmp_path, P40)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / __version__ / "libcuda.so.1").exists()
    assert sources(tmp_path)["/usr/lib64/libcuda.so.1"].stat().st_size > 1000


def test_a_driver_that_was_not_built_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACKAGED", "BUILT"):
        monkeypatch.setattr(driver, name, tmp_path / "none")
    with pytest.raises(driver.NoDriver, match="run `make -C native` in a checkout"):
        driver.installed(tmp_path, P40)
    assert driver.of_this_machine() == []
