"""Calls that may never come back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tinykube.aside import aside

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


def test_a_call_that_never_comes_back_does_not_keep_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("given up\n", "")
