"""Settings for all tests; libsubak as its sources are now, and a card to use it on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fuzz
from tests.card import Card, driver
from tests.native.runs import ABLE, Runs

fuzz.register()

NATIVE = Path(__file__).parents[1] / "native"


@pytest.fixture(scope="session")
def libsubak() -> Path:
    """The library, built anew if a source has changed."""
    if not (shutil.which("cc") and shutil.which("make")):
        pytest.skip("a C compiler and make build libsubak")
    made = subprocess.run(["make", "-s", "-j2", "-C", str(NATIVE), "all", "mock"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return NATIVE / "build" / "libsubak.so"


@pytest.fixture(scope="session")
def mock_driver(libsubak: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries of a driver that has a card of its own."""
    return driver(libsubak.parent / "mock", tmp_path_factory.mktemp("driver"))


@pytest.fixture
def card(mock_driver: Path, tmp_path: Path) -> Card:
    """A card that no other test uses."""
    return Card(mock_driver, tmp_path / "card")


@pytest.fixture(scope="session", autouse=True)
def native_runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The programs of native/tests that this session asks for, begun now."""
    own = (item for item in request.session.items if item.path.parent.name == "native")
    calls = (getattr(item, "callspec", None) for item in own)
    wanted = [call.params["program"] for call in calls if call]
    running = Runs(wanted if ABLE else [], tmp_path_factory.mktemp("native"))
    yield running
    running.end()
