"""A computer made of files: /proc, /sys, /etc and what a check looks at, below a folder of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subak.doctor.node import Computer

HEAD = "Num       RefCount Protocol Flags    Type St Inode Path"


class Host:
    """The files below a folder."""

    def __init__(self, root: Path, nvml: Any = None) -> None:
        self.root = root
        self.computer = Computer(root, nvml=lambda root: nvml)
        self.write("/proc/1/net/unix", HEAD)

    def write(self, path: str, text: str = "") -> Path:
        """A file with this text."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def process(self, pid: int, *words: str, version: str = "") -> None:
        """A process that runs this command; asked for its version, its program says so."""
        self.write(f"/proc/{pid}/cmdline", "\0".join((*words, "")))
        program = self.write(f"/proc/{pid}/exe", f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)

    def listens(self, path: str) -> None:
        """Somebody listens there, says the kernel."""
        with self.write("/proc/1/net/unix", HEAD).open("a") as file:
            file.write(f"\n0000000000000000: 00000002 00000000 00010000 0001 01 4711 {path}\n")
