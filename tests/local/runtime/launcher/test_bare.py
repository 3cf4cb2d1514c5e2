"""A launcher starts quickly, because it imports little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from subak.local.runtime import launcher
from subak.local.runtime.launcher.bare import suppress

SLOW = {"collections", "contextlib", "enum", "functools", "re", "selectors", "signal", "socket", "typing"}


def test_a_launcher_imports_nothing_that_takes_long() -> None:
    place = Path(launcher.__file__).parents[1]
    program = "import sys; sys.path.append(sys.argv[1]); import launcher.monitor; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(place)], stdout=subprocess.PIPE, check=True)
    found = set(ran.stdout.decode().split())
    assert "launcher.sources" in found
    assert not found & SLOW


def test_only_the_named_errors_are_suppressed() -> None:
    with suppress(FileNotFoundError, PermissionError):
        raise PermissionError
    with pytest.raises(ValueError, match="another"), suppress(OSError):
        raise ValueError("another")
    with suppress(OSError):
        pass
