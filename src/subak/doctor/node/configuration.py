"""What the configuration of a container runtime says about NRI and CDI.

    containerd   config.toml and its `imports`, in the forms of version 2 and 3
    CRI-O        crio.conf, then crio.conf.d in the order of names

What no file says is the default of the runtime's version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from subak.doctor.node import Computer, toml
from subak.doctor.node.runtime import CRIO, Runtime
from subak.doctor.node.toml import Table, merged, table

NRI_SOCKET = "/var/run/nri/nri.sock"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_NRI = "io.containerd.nri.v1.nri"
_CRI = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
"""Where containerd keeps CDI's settings: since version 3 of its configuration, and before."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is switched on, by the files or by default; None where that is not known."""

    nri: bool | None
    connections: bool
    validator: bool
    nri_socket: str
    cdi: bool | None
    cdi_folders: tuple[str, ...]
    files: tuple[str, ...]


def settings(computer: Computer, found: Runtime) -> Settings:
    """What its configuration switches on.  Raises CannotTell for a file that cannot be read."""
    return (_of_crio if found.name == CRIO else _of_containerd)(computer, found)


def _of_containerd(computer: Computer, found: Runtime) -> Settings:
    files, content = _imported(computer, found.config)
    modern = None if found.number is None else found.number >= (2, 0)  # before, NRI and CDI were off by default
    nri = table(content, "plugins", _NRI)
    cri = reduce(merged, (table(content, "plugins", name) for name in reversed(_CRI)))
    off = nri.get("disable", None if modern is None else not modern)
    if _NRI in content.get("disabled_plugins", ()):
        off = True
    return Settings(
        nri=None if off is None else not off,
        connections=not nri.get("disable_connections", False),
        validator=bool(table(nri, "default_validator").get("enable", False)),
        nri_socket=nri.get("socket_path") or NRI_SOCKET,
        cdi=cri.get("enable_cdi", modern),
        cdi_folders=tuple(cri.get("cdi_spec_dirs") or CDI_FOLDERS),
        files=tuple(files),
    )


def _imported(computer: Computer, first: str) -> tuple[list[str], Table]:
    """A file with all that it imports, in containerd's order: what is imported later counts more."""
    content: Table = {}
    files: list[str] = []
    waiting = [first]
    while waiting:
        path = waiting.pop(0)
        if path in files:
            continue
        found = toml.load(computer.at(path))
        if found:
            files.append(path)
            disabled = [*content.get("disabled_plugins", ()), *found.get("disabled_plugins", ())]
            content = merged(content, found) | {"disabled_plugins": disabled}
            waiting += _resolved(computer, path, found.get("imports") or ())
    return files, content


def _resolved(computer: Computer, parent: str, imports: Sequence[str]) -> Iterator[str]:
    for pattern in imports:
        absolute = pattern if pattern.startswith("/") else f"{parent.rpartition('/')[0]}/{pattern}"
        if "*" not in absolute:
            yield absolute
            continue
        for match in sorted(computer.root.glob(absolute.lstrip("/"))):
            yield f"/{match.relative_to(computer.root)}"


def _of_crio(computer: Computer, found: Runtime) -> Settings:
    extra = sorted(computer.at("/etc/crio/crio.conf.d").glob("*.conf"))
    paths = [path for path in (computer.at(found.config), *extra) if path.exists()]
    content: Table = reduce(merged, map(toml.load, paths), {})
    nri = table(content, "crio", "nri")
    return Settings(
        nri=nri.get("enable_nri"),
        connections=not nri.get("nri_disable_connections", False),
        validator=bool(table(nri, "default_validator").get("nri_enable_default_validator", False)),
        nri_socket=nri.get("nri_listen") or NRI_SOCKET,
        cdi=True,  # CRI-O has no switch for it
        cdi_folders=tuple(table(content, "crio", "runtime").get("cdi_spec_dirs") or CDI_FOLDERS),
        files=tuple(f"/{path.relative_to(computer.root)}" for path in paths),
    )
