from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doctor.node.host import Host


@pytest.fixture
def host() -> Iterator[Host]:
    """An empty computer.  Its folder has a short name: the path of a socket may have 107 letters."""
    with tempfile.TemporaryDirectory(prefix="host-") as folder:
        yield Host(Path(folder))
