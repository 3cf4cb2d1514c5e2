"""The one real cluster of a test run, and real nodes: a plugin that `python -m tests.e2e` gives to pytest.

A test that fails while they run is shown with the end of their parts' logs.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e import PARTS
from tests.e2e import node as nodes
from tests.e2e.cluster import Cluster
from tests.e2e.node import RealNode

_running: list[Cluster | RealNode] = []


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster(Path(os.environ[PARTS])) as started:
        _running.append(started)
        yield started
        _running.remove(started)


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[RealNode]:
    """A real node with NRI, for the tests of one file."""
    if nodes.missing():
        pytest.skip(nodes.missing())
    with RealNode(cluster) as started:
        _running.append(started)
        yield started
        _running.remove(started)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="keep what the real server answers as what is expected")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "[embedded" not in item.name:
        for started in _running:
            report.sections += [(f"log of {name}", started.story(name)) for name in started.parts]
    return report
