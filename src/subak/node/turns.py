"""The directory in which all programs on this machine's cards take turns.

A share of a card's time is a turn on it, and those who take turns must know of each other: the commands of all users
and the containers of a cluster alike.  So there is one directory for the whole machine, the one that containers of HAMi
know.  libsubak keeps a small file for each card there.

Everybody may write there, so nobody relies on it: whoever spoils it, or what is in it, ends turns between users, and no
program waits or gets more memory because of that (`native/src/token.c`).
"""

from __future__ import annotations

import os
from pathlib import Path

from subak.dialects import isolation


class NoTurns(Exception):
    """The directory cannot be used; the text says why, and what would help."""


class Spoiled(NoTurns):
    """Another user has put something in its place that we cannot use and cannot remove."""


def directory() -> Path:
    """The directory, where every user of the machine may write; made if it is not there.  Raises NoTurns."""
    path = Path(os.environ.get(isolation.TURNS) or isolation.LOCKS).absolute()  # programs find it wherever they are
    try:
        path.mkdir(parents=True, exist_ok=True)
        _open_to_all(path)
    except OSError as error:
        raise _problem(path, f"cannot be used: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise _problem(path, f"is not ours to write: chmod 1777 {path}")
    return path


def _open_to_all(path: Path) -> None:
    """Let everybody write there, as in /tmp, if that is ours to allow."""
    # Opened once: its owner may be another user, who puts a link to a directory of ours in its place meanwhile.
    place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if found.st_mode & 0o777 != 0o777 and os.geteuid() in (0, found.st_uid):
            os.chmod(f"/proc/self/fd/{place}", 0o1777)
    finally:
        os.close(place)


def _problem(path: Path, what: str) -> NoTurns:
    try:
        owner = path.lstat().st_uid
    except OSError:
        owner = 0
    kind = NoTurns if owner in (0, os.geteuid()) else Spoiled
    return kind(f"{path}, where programs take turns on the cards, {what}")
