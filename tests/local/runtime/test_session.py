from __future__ import annotations

import asyncio
import errno
import os
import shlex
import socket
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from subak.local.runtime.container import Confined
from subak.local.runtime.launcher.order import EXITED, STARTED, answer
from subak.local.runtime.machine import search_path
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.session import Watched
from subak.local.runtime.spec import StartError
from tests.local.runtime.containers import PATIENCE, execute, processes, running, shell, until
from tests.support.processes import children
from tinykube.server.kubelet import Session

ENV = {"PATH": search_path(), "TERM": "xterm"}
ENDLESS = 1000


async def begin(container: Confined, script: str, *, stdin: bool = False, tty: bool = False) -> Session:
    return await container.execute(["sh", "-c", script], ENV, stdin=stdin, tty=tty)


TRACED = """
import ctypes, os, time
ended, begun = os.getpid(), os.pipe()
if os.fork() == 0:
    os.setsid()
    ctypes.CDLL(None).ptrace(0x4206, ended, None, None)
    os.write(begun[1], b"x")
    for stream in range(3):
        os.close(stream)
    time.sleep(1000)
os.read(begun[0], 1)
os._exit(0)
"""
"""Ends, but a child of it traces it (PTRACE_SEIZE): the kernel then shows its end to nobody else."""

TRACE_ME = """
import ctypes, os, signal, time
ctypes.CDLL(None).ptrace(0, 0, None, None)
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(1000)
"""
"""Asks its parent to trace it, and stops."""


async def python(container: Confined, script: str) -> int:
    """Run Python in a container to its end; gives the exit code."""
    session = await container.execute([sys.executable, "-S", "-c", script], ENV, stdin=False, tty=False)
    try:
        async with asyncio.timeout(PATIENCE):
            async for _ in session.output():
                pass
            return await session.wait()
    finally:
        await session.close()


async def read_until(session: Session, text: bytes) -> bytes:
    """What a program prints, up to a text that we wait for."""
    printed = b""
    async with asyncio.timeout(PATIENCE):
        async for _, data in session.output():
            printed += data
            if text in printed:
                return printed
    raise AssertionError(f"{text!r} did not come, but {printed!r}")


async def test_output_and_exit_code_come_back(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        outcome = await execute(container, "echo out; echo err >&2; exit 3")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (3, "out\n", "err\n")


async def test_a_program_runs_where_the_command_runs_and_as_the_same_user(runtime: Namespaces) -> None:
    script = "echo mine > /tmp/mine; exec sleep 1000"
    async with running(runtime, script, uid=1234, gid=99, host_name="there", working_directory="/w") as container:
        await execute(container, "until test -s /tmp/mine && grep -q sleep /proc/2/comm; do sleep 0.01; done")
        outcome = await execute(
            container, "cat /tmp/mine; id -u; id -g; uname -n; pwd; grep NoNewPrivs /proc/self/status"
        )
        assert outcome.stdout.split() == ["mine", "1234", "99", "there", "/w", "NoNewPrivs:", "1"]
        seen = await execute(container, "cat /proc/[0-9]*/comm")
        assert "sleep" in seen.stdout.split()


async def test_a_program_has_no_more_rights_than_the_command(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        outcome = await execute(
            container, "grep -E '^Cap(Bnd|Eff|Prm)' /proc/self/status /proc/2/status | cut -d: -f2-"
        )
        lines = outcome.stdout.splitlines()
        assert lines[:3] == lines[3:]
        outcome = await execute(container, "ls /proc/self/fd; touch /usr/bin/new")
        assert outcome.stdout.split() == ["0", "1", "2", "3"]
        assert "Read-only" in outcome.stderr


async def test_input_goes_in_until_its_end(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        assert (await execute(container, "cat; echo over", b"some input\n")).stdout == "some input\nover\n"
        assert (await execute(container, "cat; echo over")).stdout == "over\n"


async def test_much_data_passes_through_unharmed(runtime: Namespaces) -> None:
    data = bytes(range(256)) * 16384
    async with running(runtime) as container:
        session = await begin(container, "cat", stdin=True)

        async def give() -> None:
            await session.write(data)
            await session.end_input()

        giving = asyncio.create_task(give())
        received = bytearray()
        async for _, chunk in session.output():
            received += chunk
        await giving
        assert received == data
        await session.close()


async def test_a_program_waits_while_nobody_takes_its_output(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        session = await begin(container, "head -c 1000000 /dev/zero")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.wait(), 0.3)
        assert sum([len(data) async for _, data in session.output()]) == 1000000
        assert await session.wait() == 0
        await session.close()


async def test_we_wait_while_a_program_does_not_take_its_input(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        session = await begin(container, "read line; sleep 1000", stdin=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.write(b"x\n" * 1000000), 0.3)
        await session.close()


async def test_input_for_a_program_that_has_closed_it_is_dropped(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        session = await begin(container, "exec <&-; echo closed; sleep 1000", stdin=True)
        await read_until(session, b"closed")
        await asyncio.wait_for(session.write(b"x" * 1000000), PATIENCE)
        await session.close()
        await session.write(b"late")


async def test_a_program_that_is_not_there_is_a_clear_error(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        for tty in (False, True):
            with pytest.raises(StartError, match='exec: "no-such-program": not found in') as caught:
                await container.execute(["no-such-program"], ENV, stdin=True, tty=tty)
            assert caught.value.exit_code == 127
        assert (await execute(container, "echo well")).stdout == "well\n"


async def test_a_program_that_is_stopped_before_it_begins_ends_when_nobody_watches_it(runtime: Namespaces) -> None:
    stop = """
import os
mine = set(os.listdir("/proc"))
while True:
    for each in set(os.listdir("/proc")) - mine:
        if each.isdecimal():
            try:
                os.kill(int(each), 19)
            except OSError:
                pass
"""
    async with running(runtime, f"exec {shlex.quote(sys.executable)} -S -c {shlex.quote(stop)}") as container:
        for _ in range(5):
            with suppress(TimeoutError, StartError):
                await asyncio.wait_for(python(container, "pass"), 0.3)
        monitor = int(Path(f"/proc/{container.pid}/stat").read_text().rpartition(")")[2].split()[1])
        await until(lambda: len(children(monitor)) == 1)


async def test_closing_ends_the_program_and_what_it_started(runtime: Namespaces) -> None:
    marker = str(uuid.uuid4())
    async with running(runtime) as container:
        for tty in (False, True):
            session = await begin(container, f"trap '' HUP TERM; sh -c 'sleep 1000; exit' {marker}; exit", tty=tty)
            await until(lambda: processes(marker))
            await asyncio.wait_for(session.close(), PATIENCE)
            assert await session.wait() == 137
            await until(lambda: not processes(marker))


async def test_what_a_program_leaves_running_keeps_nobody_waiting(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        outcome = await asyncio.wait_for(execute(container, "sleep 1000 & echo started"), PATIENCE)
    assert (outcome.code, outcome.stdout) == (0, "started\n")


@pytest.mark.parametrize("script", [TRACED, TRACE_ME], ids=["by a child", "by us"])
async def test_a_program_that_is_traced_ends_all_the_same(runtime: Namespaces, script: str) -> None:
    async with running(runtime) as container:
        assert await python(container, script) == 137
        assert (await execute(container, "echo lives")).stdout == "lives\n"


async def test_a_command_that_asks_to_be_traced_ends(runtime: Namespaces) -> None:
    command = [sys.executable, "-S", "-c", TRACE_ME]
    container = await runtime.start(replace(shell(""), argv=command))
    assert await asyncio.wait_for(container.wait(), PATIENCE) == 137


async def test_nobody_waits_for_a_program_that_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subak.local.runtime.session.CLOSING", 0.05)
    ours, monitor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with monitor:
        session = Watched(ours)
        await asyncio.wait_for(session.close(), PATIENCE)
        assert await session.wait() == 137


async def test_output_without_an_end_leaves_others_their_turn_and_ends_with_the_program() -> None:
    line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    session = Watched(line, outputs={os.open("/dev/zero", os.O_RDONLY): 1})
    answer(theirs, STARTED, 1)
    await session.begin()
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    assert await pieces(session, until=turn.is_set) < ENDLESS
    answer(theirs, EXITED, 0)
    await session.wait()
    assert await pieces(session, until=lambda: False) < ENDLESS
    theirs.close()
    await session.close()


async def pieces(session: Session, until: Callable[[], bool]) -> int:
    """How much output comes, in pieces."""
    count = 0
    async for _ in session.output():
        count += 1
        if until() or count == ENDLESS:
            break
    return count


async def test_programs_end_with_the_container(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        session = await begin(container, "trap '' TERM; sleep 1000")
        waiting = asyncio.create_task(session.wait())
        await container.stop(0)
        assert await asyncio.wait_for(waiting, PATIENCE) == 137
        assert [data async for data in session.output()] == []
        await session.close()
        with pytest.raises(StartError, match="the container has ended"):
            await begin(container, "true")


async def test_many_programs_at_a_time(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        outcomes = await asyncio.gather(*(execute(container, f"echo {number}") for number in range(30)))
    assert [outcome.stdout for outcome in outcomes] == [f"{number}\n" for number in range(30)]


async def test_no_descriptors_are_left_open(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for tty in (False, True):
            await execute(container, "echo one", b"two", tty=tty)
            with pytest.raises(StartError):
                await container.execute(["no-such-program"], ENV, stdin=True, tty=tty)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("left", range(4))
async def test_a_program_for_which_no_descriptor_is_left_takes_none_with_it(
    runtime: Namespaces, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """A probe tries again and again: if each try kept one, there would never be one again."""
    async with running(runtime) as container:
        before = set(os.listdir("/proc/self/fd"))
        given = 0

        def scarce(make: Callable[..., object]) -> Callable[..., object]:
            def made(*args: object) -> object:
                nonlocal given
                given += 1
                if given > left:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                return make(*args)

            return made

        monkeypatch.setattr(os, "pipe", scarce(os.pipe))
        monkeypatch.setattr(os, "memfd_create", scarce(os.memfd_create))
        with pytest.raises(StartError, match="Too many open files"):
            await container.execute(["true"], ENV, stdin=True, tty=False)
        monkeypatch.undo()
        assert set(os.listdir("/proc/self/fd")) == before
        assert (await execute(container, "echo again")).stdout == "again\n"


async def test_a_terminal_for_which_no_descriptor_is_left_keeps_nobody_waiting() -> None:
    """The kernel then gives us the message without the terminal."""
    line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    session = Watched(line)
    answer(theirs, STARTED, 1)
    with pytest.raises(StartError, match="its terminal was lost: Too many open files"):
        await session.begin()
    assert theirs.recv(1) == b"", "the monitor ends the program"
    theirs.close()


class TestTerminal:
    async def test_a_program_has_a_terminal_of_the_container(self, runtime: Namespaces) -> None:
        async with running(runtime) as container:
            outcome = await execute(
                container, "tty; test -t 0 && test -t 2 && echo yes; echo err >&2; exit 4", tty=True
            )
        assert (outcome.code, outcome.stdout, outcome.stderr) == (4, "/dev/pts/0\r\nyes\r\nerr\r\n", "")

    async def test_it_can_be_resized(self, runtime: Namespaces) -> None:
        async with running(runtime) as container:
            session = await begin(
                container, "trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done", tty=True
            )
            await read_until(session, b"ready")
            await session.resize(132, 43)
            await read_until(session, b"43 132")
            await session.close()
            await session.resize(80, 24)

    async def test_what_is_typed_reaches_the_program(self, runtime: Namespaces) -> None:
        async with running(runtime) as container:
            session = await begin(container, "exec sed -u 's/^/got /'", stdin=True, tty=True)
            await session.write(b"hello\n")
            await read_until(session, b"got hello")
            await session.write(b"\x03")
            assert await asyncio.wait_for(session.wait(), PATIENCE) == 130
            await session.close()

    async def test_the_end_of_input_ends_a_shell(self, runtime: Namespaces) -> None:
        async with running(runtime) as container:
            outcome = await asyncio.wait_for(execute(container, "cat; echo over", b"line\n", tty=True), PATIENCE)
        assert outcome.stdout.endswith("line\r\nover\r\n")

    async def test_another_user_owns_its_terminal(self, runtime: Namespaces) -> None:
        async with running(runtime, uid=1234) as container:
            assert (await execute(container, "stat -c %u $(tty); echo x > $(tty)", tty=True)).stdout == "1234\r\nx\r\n"
