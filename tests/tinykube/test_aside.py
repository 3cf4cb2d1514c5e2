"""Calls that may never come back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from tinykube.aside import Errands, aside

STUCK = """
import asyncio, threading
from tinykube.aside import aside

async def main():
    try:
        async with asyncio.timeout(0.01):
            await aside(threading.Event().wait)
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""


async def test_what_a_call_gives_or_raises() -> None:
    assert await aside(lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        await aside(lambda: 1 // 0)


async def test_calls_with_one_key_are_made_once_at_a_time() -> None:
    errands, calls, go_on = Errands(), [], threading.Event()

    def slow() -> int:
        calls.append(1)
        go_on.wait(60)
        return len(calls)

    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(errands.run("a", slow), 0.01)
    assert (errands.under_way("a"), errands.under_way("b")) == (True, False)
    go_on.set()
    assert set(await asyncio.gather(errands.run("a", slow), errands.run("a", slow))) == {1}
    assert not errands.under_way("a")
    assert await errands.run("a", slow) == 2
    with pytest.raises(ZeroDivisionError):
        await errands.run("a", lambda: 1 // 0)


def test_a_call_that_never_comes_back_does_not_keep_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("given up\n", "")
