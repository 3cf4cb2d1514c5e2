"""Directories whose files change all at once.

    volume/key           -> ..data/key        what programs open
    volume/..data        -> ..20261115.1      one symbolic link, replaced by one rename
    volume/..20261115.1/key                   the content

A program that reads two keys while they change sees either both old or both new ones, if it reads them through
`..data`.  The names are those that Kubernetes uses: programs that watch for changes watch `..data`.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from subak.local.kubelet.payload import Payload
from subak.local.runtime.ownership import give

LINK = "..data"


def write(directory: Path, payload: Payload) -> bool:
    """Make the directory show `payload`; False if it did already."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    old = _current(directory)
    if old is not None and _shows(old, payload):
        return False
    new = directory / f"..{time.strftime('%Y_%m_%d_%H_%M_%S', time.gmtime())}.{time.time_ns() % 10**9}"
    for name, content in payload.items():
        path = _inside(new, name)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.write_bytes(content.data)
        give(path, content.mode)
    new.mkdir(mode=0o755, exist_ok=True)
    for path in (directory, new, *(each for each in new.rglob("*") if each.is_dir())):
        give(path, 0o755)
    temporary = directory / f"{LINK}_tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(new.name)
    temporary.rename(directory / LINK)
    _link(directory, {name.split("/", 1)[0] for name in payload})
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _current(directory: Path) -> Path | None:
    try:
        return directory / os.readlink(directory / LINK)
    except OSError:
        return None


def _shows(directory: Path, payload: Payload) -> bool:
    """Whether the directory holds exactly these files."""
    there = {str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file()}
    if there != set(payload):
        return False
    for name, content in payload.items():
        path = directory / name
        if path.stat().st_mode & 0o7777 != content.mode or path.read_bytes() != content.data:
            return False
    return True


def _link(directory: Path, names: set[str]) -> None:
    """Make a link for each name, and remove other links."""
    for name in names:
        path = directory / name
        if not path.is_symlink():
            path.symlink_to(f"{LINK}/{name}")
    for path in directory.iterdir():
        if path.is_symlink() and path.name != LINK and path.name not in names:
            path.unlink()


def _inside(directory: Path, name: str) -> Path:
    """The path of a file; the API server refuses names that lead elsewhere, and so do we."""
    if name.startswith(("/", "..")) or ".." in name.split("/"):
        raise ValueError(f"{name!r} is no path inside a volume")
    return directory / name
