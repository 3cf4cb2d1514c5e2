"""Whose the files are that we make for containers.

Under root, the users of containers have ids of their own (`launcher.ids`): what root inside is to read or to change as
its owner must be given to it.  Under an ordinary user, all files are that user's, inside and outside.
"""

from __future__ import annotations

import os
from pathlib import Path

from subak.local.runtime.launcher import ids


def give(place: Path | int, mode: int) -> None:
    """Give a file or directory, by its path or its descriptor, to root inside, with this mode whatever our umask is."""
    os.chmod(place, mode)
    if ids.shifted():
        os.chown(place, *ids.of_root())
