"""Directories whose files change all at once.

    volume/key           -> ..data/key        what programs open
    volume/..data        -> ..20261115.1f3a   one symbolic link, replaced by one rename
    volume/..20261115.1f3a/key                the content, whose digest is in the name

A program that reads two keys while they change sees either both old or both new ones, if it reads them through
`..data`.  The names are those that Kubernetes uses: programs that watch for changes watch `..data`.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from subak.local.kubelet.payload import BadVolume, Content, Payload
from subak.local.runtime.ownership import ROOT, give, hand_over, inherited
from subak.node import trees

LINK = "..data"


def write(directory: Path, payload: Payload) -> bool:
    """Make the directory show `payload`; False if it did already.  Raises BadVolume or OSError."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    old, digest = _current(directory), _digest(payload)
    if old is not None and old.name.endswith(f".{digest}"):
        if inherited(directory):
            hand_over(directory, ROOT)
        return False
    new = directory / f"..{time.strftime('%Y_%m_%d_%H_%M_%S', time.gmtime())}.{digest}"
    trees.remove(new)
    new.mkdir(mode=0o755)
    for name, content in payload.items():
        _put(new, name, content)
    for path in (directory, new):
        give(path, 0o755)
    temporary = directory / f"{LINK}_tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(new.name)
    temporary.rename(directory / LINK)
    _link(directory, {name.split("/", 1)[0] for name in payload})
    if old is not None:
        trees.discard(old)
    return True


def _current(directory: Path) -> Path | None:
    try:
        return directory / os.readlink(directory / LINK)
    except OSError:
        return None


def _digest(payload: Payload) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(payload.items()):
        for part in (name.encode(), content.mode.to_bytes(4, "big"), content.data):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:20]


def _link(directory: Path, names: set[str]) -> None:
    """Make a link for each name, and remove other links."""
    for name in names:
        path = directory / name
        if not path.is_symlink():
            path.symlink_to(f"{LINK}/{name}")
    for path in directory.iterdir():
        if path.is_symlink() and path.name != LINK and path.name not in names:
            path.unlink()


def _put(directory: Path, name: str, content: Content) -> None:
    """Write a file, step by step however deep it is; the API server refuses names that lead elsewhere, and so do we."""
    *folders, last = name.split("/")
    if not last or name.startswith(("/", "..")) or ".." in (*folders, last) or "\0" in name:
        raise BadVolume(f"{name!r} is no path inside a volume")
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in filter(None, folders):
            with suppress(FileExistsError):
                os.mkdir(folder, 0o755, dir_fd=here)
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
            give(here, 0o755)
        file = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=here)
        with os.fdopen(file, "wb") as out:
            out.write(content.data)
            give(file, content.mode)
    finally:
        os.close(here)
