"""NRI, by which the container runtime asks our agent about each container; its default validator; and CDI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from subak.doctor import Finding, failed, listed, ok, unknown, versions, warning
from subak.doctor.node import Computer
from subak.doctor.node.configuration import Settings, settings
from subak.doctor.node.runtime import CRIO, Runtime, find
from subak.doctor.versions import WITHOUT_NRI
from tinykube.aside import aside
from tinykube.yaml import read


async def switched_on(computer: Computer) -> Sequence[Finding]:
    """Whether the runtime has NRI on, and listens for plugins."""
    found = await aside(lambda: _both(computer))
    if found is None:
        return []
    runtime, said = found
    socket = said.nri_socket
    listening = computer.listening(socket)
    listens = computer.at(socket).exists() if listening is None else listening
    where = said.files[-1] if said.files else runtime.config
    if said.nri is False:
        return [warning(f"{runtime.name} has NRI switched off ({where}): {WITHOUT_NRI}", _switch(runtime, where))]
    if not said.connections:
        seen = f"{where} forbids plugins to connect (disable_connections): {WITHOUT_NRI}"
        return [warning(seen, _switch(runtime, where))]
    if listens:
        return [ok(f"{runtime.name} listens at {socket}")]
    if said.nri:
        seen = f"{where} has NRI switched on, and nobody listens at {socket}"
        return [failed(seen, f"restart it: systemctl restart {_unit(runtime)}")]
    return [warning(f"nobody listens at {socket}, so NRI is off: {WITHOUT_NRI}", _switch(runtime, where))]


async def validator(computer: Computer) -> Sequence[Finding]:
    """Whether the runtime refuses a container that our agent has not seen."""
    found = await aside(lambda: _both(computer))
    if found is None or found[1].nri is False:
        return []
    runtime, said = found
    if runtime.number is not None and runtime.number < versions.VALIDATING[runtime.name]:
        return []  # the check of the version tells what that means
    if said.validator:
        return [ok("it refuses containers that a required plugin has not seen")]
    where = said.files[-1] if said.files else runtime.config
    if runtime.name == CRIO:
        lines = "[crio.nri.default_validator] nri_enable_default_validator = true"
    else:
        lines = '[plugins."io.containerd.nri.v1.nri".default_validator] enable = true'
    seen = "NRI's default validator is off: a container that starts while the agent is away gets no limits"
    return [failed(seen, f"write to {where}: {lines}; then restart {_unit(runtime)}")]


async def cdi(computer: Computer) -> Sequence[Finding]:
    """Whether the runtime injects devices by CDI, and whether the specifications can be read."""
    found = await aside(lambda: _both(computer))
    if found is None:
        return []
    runtime, said = found
    if said.cdi is False:
        remedy = "device nodes are injected all the same; to use CDI set enable_cdi = true, and restart containerd"
        return [warning(f"CDI is off in {listed(said.files) or runtime.config}", remedy)]
    folders = [computer.at(each) for each in said.cdi_folders]
    specifications = [path for each in folders if each.is_dir() for path in sorted(each.iterdir()) if _is_one(path)]
    broken = [str(path) for path in specifications if not _readable(path)]
    if broken:
        remedy = "make them anew (nvidia-ctk cdi generate --output=...), or remove them"
        return [warning(f"these CDI specifications cannot be read: {listed(broken)}", remedy)]
    if said.cdi is None:
        return [unknown(f"whether CDI is on in {runtime.name} of unknown version")]
    return [ok(f"on; specifications in {' and '.join(said.cdi_folders)}: {len(specifications)}")]


def _both(computer: Computer) -> tuple[Runtime, Settings] | None:
    runtime = find(computer)
    return None if runtime is None else (runtime, settings(computer, runtime))


def _switch(runtime: Runtime, where: str) -> str:
    if runtime.name == CRIO:
        return f"write to {where}: [crio.nri] enable_nri = true; then systemctl restart crio"
    lines = '[plugins."io.containerd.nri.v1.nri"] disable = false, disable_connections = false'
    return f"write to {where}: {lines}; then systemctl restart containerd"


def _unit(runtime: Runtime) -> str:
    return "crio" if runtime.name == CRIO else "containerd"


def _is_one(path: Path) -> bool:
    return path.suffix in (".json", ".yaml")


def _readable(path: Path) -> bool:
    try:
        content = read(path.read_bytes()).content  # JSON is YAML too
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(content, dict) and {"cdiVersion", "kind", "devices"} <= content.keys()
