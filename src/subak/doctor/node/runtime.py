"""The container runtime: which one it is, of which version, and whether it answers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from subak.doctor import Finding, failed, versions
from subak.doctor.node import Computer, Process, cri
from subak.doctor.node.cri import NoCri
from tinykube.aside import aside

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
    """Whether a container runtime serves kubelets, in a version that asks our agent about containers."""
    found = await aside(lambda: find(computer))
    if found is None:
        seen = "no container runtime was found: neither a process of containerd or CRI-O, nor their sockets"
        return [failed(seen, "start it; in a pod, share the host's process namespace or give --host-root")]
    try:
        answer = await cri.ask(computer.at(found.socket))
    except NoCri as error:
        version = [versions.runtime(found.name, found.version)] if found.version else []
        return [*version, failed(str(error), error.remedy)]
    return [versions.runtime(found.name, answer.version.removeprefix("v") or found.version)]


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
