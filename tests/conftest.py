"""Settings for all tests; libsubak as its sources are now, and a card to use it on."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import fuzz, hidden, warm
from tests.support.card import Card, driver
from tests.support.native import NATIVE, locked

PROGRAMS = "tests/native/test_libsubak.py"
SLOW = ("tests/native/", "tests/node/monitor/test_libsubak", "tests/scenarios/", "tests/cli/", "tests/test_")
HISTORIES = ("tests/scheduler/", "tests/batch/")
"""Slow at full length: they take thousands of examples."""

pytest_plugins = ("tests.support.failures",)

fuzz.register()
gc.disable()  # until tests begin: what is imported and collected stays


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Some more than processors, since they often wait for programs; each takes seconds to begin."""
    return min(8, len(os.sched_getaffinity(0)) * 3 // 2)


def pytest_configure() -> None:
    """Let programs that tests start find the same, whatever computer this is and whatever started the tests."""
    hidden.hide()
    _default_signals()


def _default_signals() -> None:
    """Let programs that tests start have default signals, whatever started the tests (nohup, a shell's background).

    What a process ignores its children ignore too; what it handles they do not.  So the tests themselves go on to be
    deaf to what they were told to ignore.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python's own, which subprocess resets
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_sessionstart() -> None:
    """Start `subak` quickly, unless tests run at full length."""
    if not fuzz.long():
        warm.install()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the long run what is marked for it, and begin with what takes long."""
    if not fuzz.long():
        left = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = [item for part in slow_first(items, workers) for item in part]


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among all that is there."""
    gc.freeze()
    gc.enable()


def slow_first(items: list[pytest.Item], workers: int) -> list[list[pytest.Item]]:
    """The tests in as many equal parts as there are workers, each with its share of those that wait for programs first.

    pytest-xdist begins with such parts, and whoever is done takes from the end of another's: so no worker is left alone
    with a minute of waiting in the end.  A module stays together, for its tests share a cluster.
    """
    first = SLOW + HISTORIES if fuzz.long() else SLOW
    slow: dict[str, list[pytest.Item]] = {}
    quick: list[pytest.Item] = []
    for item in items:
        if item.nodeid.startswith(PROGRAMS):
            slow[item.nodeid] = [item]
        elif item.nodeid.startswith(first):
            slow.setdefault(item.nodeid.partition("::")[0], []).append(item)
        else:
            quick.append(item)
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, module in enumerate(slow.values()):
        parts[number % workers] += module
    for part in parts:
        short = max(0, -(-len(items) // workers) - len(part))
        part += quick[:short]
        del quick[:short]
    parts[-1] += quick
    return parts


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A way to the checkout without spaces, wherever it lies: a library whose path has some cannot be preloaded."""
    link = tmp_path_factory.mktemp("link") / "checkout"
    link.symlink_to(NATIVE.parent)
    return link


@pytest.fixture(scope="session")
def libsubak(checkout: Path) -> Path:
    """The library, built anew if a source has changed."""
    if not (shutil.which("cc") and shutil.which("make")):
        pytest.skip("a C compiler and make build libsubak")
    with locked():
        made = subprocess.run(["make", "-s", "-j2", "-C", str(NATIVE), "all", "mock"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return checkout / "native" / "build" / "libsubak.so"


@pytest.fixture(scope="session")
def mock_driver(libsubak: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries of a driver that has a card of its own."""
    return driver(libsubak.parent / "mock", tmp_path_factory.mktemp("driver"))


@pytest.fixture
def card(mock_driver: Path, tmp_path: Path) -> Card:
    """A card that no other test uses."""
    return Card(mock_driver, tmp_path / "card")
