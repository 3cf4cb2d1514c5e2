"""Whether containers can be confined on this machine, and if not, what forbids it and how to allow it.

The only way to know is to start one.  The kernel answers with a bare error number, so we look up the likely cause
afterwards.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from subak.local.runtime.launcher import ids
from subak.local.runtime.machine import search_path
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec, StartError

_KINDS = ("user", "mnt", "pid", "uts", "ipc")


async def obstacle() -> str:
    """Why containers cannot be confined here, in sentences for the user; empty if they can."""
    if sys.platform != "linux":
        return f"Containers are confined by namespaces, which only Linux has; this is {sys.platform}."
    runtime = Namespaces()
    try:
        container = await runtime.start(Spec("a trial", ["true"], {"PATH": search_path()}))
        await container.wait()
    except StartError as error:
        return explain(error)
    finally:
        await runtime.close()
    return ""


def remark() -> str:
    """What a user should know of how containers are confined here; usually empty."""
    if os.geteuid() != 0 or ids.shifted():
        return ""
    return (
        "containers run as root without any rights of its own, but may read what root may read: this root has no other "
        "user ids for them. Start the container around Subak with a range of ids and the capabilities CHOWN, SETUID "
        "and SETGID, or run Subak as an ordinary user"
    )


def explain(error: StartError, proc: Path = Path("/proc"), root: bool | None = None) -> str:
    """Why a container could not be made; `proc` and `root` describe this process."""
    root = os.geteuid() == 0 if root is None else root
    cause = _cause(error, proc, root)
    return f"{cause} (The kernel said: {error.message}.)" if cause else f"The kernel refuses: {error.message}."


def _cause(error: StartError, proc: Path, root: bool) -> str:
    if not (proc / "self/ns/user").exists():
        return "This kernel was built without user namespaces (CONFIG_USER_NS)."
    for kind in _KINDS:
        name = f"max_{kind}_namespaces"
        if error.number == errno.ENOSPC and _read(proc / "sys/user" / name) == "0":
            return f"The setting user.{name} is 0: allow namespaces with `sysctl -w user.{name}=10000`."
    if error.number == errno.ENOSYS:
        return f"Containers need Linux 5.12 or newer: this is {os.uname().release}."
    if error.number == errno.EUSERS:
        return "Namespaces are nested too deep: start Subak outside of other containers."
    if error.number in (errno.EPERM, errno.EACCES):
        return _forbidden(error, proc, root)
    return ""


def _forbidden(error: StartError, proc: Path, root: bool) -> str:
    if not root and _read(proc / "sys/kernel/unprivileged_userns_clone") == "0":
        return (
            "Only root may make user namespaces here: allow them to all with "
            "`sysctl -w kernel.unprivileged_userns_clone=1`, or run Subak as root."
        )
    if not root and _read(proc / "sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor keeps user namespaces from ordinary users: allow them with "
            "`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or run Subak as root."
        )
    if error.message.startswith("mount proc"):
        return (
            "Part of /proc is covered, as in a container, so that no new one may be mounted: start the container "
            "around Subak with `--security-opt systempaths=unconfined` (Docker) or `procMount: Unmasked` (Kubernetes)."
        )
    if not any(line.split(" ")[4] == "/" for line in _read(proc / "self/mountinfo").splitlines()):
        return "Subak runs in a chroot, from which no user namespaces can be made: start it outside."
    if "Seccomp:\t2" in _read(proc / "self/status"):
        return (
            "A seccomp filter forbids namespaces, as in a container: start the container around Subak with "
            "`--security-opt seccomp=unconfined` (Docker) or `seccompProfile: {type: Unconfined}` (Kubernetes)."
        )
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
