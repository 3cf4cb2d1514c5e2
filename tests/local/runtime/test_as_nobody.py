"""All the tests of this folder once more, as a user without any rights.

That user must be able to read the checkout and the interpreter, wherever they are.  So they run in a mount namespace in
which a directory that is closed to them is replaced by one that has nothing in it but what they need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NOBODY = 65534
CHECKOUT = Path(__file__).parents[3]
ENTER = f'cd "$0" && exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "$@"'


def open_way(paths: list[Path]) -> str:
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


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_all_this_works_without_root(able: None) -> None:
    if not (shutil.which("setpriv") and shutil.which("unshare")):
        pytest.skip("util-linux's setpriv and unshare are not installed")
    needed = {Path(sys.prefix), Path(sys.base_prefix), CHECKOUT}
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        finished = subprocess.run(
            [
                *("unshare", "--mount", "sh", "-ec", open_way(sorted(needed)) + ENTER, str(CHECKOUT)),
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-p",
                    "no:cacheprovider",
                    f"--basetemp={directory}/tests",
                    "--durations=8",
                ),
                str(Path(__file__).parent),
            ],
            env={"PATH": os.environ["PATH"], "HOME": directory, "TMPDIR": directory},
            capture_output=True,
            text=True,
            timeout=240,
        )
    print(finished.stdout)
    assert finished.returncode == 0, finished.stderr
    assert " passed" in finished.stdout
