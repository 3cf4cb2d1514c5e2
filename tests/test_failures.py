"""A test run ends with what failed, and why: however much was printed before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
FAILING = """
import asyncio
import pytest

@pytest.fixture
def broken():
    raise OSError("no card")

def test_passes():
    pass

def test_needs_what_is_broken(broken):
    pass

def test_prints_much_and_fails():
    print("noise " * 1000)
    left = ["a: Pending", "b: Running"]
    assert not left, "not within 180 s: b runs"

def test_fails_in_a_task():
    async def fail():
        raise AssertionError("the task's own words")

    async def story():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    asyncio.run(story())
"""


def last_words(tmp_path: Path, content: str, *options: str) -> str:
    """What a run of these tests prints at last, but for the line that counts them."""
    tests = tmp_path / "test_some.py"
    tests.write_text(content)
    plugin = [f"--rootdir={tmp_path}", "-c/dev/null", "-p", "tests.support.failures", *options]
    command = [sys.executable, "-m", "pytest", *plugin, str(tests)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    *_, words = printed.split("= what failed, and why =")
    *told, _ = words.lstrip("=\n").splitlines()
    return "\n".join(told)


@pytest.mark.parametrize("options", [(), ("--numprocesses=1",)], ids=["here", "by a worker"])
def test_each_failure_is_told_at_last(tmp_path: Path, options: tuple[str, ...]) -> None:
    told = last_words(tmp_path, FAILING, "-rA", *options)
    assert (
        told
        == """\
test_some.py::test_needs_what_is_broken (setup)
    OSError: no card
test_some.py::test_prints_much_and_fails (call)
    AssertionError: not within 180 s: b runs
    assert not ['a: Pending', 'b: Running']
test_some.py::test_fails_in_a_task (call)
    AssertionError: the task's own words"""
    )


def test_a_module_that_cannot_be_read_is_told_by_its_end(tmp_path: Path) -> None:
    told = last_words(tmp_path, "import nothing_of_this_name")
    assert told.startswith("test_some.py (collect)")
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" in told


def test_many_failures_leave_room_for_each_other(tmp_path: Path) -> None:
    content = "\n".join(f"def test_{number}():\n    assert False, 'x' * 10000\n" for number in range(100))
    told = last_words(tmp_path, content)
    assert len(told) < 12_000
    assert told.startswith("test_some.py::test_0 (call)\n    AssertionError: xxxxxxx")
    assert told.endswith("... and more of 100 failures")
