"""The one real cluster of a test run: a plugin that `python -m tests.e2e` gives to pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import PARTS
from tests.e2e.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster(Path(os.environ[PARTS])) as started:
        yield started


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="keep what the real server answers as what is expected")
