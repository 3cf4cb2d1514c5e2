from __future__ import annotations

from pathlib import Path

import pytest

from tests.doctor.node.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """An empty computer."""
    return Host(tmp_path)
