from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from subak.local.runtime.capability import explain, remark
from subak.local.runtime.spec import StartError

ASK = "import asyncio; from subak.local.runtime.capability import obstacle; print(asyncio.run(obstacle()))"

# A filter of seccomp that answers EPERM to unshare(2); the number of the call depends on the machine.
FILTER = """
import ctypes, os, struct, sys
number = {"x86_64": 272, "aarch64": 97, "riscv64": 97}[os.uname().machine]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("rules", ctypes.c_void_p))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(rules), ctypes.addressof(code))), 0, 0) == 0
"""


def ask(*command: str, question: str = ASK) -> str:
    """What we say of a machine that these commands make worse first."""
    finished = subprocess.run(
        [*command, sys.executable, "-c", question], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture(autouse=True)
def _needs(able: None) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("util-linux's unshare is not installed")


def test_where_nothing_forbids_it_there_is_nothing_to_say() -> None:
    assert ask() == ""


@pytest.mark.parametrize("kind", ["user", "mnt", "pid", "uts", "ipc"])
def test_a_limit_of_zero_is_named(kind: str) -> None:
    script = f'echo 0 > /proc/sys/user/max_{kind}_namespaces; exec "$@"'
    said = ask("unshare", "-Ur", "sh", "-c", script, "sh")
    assert said.startswith(f"The setting user.max_{kind}_namespaces is 0: allow namespaces with `sysctl -w ")


def test_a_covered_proc_is_named() -> None:
    said = ask("unshare", "-Urm", "sh", "-c", 'mount -t tmpfs none /proc/sys; exec "$@"', "sh")
    assert said.startswith("Part of /proc is covered, as in a container")


def test_a_chroot_is_named(tmp_path: Path) -> None:
    script = """
    mount -t tmpfs none "$1" && mkdir "$1/root"
    for path in /*; do
        if [ -L "$path" ]; then
            cp -P "$path" "$1/root/"
        elif [ -d "$path" ]; then
            mkdir "$1/root$path" && mount --rbind "$path" "$1/root$path"
        fi
    done
    exec "$0" -c "import os; os.chroot('$1/root'); $2"
    """
    finished = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, sys.executable, str(tmp_path), ASK],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert finished.stdout.startswith("Subak runs in a chroot"), finished.stderr


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64", "riscv64"), reason="no filter for this machine")
def test_a_seccomp_filter_is_named() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FILTER + ASK], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert finished.stdout.startswith("A seccomp filter forbids namespaces"), finished.stderr


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("unprivileged_userns_clone", "0", "Only root may make user namespaces here: allow them to all with "),
        ("apparmor_restrict_unprivileged_userns", "1", "AppArmor keeps user namespaces from ordinary users: allow "),
    ],
)
def test_settings_of_distributions_are_named(tmp_path: Path, setting: str, value: str, said: str) -> None:
    """They cannot be changed for a test, so what is read is made up."""
    for name in ("self/ns/user", f"sys/kernel/{setting}"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(value + "\n")
    refused = StartError("unshare: Operation not permitted", number=errno.EPERM)
    assert explain(refused, tmp_path, root=False).startswith(said)
    assert setting not in explain(refused, tmp_path, root=True)


def test_a_kernel_without_user_namespaces_is_named(tmp_path: Path) -> None:
    assert "CONFIG_USER_NS" in explain(StartError("unshare: Invalid argument", number=errno.EINVAL), tmp_path)


def test_a_kernel_that_is_too_old_is_named() -> None:
    said = explain(StartError("open_tree: Function not implemented", number=errno.ENOSYS))
    assert said.startswith(f"Containers need Linux 5.12 or newer: this is {os.uname().release}.")


def test_root_without_other_ids_is_told_what_containers_may_read() -> None:
    told = ask("unshare", "-Ur", question="from subak.local.runtime.capability import remark; print(remark())")
    assert told.startswith("containers run as root without any rights of its own, but may read what root may read")
    assert remark() == ""


def test_what_we_cannot_explain_is_said_as_the_kernel_says_it() -> None:
    error = StartError("unshare: Cannot allocate memory", number=errno.ENOMEM)
    assert explain(error) == "The kernel refuses: unshare: Cannot allocate memory."
