"""The tests here need a real Kubernetes: plain `pytest` leaves them out and says so."""

from __future__ import annotations

import os

import pytest

from tests.e2e import PARTS

collect_ignore_glob = [] if PARTS in os.environ else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if PARTS not in os.environ:
        terminalreporter.write_line("tests/e2e left out: they need a real Kubernetes (`make e2e` brings one)")
