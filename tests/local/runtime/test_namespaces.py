from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec, StartError
from subak.model.mount import Mount
from tests.local.runtime.containers import (
    PATIENCE,
    complete,
    own_children,
    printed,
    processes,
    run,
    running,
    shell,
    until,
)
from tests.support.processes import children, descendants


async def test_the_exit_code_is_the_commands(runtime: Namespaces) -> None:
    assert (await run(runtime, "exit 7")).code == 7


async def test_a_command_that_a_signal_ends_gives_128_and_its_number(runtime: Namespaces) -> None:
    assert (await run(runtime, "kill -9 $$")).code == 128 + 9


async def test_the_environment_is_what_was_asked_for_and_nothing_else(runtime: Namespaces) -> None:
    variables = {"PATH": "/usr/bin:/bin", "GREETING": "good morning", "BYTES": os.fsdecode(b"\xff")}
    outcome = await complete(runtime, Spec("a", ["env"], variables))
    assert set(outcome.stdout.splitlines()) == {f"{name}={value}" for name, value in variables.items()}


async def test_without_path_programs_are_looked_for_in_the_usual_places(runtime: Namespaces) -> None:
    assert (await complete(runtime, Spec("a", ["true"]))).code == 0


async def test_a_working_directory_that_is_not_there_comes_into_being(runtime: Namespaces) -> None:
    outcome = await run(runtime, "pwd; touch here", working_directory="/workspace/deep/down")
    assert (outcome.code, outcome.stdout) == (0, "/workspace/deep/down\n")


async def test_a_container_has_its_own_host_name(runtime: Namespaces) -> None:
    outcome = await run(runtime, "uname -n; cat /etc/hostname", host_name="gpu-pod1")
    assert outcome.stdout == "gpu-pod1\ngpu-pod1\n"
    assert os.uname().nodename != "gpu-pod1"


async def test_a_container_sees_only_its_own_processes(runtime: Namespaces) -> None:
    outcome = await run(runtime, "cd /proc && echo [0-9]*; echo $$")
    assert outcome.stdout == "1 2\n2\n"


async def test_a_command_begins_without_open_files_of_ours(runtime: Namespaces) -> None:
    # The fourth is the directory that `ls` reads.
    assert (await complete(runtime, Spec("a", ["ls", "/proc/self/fd"]))).stdout.split() == ["0", "1", "2", "3"]


async def test_a_command_begins_with_default_signals_whatever_the_cluster_was_started_by(able: None) -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGQUIT)}
    runtime = Namespaces()  # as under nohup
    try:
        outcome = await complete(runtime, Spec("a", ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]))
    finally:
        await runtime.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    nameless = 1 << 31 | 1 << 32  # the C library's own, which nobody can set
    assert {int(line.split()[1], 16) & ~nameless for line in outcome.stdout.splitlines()} == {0}, outcome


async def test_standard_input_is_at_its_end_unless_it_is_to_stay_open(runtime: Namespaces) -> None:
    assert (await run(runtime, "cat; echo over")).stdout == "over\n"
    async with running(runtime, "cat", stdin=True) as container:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(container.wait(), 0.2)


async def test_root_inside_can_gain_no_privileges(runtime: Namespaces) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in (await run(runtime, "cat /proc/self/status")).stdout.splitlines()
        if ":\t" in line
    )
    assert status["NoNewPrivs"] == "1"
    system_administrator = 1 << 21
    assert not int(status["CapBnd"], 16) & system_administrator
    assert not int(status["CapEff"], 16) & system_administrator
    assert status["Uid"].split() == ["0"] * 4


async def test_a_command_runs_as_the_user_it_asks_for(runtime: Namespaces) -> None:
    outcome = await run(runtime, "id -u; id -g; touch /tmp/a; echo out >/dev/stdout", uid=1234, gid=567)
    assert (outcome.code, outcome.stdout) == (0, "1234\n567\nout\n")
    assert (await run(runtime, "grep CapEff /proc/self/status", uid=1234)).stdout.split() == ["CapEff:", "0" * 16]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give groups and change owners")
async def test_under_root_groups_and_owners_are_real(runtime: Namespaces) -> None:
    outcome = await run(runtime, "id -G; touch /tmp/a && chown 7:8 /tmp/a && stat -c %u:%g /tmp/a", groups=(44, 109))
    assert outcome.stdout == "0 44 109\n7:8\n"


class TestStartErrors:
    async def failure(self, runtime: Namespaces, spec: Spec) -> StartError:
        with pytest.raises(StartError) as caught:
            await runtime.start(spec)
        return caught.value

    async def test_a_pipe_in_proc_holds_nothing_up(self, runtime: Namespaces, tmp_path: Path) -> None:
        (tmp_path / "self").mkdir()
        os.mkfifo(tmp_path / "self" / "setgroups")
        assert (await run(runtime, "echo begun", mounts=[Mount("/proc", str(tmp_path))])).stdout == "begun\n"

    async def test_a_program_that_is_nowhere(self, runtime: Namespaces) -> None:
        error = await self.failure(runtime, Spec("a", ["no-such-program", "-x"], {"PATH": "/usr/bin:/bin"}))
        assert error.exit_code == 127
        assert error.message == 'exec: "no-such-program": not found in $PATH (/usr/bin:/bin)'

    async def test_a_path_that_is_not_there(self, runtime: Namespaces) -> None:
        error = await self.failure(runtime, Spec("a", ["/opt/none/prog"]))
        assert (error.exit_code, error.message) == (127, 'exec: "/opt/none/prog": no such file')

    async def test_a_file_that_is_no_program(self, runtime: Namespaces) -> None:
        error = await self.failure(runtime, Spec("a", ["/etc/passwd"]))
        assert (error.exit_code, error.message) == (126, 'exec: "/etc/passwd": Permission denied')

    async def test_a_directory(self, runtime: Namespaces) -> None:
        error = await self.failure(runtime, Spec("a", ["/etc"]))
        assert (error.exit_code, error.message) == (126, 'exec: "/etc": is a directory')

    async def test_a_script_without_its_interpreter(self, runtime: Namespaces, tmp_path: Path) -> None:
        self.script(tmp_path, "#!/usr/bin/no-such-shell\n")
        error = await self.failure(runtime, Spec("a", ["/s/run"], mounts=[Mount("/s", str(tmp_path))]))
        assert error.exit_code == 127
        assert error.message == 'exec: "/s/run": its interpreter is not there: #!/usr/bin/no-such-shell'

    async def test_a_file_that_the_kernel_cannot_run(self, runtime: Namespaces, tmp_path: Path) -> None:
        self.script(tmp_path, "echo no first line\n")
        error = await self.failure(runtime, Spec("a", ["/s/run"], mounts=[Mount("/s", str(tmp_path))]))
        assert (error.exit_code, error.message) == (126, 'exec: "/s/run": Exec format error')

    async def test_no_command_at_all(self, runtime: Namespaces) -> None:
        assert (await self.failure(runtime, Spec("a", []))).message == "there is no command"

    async def test_a_volume_that_is_not_there(self, runtime: Namespaces) -> None:
        error = await self.failure(runtime, shell("true", mounts=[Mount("/data", "/no/such/place")]))
        assert error.exit_code == 128
        assert error.message == "mount /no/such/place at /data: No such file or directory"

    async def test_a_device_that_is_not_there(self, runtime: Namespaces) -> None:
        error = await self.failure(runtime, shell("true", devices=["/dev/nvidia77"]))
        assert (error.exit_code, error.message) == (128, "the machine has no device /dev/nvidia77")

    async def test_a_working_directory_that_cannot_be_made(self, runtime: Namespaces) -> None:
        error = await self.failure(runtime, shell("true", working_directory="/usr/bin/new"))
        assert (error.exit_code, error.message) == (128, "/usr/bin/new: Read-only file system")

    async def test_text_that_no_program_can_be_given(self, runtime: Namespaces) -> None:
        assert "embedded null" in (await self.failure(runtime, Spec("a", ["echo", "a\0b"]))).message
        assert "embedded null" in (await self.failure(runtime, shell("true", working_directory="/a\0b"))).message
        assert "surrogates" in (await self.failure(runtime, Spec("a", ["echo", "\ud800"]))).message

    @pytest.mark.parametrize("length", [100_000, 500_000])
    async def test_names_that_are_longer_than_any_message(self, runtime: Namespaces, length: int) -> None:
        name = "/" + "x" * length
        for spec in (Spec("a", [name]), shell("true", working_directory=name), Spec("a", ["b"], {"PATH": name})):
            error = await self.failure(runtime, spec)
            assert error.message.endswith(("File name too long", f"{'x' * 100})")), error.message
            assert len(error.message) < 4096
        async with running(runtime) as container:
            with pytest.raises(StartError, match=r"xxx \.\.\. xxx"):
                await container.execute([name], {}, stdin=False, tty=False)

    async def test_a_log_that_has_no_directory(self, runtime: Namespaces) -> None:
        assert "/no/such/place" in (await self.failure(runtime, shell("true", log=Path("/no/such/place/log")))).message

    async def test_nothing_is_left_of_it(self, runtime: Namespaces) -> None:
        await self.failure(runtime, Spec("a", ["no-such-program"]))
        assert own_children() == []

    def script(self, directory: Path, text: str) -> None:
        path = directory / "run"
        path.write_text(text)
        path.chmod(0o755)


class TestStop:
    async def test_a_plain_sleep_ends_at_once(self, runtime: Namespaces) -> None:
        container = await runtime.start(Spec("a", ["sleep", "1000"]))
        await asyncio.wait_for(container.stop(grace=30), 5)
        assert await container.wait() == 128 + signal.SIGTERM

    async def test_a_command_may_end_itself_in_its_own_way(self, runtime: Namespaces, tmp_path: Path) -> None:
        script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"
        container = await runtime.start(shell(script, log=tmp_path / "log"))
        await until(lambda: printed(tmp_path / "log", "stdout"))
        await asyncio.wait_for(container.stop(grace=30), 10)
        assert await container.wait() == 3

    async def test_a_command_that_will_not_hear_is_killed_after_its_grace(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        script = "trap '' TERM; echo ready; while :; do sleep 1; done"
        container = await runtime.start(shell(script, log=tmp_path / "log"))
        await until(lambda: printed(tmp_path / "log", "stdout"))
        began = asyncio.get_running_loop().time()
        await container.stop(grace=0.3)
        assert 0.3 <= asyncio.get_running_loop().time() - began < 5
        assert await container.wait() == 128 + signal.SIGKILL

    async def test_whatever_else_runs_in_it_ends_with_its_command(self, runtime: Namespaces) -> None:
        marker = str(uuid.uuid4())
        # It leaves its session and its parent, as daemons do.
        outcome = await run(runtime, f"(setsid sh -c 'sleep 1000; exit' {marker} &) ; sleep 0.1")
        assert outcome.code == 0
        assert processes(marker) == []

    async def test_hundreds_of_processes_end_together(self, runtime: Namespaces) -> None:
        marker = str(uuid.uuid4())
        bomb = f"for i in $(seq 200); do sh -c 'trap \"\" TERM; sleep 1000; exit' {marker} & done; wait"
        container = await runtime.start(shell(bomb))
        await until(lambda: len(processes(marker)) >= 200)
        await container.stop(grace=5)
        assert processes(marker) == []

    async def test_the_dead_are_buried_while_the_command_runs(self, runtime: Namespaces) -> None:
        script = "for i in 1 2 3 4 5; do (sh -c 'exit' &) ; done; sleep 0.2; grep -l '^State:.Z' /proc/[0-9]*/status"
        assert (await run(runtime, script)).stdout == ""

    async def test_it_has_ended_though_somebody_else_goes_on_to_write_to_its_output(
        self, runtime: Namespaces, tmp_path: Path
    ) -> None:
        """A container may hand its output to another one, by a socket."""
        container = await runtime.start(shell("sleep 1000", log=tmp_path / "log"))
        (command,) = children(container.pid)
        output = os.open(f"/proc/{command}/fd/1", os.O_WRONLY)

        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, 1 << 20)
        writers = [subprocess.Popen(["yes"], stdout=output) for _ in range(4)]
        os.close(output)
        try:
            os.kill(command, signal.SIGKILL)
            assert await asyncio.wait_for(container.wait(), PATIENCE) == 128 + signal.SIGKILL
        finally:
            await container.stop(0)
            for writer in writers:
                writer.kill()
                writer.wait()

    async def test_a_command_may_end_by_itself_just_then(self, runtime: Namespaces) -> None:
        containers = [await runtime.start(Spec("a", ["sleep", str(number / 1000)])) for number in range(20)]
        await asyncio.gather(*(container.stop(5) for container in containers))
        assert {await container.wait() for container in containers} <= {0, 143}

    async def test_stopping_twice_or_late_does_no_harm(self, runtime: Namespaces) -> None:
        container = await runtime.start(Spec("a", ["sleep", "1000"]))
        await asyncio.gather(container.stop(5), container.stop(0), container.wait(), container.wait())
        await container.stop(5)

    async def test_a_runtime_that_closes_ends_all(self, runtime: Namespaces) -> None:
        containers = [await runtime.start(Spec("a", ["sleep", "1000"])) for _ in range(5)]
        await runtime.close()
        assert [await container.wait() for container in containers] == [137] * 5
        with pytest.raises(StartError, match="about to end"):
            await runtime.start(Spec("a", ["true"]))


class TestNothingIsLeft:
    async def test_when_a_start_is_cancelled(self, runtime: Namespaces) -> None:
        marker = str(uuid.uuid4())
        for moment in (0.0, 0.005, 0.02, 0.04):
            starting = asyncio.create_task(runtime.start(shell("sleep 1000; exit " + marker)))
            await asyncio.sleep(moment)
            starting.cancel()
            try:
                container = await starting
            except asyncio.CancelledError:
                pass
            else:
                await container.stop(0)  # it was faster
            assert own_children() == []
        assert processes(marker) == []

    async def test_when_our_process_is_killed(self, able: None, tmp_path: Path) -> None:
        marker = str(uuid.uuid4())
        program = (
            "import asyncio, sys\n"
            "from tests.local.runtime.containers import execute, shell\n"
            "from subak.local.runtime.namespaces import Namespaces\n"
            "async def main():\n"
            "    runtime = Namespaces()\n"
            "    for _ in range(3):\n"
            f"        container = await runtime.start(shell('sleep 1000; exit {marker}'))\n"
            f"    await container.execute(['sh', '-c', 'sleep 1000; exit', '{marker}'], {{}}, stdin=False, tty=False)\n"
            "    print('ready', flush=True)\n"
            "    await asyncio.sleep(1000)\n"
            "asyncio.run(main())\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            cwd=Path(__file__).parents[3],
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        monitors = descendants(process.pid)
        assert len(monitors) >= 3 * 3 + 1  # a monitor, process 1 and a shell each, and the program beside one
        process.kill()
        process.wait()
        process.stdout.close()
        await until(lambda: not any(Path("/proc", str(pid)).exists() for pid in monitors))

    async def test_when_the_process_around_a_container_is_killed(self, runtime: Namespaces) -> None:
        marker = str(uuid.uuid4())
        container = await runtime.start(shell(f"sh -c 'sleep 1000; exit' {marker}; exit"))
        await until(lambda: processes(marker))
        (monitor,) = own_children()
        os.kill(monitor, signal.SIGKILL)
        assert await container.wait() == 137
        await until(lambda: not processes(marker))
        await container.stop(1)

    async def test_no_mounts_are_seen_outside(self, runtime: Namespaces) -> None:
        before = Path("/proc/self/mountinfo").read_text()
        async with running(runtime, mounts=[Mount("/scratch"), Mount("/cache", "/usr")]):
            assert Path("/proc/self/mountinfo").read_text() == before
