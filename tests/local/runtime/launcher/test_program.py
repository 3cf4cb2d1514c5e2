from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[4] / "src/subak/local/runtime"

BECOME = """
import ctypes, os, sys
sys.path.append(sys.argv[1])
from launcher import kernel, program
libc = ctypes.CDLL(None)
SET_DUMPABLE, GET_DUMPABLE = 4, 3
os.setgroups = os.setresgid = kernel.bound_capabilities = kernel.give_up_privileges = lambda *_: None
os.setresuid = lambda *_: libc.prctl(SET_DUMPABLE, 1, 0, 0, 0)
program._execute = lambda *_: print(libc.prctl(GET_DUMPABLE, 0, 0, 0, 0))
program.become({"capabilities": (), "groups": (), "uid": 1, "gid": 1, "processes": 0, "working_directory": "/",
                "filter": b"", "argv": [], "env": {}, "path": b""})
"""


def test_who_changes_its_user_still_hides_the_files_of_the_launcher() -> None:
    """Where fs.suid_dumpable is 1, the kernel shows all of a process to its new user, as `setresuid` does here."""
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", BECOME, str(SOURCES)], capture_output=True, text=True)
    assert ran.stdout == "0\n", ran.stderr
