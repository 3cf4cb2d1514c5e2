from __future__ import annotations

import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from subak.local.runtime import filter
from subak.local.runtime.launcher import allowance, kernel
from subak.local.runtime.namespaces import Namespaces
from subak.model.mount import Mount
from tests.local.runtime.containers import execute, printed, run, running, until

TAKE = """
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def watcher():
    return libc.inotify_init()
def timer():
    signal = (ctypes.c_int * 16)(0, 0, 34)
    return libc.timer_create(1, ctypes.byref(signal), ctypes.byref(ctypes.c_void_p()))
def queue():
    size, name = (ctypes.c_long * 8)(0, 10, 8192), b"/subak-%d-%d" % (os.getpid(), taken)
    made = libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, ctypes.byref(size))
    libc.mq_unlink(name)
    return made
def terminal():
    try: return os.open("/dev/ptmx", os.O_RDWR)
    except OSError: return -1
pairs = []
def passing():
    pairs.append(socket.socketpair())
    try: return socket.send_fds(pairs[-1][0], [b"x"], [0] * 200)
    except OSError: return -1
take, most, seconds = globals()[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
taken = 0
while taken < most and take() >= 0:
    taken += 1
print(taken, flush=True)
time.sleep(seconds)
"""
ALL = 1 << 20


def take(what: str, most: int, seconds: int) -> list[str]:
    return [sys.executable, "-c", TAKE, what, str(most), str(seconds)]


@pytest.mark.parametrize("what", ["watcher", "timer", "queue"])
async def test_a_container_that_takes_all_it_can_leaves_some_to_the_machine(
    runtime: Namespaces, tmp_path: Path, what: str
) -> None:
    """What a user namespace has is also counted as its maker's, who is the machine's root if root runs the cluster."""
    log = tmp_path / "log"
    async with running(runtime, shlex.join(take(what, ALL, 1000)), log=log):
        await until(lambda: printed(log, "stdout"))
        outside = subprocess.run(take(what, 1, 0), capture_output=True, text=True)
    assert int(printed(log, "stdout")) > 1
    assert outside.stdout == "1\n"


@pytest.mark.parametrize("what", ["watcher", "terminal"])
async def test_a_container_that_takes_all_it_can_leaves_some_to_the_next(
    runtime: Namespaces, tmp_path: Path, what: str
) -> None:
    log = tmp_path / "log"
    async with running(runtime, shlex.join(take(what, ALL, 1000)), log=log):
        await until(lambda: printed(log, "stdout"))
        assert (await run(runtime, shlex.join(take(what, 1, 0)))).stdout == "1\n"


async def test_descriptors_that_are_for_ever_on_their_way_keep_nobody_from_the_next_container(
    runtime: Namespaces, tmp_path: Path
) -> None:
    """Those of one user are counted together: of all containers, and of the user who runs the cluster."""
    log = tmp_path / "log"
    async with running(runtime) as neighbour, running(runtime, shlex.join(take("passing", ALL, 1000)), log=log):
        await until(lambda: printed(log, "stdout"))
        assert int(printed(log, "stdout")) > 1
        assert (await execute(neighbour, "echo here")).stdout == "here\n"
        assert (await execute(neighbour, "echo here", tty=True)).stdout == "here\r\n"


async def test_a_crash_shows_nothing_to_the_machines_handler_and_leaves_no_file(
    runtime: Namespaces, tmp_path: Path
) -> None:
    """A limit of one byte is the kernel's word for no core dump at all, not even to a program of the machine."""
    crash = "ulimit -c unlimited 2>/dev/null; cd /v; ulimit -c; kill -SEGV $$"
    mounts = [Mount("/v", str(tmp_path))]
    limit = f"{shlex.quote(sys.executable)} -c 'import resource as r; print(r.getrlimit(r.RLIMIT_CORE))'"
    assert (await run(runtime, crash, mounts=mounts)).code == 128 + 11
    assert list(tmp_path.iterdir()) == []
    async with running(runtime) as container:
        assert (await execute(container, limit)).stdout == (await run(runtime, limit)).stdout == "(1, 1)\n"


async def test_when_memory_runs_out_containers_go_before_everything_else(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        for process in ("1", "2", "self"):
            assert (await execute(container, f"cat /proc/{process}/oom_score_adj")).stdout == "1000\n"


async def test_there_are_no_more_namespaces_even_without_a_filter(
    runtime: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter, "program", lambda: b"")
    outcome = await run(runtime, "unshare --user true")
    assert outcome.code != 0
    assert "No space left on device" in outcome.stderr


@pytest.mark.parametrize(("had", "signals"), [(8, 2), (1 << 63, 8192)])
def test_limits_are_lowered_and_never_raised(monkeypatch: pytest.MonkeyPatch, had: int, signals: int) -> None:
    given: dict[int, int] = {}
    monkeypatch.setattr(kernel, "limit_of", lambda _: had)
    monkeypatch.setattr(kernel, "limit", given.__setitem__)
    allowance.lower()
    assert given[resource.RLIMIT_SIGPENDING] == signals
    assert given[resource.RLIMIT_CORE] == 1
    assert given[resource.RLIMIT_RTPRIO] == given[resource.RLIMIT_NICE] == 0
