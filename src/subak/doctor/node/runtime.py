"""The container runtime: which one it is, of which version, and whether it answers."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from subak.doctor import Finding, failed, unknown, versions
from subak.doctor.aside import aside
from subak.doctor.node import Computer, Process

CONTAINERD, CRIO = "containerd", "cri-o"
PROGRAMS = {"containerd": CONTAINERD, "crio": CRIO}
SOCKETS = {
    CONTAINERD: ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"),
    CRIO: ("/run/crio/crio.sock",),
}
CONFIGS = ("/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml")
_NUMBER = re.compile(r"\b(v?\d+\.\d+\.\d+\S*)")
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """A container runtime of this computer; `version` is empty if it could not be asked."""

    name: str
    version: str
    socket: str
    config: str

    @property
    def number(self) -> versions.Version | None:
        """Major and minor version."""
        return versions.read(self.version)


async def reachable(computer: Computer) -> Sequence[Finding]:
    """Whether a container runtime answers, and in a version that asks our agent about containers."""
    found = await aside(lambda: find(computer))
    if found is None:
        seen = "no container runtime was found: neither a process of containerd or CRI-O, nor their sockets"
        return [failed(seen, "start it; in a pod, share the host's process namespace or give --host-root")]
    findings = (
        [versions.runtime(found.name, found.version)]
        if found.version
        else [unknown(f"{found.name} of unknown version")]
    )
    problem = await aside(lambda: _connect(computer.at(found.socket)))
    if problem:
        findings.append(failed(f"{found.socket} cannot be connected to: {problem}", f"systemctl status {found.name}"))
    return findings


def find(computer: Computer) -> Runtime | None:
    """The container runtime: the one that runs, else the one whose socket is there."""
    process = computer.process(*PROGRAMS)
    for name, sockets in SOCKETS.items():
        if process is not None and PROGRAMS[process.program] != name:
            continue
        there = [path for path in sockets if computer.at(path).exists()]
        given = process.option("--address", "-a", "--listen") if process else ""
        if process is not None or there:
            address = given.removeprefix("unix://") or next(iter(there), sockets[0])
            version = asked(computer, process).removeprefix("v") if process else ""
            return Runtime(name, version, address, _config(computer, name, process))
    return None


def _config(computer: Computer, name: str, process: Process | None) -> str:
    given = process.option("--config", "-c") if process else ""
    if given:
        return given
    if name == CRIO:
        return "/etc/crio/crio.conf"
    return next((path for path in CONFIGS if computer.at(path).exists()), CONFIGS[0])


def asked(computer: Computer, process: Process) -> str:
    """The version that a running program says it has; empty if it does not tell."""
    command = [str(computer.at(f"/proc/{process.pid}/exe")), "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    number = _NUMBER.search(said)
    return number[1] if number else ""


def _connect(path: Path) -> str:
    """Why the socket does not accept us; empty if it does."""
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as end:
            end.settimeout(PATIENCE)
            end.connect(str(path))
    except OSError as error:
        return error.strerror or str(error)
    return ""
