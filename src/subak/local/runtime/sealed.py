"""The interpreter that launches containers: a sealed copy in memory, so that none of them can change the machine's.

A program in a container reaches the executable of the process that was about to start it: a script whose first line is
`#!/proc/self/exe` is enough (CVE-2019-5736).  If that were the machine's own Python, and its owner the user who runs
Subak, the script could change its mode or wait until it may be overwritten.  Of the copy nobody can change a byte.

The libraries and modules that the copy loads are the machine's.  They are out of reach: `/proc/PID/map_files` is only
for privileged users of the machine, and no launcher has them open.
"""

from __future__ import annotations

import errno
import fcntl
import os
from functools import cache

from subak.local.runtime.spec import StartError

_EXECUTABLE = 0x10
"""MFD_EXEC, since Linux 6.3; before, every file in memory is executable."""
_SEAL_MODE = 0x20
"""F_SEAL_EXEC, since Linux 6.3: whether the file is executable cannot be changed."""
_MODE = 0o555


def interpreter() -> int:
    """The open copy of the interpreter that runs this process; made once.  Raises StartError if it cannot be."""
    try:
        copy = _copy()
        os.fchmod(copy, _MODE)  # a container that runs as its owner may have changed it
    except OSError as error:
        raise forbidden(error) from error
    return copy


def environment() -> dict[str, str]:
    """The variables that the copy needs to find its libraries, which may be looked for beside the executable."""
    places = [os.path.dirname(path) for path in _mapped() if os.path.basename(path).startswith("libpython")]
    places += [path for path in (os.environ.get("LD_LIBRARY_PATH"),) if path]
    return {"LD_LIBRARY_PATH": ":".join(places)} if places else {}


def forbidden(error: OSError) -> StartError:
    """Why no container can be launched, and what would help."""
    what = "containers are launched from a sealed copy of Python in memory"
    if error.errno == errno.EACCES:
        return StartError(
            f"{what}, which this machine forbids to run: allow it with `sysctl -w vm.memfd_noexec=1`, "
            "or in the security policy (SELinux, AppArmor) that is in force"
        )
    return StartError(f"{what}, which cannot be made: {error.strerror}", number=error.errno or 0)


@cache
def _copy() -> int:
    try:
        copy = os.memfd_create("python", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | _EXECUTABLE)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | _SEAL_MODE
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        copy = os.memfd_create("python", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    try:
        with open("/proc/self/exe", "rb") as original:
            while os.sendfile(copy, original.fileno(), None, 1 << 30):
                pass
        os.fchmod(copy, _MODE)
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
    except OSError:  # as without memory: the next container tries again, and must not find less
        os.close(copy)
        raise
    return copy


@cache
def _mapped() -> frozenset[str]:
    """The files that are mapped into this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as table:
        return frozenset(line.rstrip("\n").split(" ", 5)[5].lstrip() for line in table if "/" in line)
