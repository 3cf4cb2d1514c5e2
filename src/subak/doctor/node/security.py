"""SELinux and AppArmor, which may keep containers from what the agent mounts into them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from subak.dialects import isolation
from subak.doctor import Finding, ok, unknown, warning
from subak.doctor.node import Computer

LABEL = "container_file_t"
FOLDERS = (isolation.HOST_DIRECTORY.rpartition("/")[0], isolation.HOOK, "/run/subak", isolation.LOCKS)


async def modules(computer: Computer) -> Sequence[Finding]:
    """Which of them is in force, and whether our folders are labelled for containers."""
    enforcing = (computer.text("/sys/fs/selinux/enforce") or "").strip()
    if enforcing == "1":
        return _labels(computer)
    if enforcing == "0":
        return [ok("SELinux only logs (permissive)")]
    if (computer.text("/sys/module/apparmor/parameters/enabled") or "").strip() == "Y":
        # The profiles of container runtimes let programs use what is mounted.
        return [ok("AppArmor is on; the runtimes' own profiles let containers use what is mounted")]
    return [ok("neither SELinux nor AppArmor is on")]


def _labels(computer: Computer) -> Sequence[Finding]:
    wrong = [path for path in FOLDERS if computer.at(path).exists() and LABEL not in _label(computer, path)]
    if wrong:
        seen = f"SELinux is enforcing, and {', '.join(wrong)} is not labelled {LABEL}: containers may not use it"
        rules = " && ".join(f"semanage fcontext -a -t {LABEL} '{path}(/.*)?'" for path in wrong)
        return [warning(seen, f"{rules} && restorecon -R {' '.join(wrong)}")]
    if not any(computer.at(path).exists() for path in FOLDERS):
        remedy = f"label the agent's folders {LABEL} once they are there, and run this again"
        return [unknown("SELinux is enforcing, and the agent's folders are not there yet", remedy)]
    return [ok(f"SELinux is enforcing, and the agent's folders are labelled {LABEL}")]


def _label(computer: Computer, path: str) -> str:
    try:
        return os.getxattr(computer.at(path), "security.selinux").decode(errors="replace")
    except OSError:
        return ""
