"""Hides the cards of the computer that runs the tests, so that tests find the same on every computer.

The dynamic loader looks into LD_LIBRARY_PATH first.  There it finds files with the names of the driver's libraries that
are no libraries, and gives up: for every program that tests start this is a computer without a driver.  A test that
wants a card says where its driver is (`card.py`); one that wants the computer's own asks with `seen`.

The loader reads the variable when a program starts.  So it holds in the workers of `make test`, but not in the process
of a `pytest` that runs all tests by itself.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

VARIABLE = "LD_LIBRARY_PATH"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_NAME = "subak-no-driver-"


def hide() -> None:
    """Hide the driver from all programs that this process starts, until it ends."""
    if seen()[VARIABLE] != os.environ.get(VARIABLE, ""):
        return  # whoever started this process has done so
    folder = Path(tempfile.mkdtemp(prefix=_NAME))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)  # tests run programs as other users
    for name in LIBRARIES:
        (folder / name).touch()
    os.environ[VARIABLE] = ":".join(filter(None, (str(folder), os.environ.get(VARIABLE))))


def seen() -> dict[str, str]:
    """The variable with which a program sees the computer's own driver."""
    folders = os.environ.get(VARIABLE, "").split(":")
    return {VARIABLE: ":".join(each for each in folders if not Path(each).name.startswith(_NAME))}
