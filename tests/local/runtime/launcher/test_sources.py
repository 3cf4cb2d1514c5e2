"""What containers get of the machine's files, while tenants do what they can to get more."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from subak.local.kubelet.payload import BadVolume
from subak.local.kubelet.volumes import Volumes
from subak.local.runtime.launcher import ids
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import StartError
from subak.model.mount import Mount, Purpose
from tests.local.runtime.containers import SWAP, execute, run, running
from tests.support.kubelet.pods import container, pod

TRIES = 16
REFUSAL = 'failed to prepare subPath for volumeMount "v" of container "main"'

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has only the one id")


@pytest.fixture
def treasure(tmp_path: Path) -> Iterator[Path]:
    """A directory of the machine that containers have no business in, open to all who get there."""
    place = tmp_path / "closed" / "treasure"
    place.mkdir(parents=True)
    (place / "gold").write_text("gold")
    place.chmod(0o777)
    place.parent.chmod(0o700)
    yield place
    assert [path.name for path in place.iterdir()] == ["gold"], "somebody was here"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A pod's emptyDir."""
    Volumes(tmp_path).set_up(pod(volumes=[EMPTY]).spec.volumes[0], {})
    return tmp_path / "v"


@pytest.fixture
def card() -> Iterator[Path]:
    """A device for root and a group."""
    device = Path(f"/dev/subak-test-{os.getpid()}")
    os.mknod(device, stat.S_IFCHR, os.makedev(1, 5))
    os.chown(device, 0, 44)
    device.chmod(0o640)
    yield device
    device.unlink()


EMPTY = {"name": "v", "emptyDir": {}}


def part(volume: Path, path: str, **more: object) -> list[Mount]:
    """The mount of a container with this subPath, as the kubelet makes it."""
    each = pod(container(volumeMounts=[{"name": "v", "mountPath": "/data", "subPath": path, **more}]), volumes=[EMPTY])
    return Volumes(volume.parent).mounts(each, each.spec.containers[0], {})


class TestParts:
    async def test_a_part_that_is_swapped_for_a_link_meanwhile_never_leads_out(
        self, runtime: Namespaces, volume: Path, treasure: Path
    ) -> None:
        (volume / "part").mkdir()
        (volume / "link").symlink_to(treasure)
        seen = set()
        async with running(runtime, SWAP, mounts=[Mount("/v", str(volume))]):
            for _ in range(TRIES):
                try:
                    seen.add((await run(runtime, "ls /data", mounts=part(volume, "part"))).stdout)
                except (StartError, BadVolume) as error:
                    seen.add(str(error))
        assert seen == {"", REFUSAL}, "each was there in turn, and nothing else"

    @pytest.mark.parametrize("beneath", ["link", "link/new/deep"])
    @pytest.mark.parametrize("way", ["absolute", "upwards", "magic"])
    async def test_no_link_leads_out(
        self, runtime: Namespaces, volume: Path, treasure: Path, way: str, beneath: str
    ) -> None:
        targets = {
            "absolute": str(treasure),
            "upwards": "../closed/treasure",
            "magic": f"/proc/{os.getpid()}/root{treasure}",
        }
        (volume / "link").symlink_to(targets[way])
        with pytest.raises((StartError, BadVolume), match=f"^{REFUSAL}$"):
            await run(runtime, "ls /data", mounts=part(volume, beneath))

    async def test_a_link_that_leads_nowhere_is_refused(self, runtime: Namespaces, volume: Path) -> None:
        (volume / "link").symlink_to("nowhere")
        with pytest.raises((StartError, BadVolume), match=f"^{REFUSAL}$"):
            await run(runtime, "ls /data", mounts=part(volume, "link"))

    async def test_a_link_inside_the_volume_is_followed(self, runtime: Namespaces, volume: Path) -> None:
        (volume / "real").mkdir()
        (volume / "real/file").write_text("f")
        (volume / "link").symlink_to("real")
        assert (await run(runtime, "cat /data/file", mounts=part(volume, "link/"))).stdout == "f"
        assert (await run(runtime, "cat /data", mounts=part(volume, "link/file"))).stdout == "f"

    async def test_directories_that_are_missing_are_made_as_the_volume_is(
        self, runtime: Namespaces, volume: Path
    ) -> None:
        before = os.umask(0o077)
        try:
            for uid in (0, 1234):
                outcome = await run(runtime, "touch /data/file", uid=uid, mounts=part(volume, f"a/{uid}"))
                assert outcome.stderr == ""
        finally:
            os.umask(before)
        assert {stat.S_IMODE(path.stat().st_mode) for path in (volume, volume / "a", volume / "a/1234")} == {0o777}
        assert (await run(runtime, "chmod 700 /data", mounts=part(volume, "a/0"))).stderr == ""

    async def test_the_whole_volume_may_be_a_part_of_itself(self, runtime: Namespaces, volume: Path) -> None:
        await run(runtime, "touch /data/file", mounts=part(volume, "."))
        assert (volume / "file").exists()


async def test_a_link_in_the_place_of_what_the_node_has_made_is_not_followed(
    runtime: Namespaces, treasure: Path, tmp_path: Path
) -> None:
    """The directory where all take turns lies in /tmp, and may be another user's."""
    (tmp_path / "turns").symlink_to(treasure)
    with pytest.raises(StartError, match="Too many levels of symbolic links"):
        await run(runtime, "ls /v", mounts=[Mount("/v", str(tmp_path / "turns"), purpose=Purpose.TURNS)])
    of_vendor = Mount("/v", str(tmp_path / "turns"), read_only=True)
    assert (await run(runtime, "ls /v", mounts=[of_vendor])).stdout == "gold\n"


class TestOwners:
    async def test_root_inside_owns_the_volumes_of_its_pod(self, runtime: Namespaces, volume: Path) -> None:
        script = "chmod 700 /data && stat -c %u:%g:%a /data && touch /data/file && stat -c %u:%g /data/file"
        outcome = await run(runtime, script, mounts=[Mount("/data", str(volume))])
        assert outcome.stdout == "0:0:700\n0:0\n", outcome
        assert (volume / "file").stat().st_uid == ids.of_root()[0]

    async def test_a_file_that_is_closed_to_others_is_closed_to_root_inside(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        (tmp_path / "key").write_text("secret")
        (tmp_path / "key").chmod(0o600)
        outcome = await run(runtime, "cat /v/key", mounts=[Mount("/v", str(tmp_path))])
        assert outcome.stdout == ("" if os.geteuid() == 0 else "secret")

    @root_only
    async def test_in_the_machines_own_directories_root_inside_is_the_machines_root(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        mounts = [Mount("/host", str(closed), true_ids=True)]
        assert (await run(runtime, "echo done > /host/file", mounts=mounts)).stderr == ""
        assert (closed / "file").read_text() == "done\n"
        assert (closed / "file").stat().st_uid == 0
        closed.chmod(0o777)
        assert (await run(runtime, "touch /host/other", uid=1000680000, gid=7, mounts=mounts)).stderr == ""
        assert ((closed / "other").stat().st_uid, (closed / "other").stat().st_gid) == (1000680000, 7)

    @root_only
    async def test_a_file_system_that_knows_no_other_owners_is_mounted_all_the_same(self, runtime: Namespaces) -> None:
        mounts = [Mount("/host", "/sys/kernel", true_ids=True, read_only=True)]
        assert "mm" in (await run(runtime, "ls /host", mounts=mounts)).stdout.split()


class TestRestrictions:
    async def test_no_mount_has_setuid_programs_and_only_dev_has_devices(
        self, runtime: Namespaces, volume: Path
    ) -> None:
        mounts = [Mount("/data", str(volume)), Mount("/scratch", size=1 << 20)]
        listed = (await run(runtime, "cat /proc/self/mounts", mounts=mounts)).stdout.splitlines()
        flags = {line.split()[1]: set(line.split()[3].split(",")) for line in listed}
        assert "/data" in flags
        assert [path for path, each in flags.items() if "nosuid" not in each] == []
        # /proc is covered with /dev/null where it tells too much.
        devices = [path for path, each in flags.items() if "nodev" not in each]
        assert [path for path in devices if not path.startswith(("/dev/", "/proc/", "/sys/"))] == []

    @root_only
    async def test_a_device_in_a_volume_cannot_be_opened(self, runtime: Namespaces, volume: Path) -> None:
        os.mknod(volume / "zero", stat.S_IFCHR, os.makedev(1, 5))
        (volume / "zero").chmod(0o666)
        outcome = await run(runtime, "head -c 1 /data/zero", mounts=[Mount("/data", str(volume))])
        assert (outcome.code, outcome.stdout) == (1, "")

    @root_only
    async def test_a_device_that_is_not_for_everybody_is_for_those_inside_for_whom_it_is_outside(
        self, runtime: Namespaces, card: Path
    ) -> None:
        script = f"head -c 3 {card} | wc -c; stat -c %u:%g:%a {card}; chmod 666 {card}"
        outcome = await run(runtime, script, devices=[str(card)])
        assert outcome.stdout == "3\n0:44:640\n"
        assert "Read-only" in outcome.stderr
        script = f"head -c 3 {card}"
        assert (await run(runtime, script, uid=1234, groups=[44], devices=[str(card)])).code == 0
        assert (await run(runtime, script, uid=1234, devices=[str(card)])).code == 1
        assert stat.S_IMODE(card.stat().st_mode) == 0o640

    async def test_what_a_container_inherits_of_the_machine_cannot_be_changed(self, runtime: Namespaces) -> None:
        before = os.stat("/dev/null").st_mode
        try:
            async with running(runtime) as started:  # without a log its output goes to the machine's /dev/null
                await execute(started, "for n in 0 1 2; do chmod 600 /proc/1/fd/$n /proc/2/fd/$n; done")
            assert os.stat("/dev/null").st_mode == before
        finally:
            if os.geteuid() == 0:
                os.chmod("/dev/null", stat.S_IMODE(before))
