"""libsubak: whether this computer can load it into programs, and which versions of it lie on the host."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from subak import __version__
from subak.dialects import isolation
from subak.doctor import Finding, failed, listed, ok, unknown, warning
from subak.doctor.node import Computer
from subak.node import library
from tinykube.aside import aside

MACHINES = {62: "x86_64", 183: "aarch64"}
"""ELF's numbers for processors."""
VERSIONS = isolation.HOST_DIRECTORY.rpartition("/")[0]
PATIENCE = 10.0


async def loadable(computer: Computer) -> Sequence[Finding]:
    """Whether the library of this installation is there, for this processor, and loads before a program."""
    try:
        path = library.find()
    except library.NoLibrary as error:
        return [failed("libsubak is not there: no limit would hold", str(error).partition(": ")[2])]
    processor = _processor(path.read_bytes()[:20])
    if processor != platform.machine():
        seen = f"{path} is for {processor or 'no processor that we know'}, this computer is {platform.machine()}"
        return [failed(seen, "install the wheel for this computer")]
    return [await aside(lambda: _preloaded(path))]


def _preloaded(path: Path) -> Finding:
    """What the loader says if the library is loaded before a small program, as in containers."""
    program = shutil.which("true")
    if program is None:
        return unknown("there is no program `true` to try it with")
    env = {**os.environ, "LD_PRELOAD": str(path)}
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    said = " ".join(done.stderr.split())
    if done.returncode or str(path) in said:
        return failed(
            f"a program does not load {path}: {said or f'exit code {done.returncode}'}", "install subak again"
        )
    return ok(f"{__version__} loads")


def _processor(head: bytes) -> str:
    """The processor that an ELF file of 64 bits is for; empty if it is none."""
    if len(head) < 20 or head[:5] != b"\x7fELF\x02":
        return ""
    (number,) = struct.unpack_from("<H" if head[5] == 1 else ">H", head, 18)
    return MACHINES.get(number, f"processor {number}")


async def installed(computer: Computer) -> Sequence[Finding]:
    """Whether the agent's copy on the host is this installation's, and which old ones could go."""
    return await aside(lambda: list(_installed(computer)))


def _installed(computer: Computer) -> Sequence[Finding]:
    copies = {path.parent.name: path for path in sorted(computer.at(VERSIONS).glob("*/libsubak.so"))}
    if not copies:
        return [ok(f"none at {VERSIONS} yet: the agent puts it there")]
    mine = copies.pop(__version__, None)
    found: list[Finding] = []
    if mine is not None and _differs(mine):
        seen = f"{VERSIONS}/{__version__}/libsubak.so is not the library of this installation"
        found.append(warning(seen, "restart the agent; two builds of one version must not be mixed"))
    used = _mounted(computer)
    idle = [version for version in copies if f"{VERSIONS}/{version}/libsubak.so" not in used]
    if idle:
        remedy = f"no container uses them any more: rm -r {' '.join(f'{VERSIONS}/{each}' for each in idle)}"
        found.append(warning(f"old versions: {listed(idle)}", remedy))
    kept = [version for version in copies if version not in idle]
    here = [*([__version__] if mine else []), *(f"{version} (older containers use it)" for version in kept)]
    return found or [ok(listed(here))]


def _differs(path: Path) -> bool:
    try:
        own = library.find().read_bytes()
    except library.NoLibrary:
        return False
    return hashlib.sha256(own).digest() != hashlib.sha256(path.read_bytes()).digest()


def _mounted(computer: Computer) -> set[str]:
    """All paths of the host that are mounted somewhere, as each process's list of mounts names them."""
    seen: set[str] = set()
    spaces: set[str] = set()
    for folder in computer.at("/proc").glob("[0-9]*"):
        try:
            space = os.readlink(folder / "ns" / "mnt")
            if space not in spaces:
                spaces.add(space)
                seen |= {line.split()[3] for line in (folder / "mountinfo").read_text().splitlines()}
        except (OSError, IndexError):
            continue
    return seen
