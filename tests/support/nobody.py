"""Runs commands as a user without any rights.

That user must be able to read the checkout and the interpreter, wherever they are.  So commands run in a mount
namespace that replaces a directory which the user cannot enter by one with only the needed entries.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

NOBODY = 65534
CHECKOUT = Path(__file__).parents[2]
ENTER = f'cd "$0" && exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "$@"'


def possible() -> bool:
    """Whether the necessary programs are installed."""
    return bool(shutil.which("setpriv") and shutil.which("unshare"))


def as_nobody(*command: str, visible: Iterable[Path] = ()) -> Sequence[str]:
    """The command that root runs to have another one run by nobody, in the checkout; it can read these paths too."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), CHECKOUT, *visible}
    return ["unshare", "--mount", "sh", "-ec", _open_way(sorted(needed)) + ENTER, str(CHECKOUT), *command]


def _open_way(paths: list[Path]) -> str:
    """Commands of a shell after which everybody can get to these paths."""
    commands = []
    closed: dict[Path, list[Path]] = {}
    for path in paths:
        for directory in reversed([path, *path.parents]):
            if directory.stat().st_mode & 0o5 != 0o5:
                closed.setdefault(directory, []).append(path)
                break
    for directory, inside in closed.items():
        commands.append("stage=$(mktemp -d); mount -t tmpfs none $stage")
        for number, path in enumerate(inside):
            commands.append(f"mkdir $stage/{number}; mount --bind '{path}' $stage/{number}")
        commands.append(f"mount -t tmpfs -o mode=755 none '{directory}'")
        for number, path in enumerate(inside):
            commands.append(f"mkdir -p '{path}'; mount --move $stage/{number} '{path}'")
        commands.append("umount $stage; rmdir $stage")
    return "; ".join([*commands, ""])
