"""Removing what containers could write to."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def remove(*paths: Path) -> None:
    """Remove trees and files, also where a container took away our own permissions.  What is not there is fine."""
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            continue
        try:
            shutil.rmtree(path)
        except PermissionError:
            _unlock(str(path))
            shutil.rmtree(path)


def discard(path: Path) -> None:
    """Remove it as far as that can be done."""
    with suppress(OSError):
        remove(path)


def _unlock(directory: str) -> None:
    os.chmod(directory, 0o700)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _unlock(entry.path)
