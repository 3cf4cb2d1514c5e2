from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from subak.local.runtime.launcher import ids
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import File, StartError
from subak.model.mount import Mount
from tests.local.runtime.containers import execute, run, running, shell

ILUVATAR = Path(__file__).parents[4] / "examples/iluvatar/pod.yaml"
WRITABLE = (
    "/",
    "/etc",
    "/home",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",
    "/usr/local",
    "/usr/local/bin",
    "/var",
)


def listing(*directories: str) -> list[tuple[str, int, int, int]]:
    """All files below some directories, with size, mode and time of change, as far as we may look."""
    found = []
    for top in directories:
        for directory, folders, files in os.walk(top):
            for name in (*folders, *files):
                info = os.lstat(os.path.join(directory, name))
                found.append((os.path.join(directory, name), info.st_size, info.st_mode, info.st_mtime_ns))
    return sorted(found)


@pytest.fixture(scope="class")
def untouched() -> Iterator[None]:
    """Whatever the tests of a class do, the machine's own files stay as they are."""

    def look() -> object:
        bashrc = os.stat("/root/.bashrc") if os.access("/root/.bashrc", os.F_OK) else None
        # Not all that is in the homes, which others may be using.
        names = [
            name for path in ("/", "/home", "/root", "/run") if os.access(path, os.R_OK) for name in os.listdir(path)
        ]
        return listing("/etc", "/usr/local", "/opt", "/srv"), {"new", "other", "mine"}.intersection(names), bashrc

    before = look()
    yield
    assert look() == before


@pytest.mark.usefixtures("untouched")
class TestWriting:
    async def test_files_and_directories_can_be_made_where_programs_make_them(self, runtime: Namespaces) -> None:
        for place in WRITABLE:
            outcome = await run(
                runtime, f"cd {place} && mkdir new && echo new > new/file && cat new/file && touch other"
            )
            assert (place, outcome.stdout, outcome.stderr) == (place, "new\n", "")

    async def test_files_of_etc_can_be_changed(self, runtime: Namespaces) -> None:
        script = "echo '10.0.0.1 other' >> /etc/hosts && tail -1 /etc/hosts && rm /etc/passwd && ls /etc/passwd"
        outcome = await run(runtime, script)
        assert outcome.stdout == "10.0.0.1 other\n"
        assert "No such file" in outcome.stderr

    async def test_the_machines_programs_cannot_be_changed(self, runtime: Namespaces) -> None:
        for attempt in ("touch /usr/bin/new", "rm -f /usr/bin/env", "echo >> /usr/bin/env", "chmod 777 /usr/bin"):
            outcome = await run(runtime, attempt)
            assert outcome.code != 0
            assert re.search("Read-only file system|Permission denied", outcome.stderr)

    async def test_the_view_cannot_be_changed_back(self, runtime: Namespaces) -> None:
        for attempt in (
            "mount -o remount,bind,rw /usr/bin",
            "umount /proc/sys",
            "mount -t proc proc /mnt",
            "unshare -Urm mount -o remount,bind,rw /usr/bin",
            "unshare -Urm umount -l /usr/bin",
            "unshare -Urpf mount -t proc proc /proc",
        ):
            outcome = await run(runtime, attempt)
            assert (attempt, outcome.code != 0) == (attempt, True)

    async def test_each_container_has_its_own_layer(self, runtime: Namespaces) -> None:
        await run(runtime, "touch /root/mine /etc/mine /mine")
        assert (await run(runtime, "ls /root/mine /etc/mine /mine")).stdout == ""


@pytest.mark.usefixtures("untouched")
class TestIluvatar:
    """The document's own pod, with the files that the vendor's image and plugin would bring."""

    files = (
        File("/usr/local/iluvatar/lib64/libcuda.so.1", b"the vendor's"),
        File("/usr/local/iluvatar/lib64/libixml.so", b"the vendor's"),
        File("/usr/local/corex/lib64", directory=True),
    )

    async def test_its_command_comes_to_its_sleep_and_leaves_the_machine_as_it_was(self, runtime: Namespaces) -> None:
        (container,) = yaml.safe_load(ILUVATAR.read_text())["spec"]["containers"]
        argv = [*container["command"], *container["args"]]
        started = await runtime.start(replace(shell(""), argv=argv, files=self.files))
        await execute(started, "until grep -qszx [3]60000 /proc/[0-9]*/cmdline; do :; done")
        seen = await execute(started, "cat /root/.bashrc; ls /usr/local/corex/lib64 /usr/local")
        bashrc, *listed = seen.stdout.splitlines()
        assert bashrc == "export LD_LIBRARY_PATH=/usr/local/corex/lib64:"
        assert {"libcuda.so.1", "libixml.so", "corex", "iluvatar", *os.listdir("/usr/local")} <= set(listed)
        await started.stop(grace=30)
        assert await started.wait() == 143


class TestSeeing:
    async def test_what_is_in_homes_and_temporary_directories_is_not_seen(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret"
        secret.write_text("s")
        outcome = await run(runtime, f"ls -A /home/* /run /tmp /var/tmp {secret}")
        assert str(secret) in outcome.stderr
        assert "secret" not in outcome.stdout

    async def test_programs_of_the_path_are_there_in_a_home_for_those_who_name_them(
        self, able: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tool = tmp_path / "tool/bin/greet"
        (tmp_path / "tool/lib").mkdir(parents=True)
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\ncat ${0%/*}/../lib/text\n")
        tool.chmod(0o755)
        (tmp_path / "tool/lib/text").write_text("good morning\n")
        (tmp_path / ".ssh").mkdir()
        monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        outcome = await run(Namespaces(), f"greet || {tool}; ls -A {tmp_path}; touch {tmp_path}/tool/new")
        assert outcome.stdout == "good morning\ntool\n"
        assert "greet: not found" in outcome.stderr
        assert "Read-only" in outcome.stderr

    async def test_directories_and_files_can_be_hidden(self, able: None) -> None:
        tool = Path(sys.executable)  # its installation is visible, wherever it is
        script = f"ls -A {shlex.quote(str(tool.parent))}"
        assert tool.name in (await run(Namespaces(), script)).stdout.split()
        assert (await run(Namespaces(hide=[tool.parent.resolve()]), script)).stdout == ""
        hidden = tool.parent.resolve() / "pip"
        if hidden.is_file():
            assert "pip" not in (await run(Namespaces(hide=[hidden]), script)).stdout.split()
        assert (await run(Namespaces(hide=["/", "/usr", "/no/such/file"]), "echo well")).stdout == "well\n"

    async def test_what_root_alone_may_read_is_not_seen(self, runtime: Namespaces) -> None:
        assert (await run(runtime, "cat /etc/shadow /etc/gshadow /etc/ssl/private/*")).stdout == ""

    async def test_names_are_resolved_as_on_the_machine(self, runtime: Namespaces) -> None:
        if not os.path.exists("/etc/resolv.conf"):
            pytest.skip("the machine has no /etc/resolv.conf")
        outcome = await run(runtime, "cat /etc/resolv.conf")
        assert outcome.stdout.strip() == Path("/etc/resolv.conf").read_text().strip()

    async def test_settings_of_the_kernel_are_read_only(self, runtime: Namespaces) -> None:
        outcome = await run(runtime, "cat /proc/sys/kernel/pid_max; echo 1 > /proc/sys/vm/drop_caches")
        assert outcome.stdout.strip().isdecimal()
        assert "Read-only file system" in outcome.stderr
        outcome = await run(
            runtime, "find /sys -maxdepth 3 -writable -type f ! -path '/sys/fs/*' | head -3; mkdir /sys/fs/cgroup/x"
        )
        assert (outcome.code, outcome.stdout) == (1, "")
        assert (await run(runtime, "cat /proc/keys /proc/timer_list; ls -A /sys/firmware")).stdout == ""

    async def test_only_harmless_devices_are_there(self, runtime: Namespaces) -> None:
        outcome = await run(runtime, "cd /dev && find . ! -type d ! -type l | sort && head -c 3 zero | wc -c > stdout")
        harmless = ("full", "null", "pts/ptmx", "random", "tty", "urandom", "zero")
        assert outcome.stdout.split() == [*(f"./{name}" for name in harmless), "3"]

    async def test_a_device_that_was_asked_for_is_there(self, runtime: Namespaces) -> None:
        device = next(
            (path for path in sorted(Path("/dev").iterdir()) if path.is_char_device() and path.name.startswith("tty0")),
            None,
        )
        if device is None:
            pytest.skip("the machine has no /dev/tty0")
        outcome = await run(runtime, f"stat -c %t:%T {device}", devices=[str(device)])
        number = os.stat(device).st_rdev
        assert outcome.stdout == f"{os.major(number):x}:{os.minor(number):x}\n"

    async def test_devices_cannot_be_changed_for_the_whole_machine(self, runtime: Namespaces) -> None:
        before = os.stat("/dev/null")
        script = "chmod 600 /dev/null; chown 1 /dev/null; rm -f /dev/null; echo x > /dev/null && echo still there"
        outcome = await run(runtime, script, devices=["/dev/null", "/dev/null"])
        assert outcome.stdout == "still there\n"
        assert outcome.stderr.count("\n") == 3
        with pytest.raises(StartError):
            await runtime.start(shell("true", files=[File("/dev/null", b"ours", mode=0o600)]))
        after = os.stat("/dev/null")
        assert (before.st_mode, before.st_uid) == (after.st_mode, after.st_uid)


class TestFiles:
    async def test_a_file_lies_beside_the_machines_own(self, runtime: Namespaces) -> None:
        if not shutil.which("env", path="/usr/bin"):
            pytest.skip("the machine has no /usr/bin/env")
        script = "vendor-smi && ls -l /usr/bin/vendor-smi && test -x /usr/bin/env && cat /usr/share/vendor/a/b"
        files = [
            File("/usr/bin/vendor-smi", b"#!/bin/sh\necho a card\n", mode=0o755),
            File("/usr/share/vendor/a/b", b"deep\n"),
        ]
        outcome = await run(runtime, script, files=files)
        assert re.fullmatch(r"a card\n-rwxr-xr-x 1 root .*\ndeep\n", outcome.stdout), outcome

    async def test_a_file_wins_over_the_machines(self, runtime: Namespaces) -> None:
        files = [
            *(File("/etc/hosts", text) for text in (b"first\n", b"ours\n")),
            File("/usr/bin/env", b"#!/bin/sh\necho ours\n", mode=0o755),
        ]
        assert (await run(runtime, "cat /etc/hosts; env", files=files)).stdout == "ours\nours\n"

    async def test_a_file_takes_the_place_of_a_link(self, runtime: Namespaces) -> None:
        link = next((path for path in sorted(Path("/etc").iterdir()) if path.is_symlink()), None)
        if link is None:
            pytest.skip("the machine has no link in /etc")
        outcome = await run(runtime, f"test ! -L {link} && cat {link}", files=[File(str(link), b"ours\n")])
        assert outcome.stdout == "ours\n"

    async def test_directories_on_the_way_are_not_for_all_to_write(self, runtime: Namespaces) -> None:
        outcome = await run(runtime, "stat -c %a /opt/a /opt/a/b", files=[File("/opt/a/b/c", b"")])
        assert outcome.stdout == "755\n755\n"

    async def test_a_directory_keeps_what_the_machine_has_in_it(self, runtime: Namespaces) -> None:
        script = "test -e /usr/share/doc && touch /usr/share/new && ls -d /usr/share/new; stat -c %a /opt/vendor"
        files = [File("/usr/share", directory=True), File("/opt/vendor", directory=True, mode=0o700)]
        assert (await run(runtime, script, files=files)).stdout == "/usr/share/new\n700\n"


class TestMounts:
    async def test_what_is_written_reaches_the_volume(self, runtime: Namespaces, tmp_path: Path) -> None:
        (tmp_path / "given").write_text("given")
        outcome = await run(
            runtime, "cat /data/given; echo taken > /data/taken", mounts=[Mount("/data", str(tmp_path))]
        )
        assert outcome.stdout == "given"
        assert (tmp_path / "taken").read_text() == "taken\n"
        assert stat.S_IMODE((tmp_path / "taken").stat().st_mode) == 0o644
        assert (tmp_path / "taken").stat().st_uid == ids.of_root()[0]

    async def test_a_volume_can_be_read_only(self, runtime: Namespaces, tmp_path: Path) -> None:
        outcome = await run(runtime, "touch /data/new", mounts=[Mount("/data", str(tmp_path), read_only=True)])
        assert "Read-only file system" in outcome.stderr
        assert list(tmp_path.iterdir()) == []

    async def test_a_single_file_can_be_mounted(self, runtime: Namespaces, tmp_path: Path) -> None:
        (tmp_path / "message").write_text("")
        (tmp_path / "message").chmod(0o666)
        mounts = [Mount("/dev/termination-log", str(tmp_path / "message"))]
        await run(runtime, "echo done > /dev/termination-log", mounts=mounts)
        assert (tmp_path / "message").read_text() == "done\n"

    async def test_a_scratch_volume_has_a_limit(self, runtime: Namespaces) -> None:
        mounts = [Mount("/scratch", size=1 << 20), Mount("/dev/shm", size=2 << 20)]
        outcome = await run(
            runtime, "cd /scratch && head -c 2M /dev/zero > big; stat -c %s big; df -k /dev/shm", mounts=mounts
        )
        assert outcome.stdout.splitlines()[0] == str(1 << 20)
        assert "No space left" in outcome.stderr
        assert " 2048 " in outcome.stdout

    async def test_one_volume_may_lie_in_another(self, runtime: Namespaces, tmp_path: Path) -> None:
        for name in ("outer", "inner"):
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(0o777)
        mounts = [Mount("/a", str(tmp_path / "outer")), Mount("/a/b/c", str(tmp_path / "inner"), read_only=True)]
        outcome = await run(runtime, "touch /a/x; touch /a/b/c/y", mounts=mounts)
        assert "Read-only" in outcome.stderr
        assert sorted(path.name for path in (tmp_path / "outer").iterdir()) == ["b", "x"]

    async def test_a_mount_reaches_places_behind_links_and_in_the_machines_directories(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("t")
        source = str(tmp_path)
        mounts = [Mount(path, source) for path in ("/var/run/secrets/x", "/lib/vendor/x", "/usr/share/new", "/root/x")]
        outcome = await run(
            runtime,
            "cat /run/secrets/x/token /usr/lib/vendor/x/token /usr/share/new/token /root/x/token",
            mounts=mounts,
        )
        assert outcome.stdout == "tttt"

    async def test_a_link_in_a_volume_leads_to_where_it_leads_inside(self, runtime: Namespaces, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("/etc/hostname")
        outcome = await run(runtime, "cat /v/link", mounts=[Mount("/v", str(tmp_path))], host_name="inside")
        assert outcome.stdout == "inside\n"

    async def test_a_source_may_be_a_link(self, runtime: Namespaces, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real/file").write_text("f")
        (tmp_path / "link").symlink_to(tmp_path / "real")
        assert (await run(runtime, "cat /v/file", mounts=[Mount("/v", str(tmp_path / "link"))])).stdout == "f"

    async def test_a_file_can_be_mounted_where_the_machine_has_a_link_to_elsewhere(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        (tmp_path / "resolv.conf").write_text("ours\n")
        mounts = [Mount("/etc/resolv.conf", str(tmp_path / "resolv.conf"))]
        assert (await run(runtime, "cat /etc/resolv.conf", mounts=mounts)).stdout == "ours\n"

    async def test_a_place_that_cannot_be_made_is_an_error_with_its_name(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        with pytest.raises(StartError, match="^mount .* at /proc/nothing: No such file or directory$"):
            await runtime.start(shell("true", mounts=[Mount("/proc/nothing", str(tmp_path))]))


async def test_two_containers_share_a_volume(runtime: Namespaces, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o666)
    mounts = [Mount("/shared", str(tmp_path))]
    async with running(runtime, "echo hello > /shared/pipe; sleep 1000", mounts=mounts):
        assert (await run(runtime, "cat /shared/pipe", mounts=mounts)).stdout == "hello\n"
