"""What the operator's shell ignores or blocks (nohup, a background job, a service manager) reaches no container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]

OPERATOR = """
import asyncio, signal, sys
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.stand_in import StandIns
from tests.local.runtime.containers import execute, run, running, shell
ALL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in ALL - {signal.SIGCHLD}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
STATUS = "grep -hE '^Sig(Blk|Ign)' /proc/1/status /proc/self/status"
async def main():
    runtime = Namespaces()
    kind = sys.argv[1]
    if kind == "status":
        print((await run(runtime, STATUS)).stdout, end="")
        async with running(runtime) as container:
            print((await execute(container, STATUS)).stdout, end="")
    else:
        starter = {"stop": runtime, "stand-in": StandIns(runtime), "unconfined": StandIns()}[kind]
        container = await starter.start(shell("exec sleep 1000"))
        await asyncio.wait_for(container.stop(grace=1000), 20)
        print(await container.wait())
    await runtime.close()
if sys.argv[1] == "status":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
asyncio.run(main())
"""


def as_a_deaf_operator(what: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", OPERATOR, what],
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": os.environ["PATH"]},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_a_command_a_further_program_and_process_1_begin_with_default_signals(able: None) -> None:
    own = 1 << 31 | 1 << 32  # the C library's own, which nobody can set
    python = 1 << 12 | 1 << 24  # SIGPIPE and SIGXFSZ, which Python ignores in process 1
    lines = as_a_deaf_operator("status")
    assert len(lines) == 2 * 2 * 2
    assert {int(line.split()[1], 16) & ~own & ~python for line in lines} == {0}, lines


@pytest.mark.parametrize("what", ["stop", "stand-in", "unconfined"])
def test_a_container_hears_that_it_should_end(able: None, what: str) -> None:
    assert as_a_deaf_operator(what) == ["143"]
