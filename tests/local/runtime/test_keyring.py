"""The keyring of the operator's session: whoever inherits it may read its keys, whatever the namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from subak.local.runtime import filter

CHECKOUT = Path(__file__).parents[3]

KEYS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
ADD, CONTROL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
SESSION, JOIN, SEARCH, READ = -3, 1, 10, 11
def call(*arguments):
    given = [each if isinstance(each, bytes) else ctypes.c_long(each) for each in arguments]
    result = libc.syscall(*given)
    return result if result >= 0 else os.strerror(ctypes.get_errno())
def found():
    return call(CONTROL, SEARCH, SESSION, b"user", b"secret", 0)
"""
KEEP = (
    KEYS
    + """
call(CONTROL, JOIN, 0)
added = call(ADD, b"user", b"secret", b"the operator's", 14, SESSION)
if isinstance(added, str): raise SystemExit("no key can be added: " + added)
assert found() == added
"""
)
CLUSTER = (
    KEEP
    + """
import asyncio, sys
from subak.local.runtime.namespaces import Namespaces, filter
from subak.local.runtime.spec import Spec
from tests.local.runtime.containers import complete
INSIDE = sys.argv[1]
async def main():
    runtime = Namespaces()
    for filtered in (True, False):
        if not filtered:
            filter.program = lambda: b""
        print((await complete(runtime, Spec("a", [sys.executable, "-c", INSIDE]))).stdout, end="")
    await runtime.close()
asyncio.run(main())
"""
)


def in_a_session(program: str, *arguments: str) -> list[str]:
    path = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"]},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    if "no key can be added" in ran.stderr:
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.skipif(not filter.program(), reason="the calls of this machine are not known")
def test_no_container_finds_a_key_of_the_operators_session(able: None) -> None:
    """With the filter the question is not permitted; without it, the keyring is another."""
    answers = in_a_session(CLUSTER, KEYS + "print(found())")
    assert answers == ["Operation not permitted", "Required key not available"]
