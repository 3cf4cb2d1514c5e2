"""The NVIDIA driver of this machine, wherever it is installed.

On most machines that is the root of the file system.  Where the driver comes in a container of its own (NVIDIA's GPU
operator) it is below a folder, and an agent in a pod sees the machine's root below another.  The first root that has
the driver's management library counts.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from subak.dialects.interpreter import Interpreter
from subak.node import nvml
from subak.node.nvml import Found

ROOTS = ("/", "/run/nvidia/driver", "/host", "/host/run/nvidia/driver")
LIBRARY = "libnvidia-ml.so.1"
FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/lib/wsl/lib",
)
"""Where distributions and NVIDIA's installer put it."""

PERIOD = 10.0


def library(roots: Sequence[Path]) -> Path | None:
    """The management library below the first root that has one."""
    places = (root / folder / LIBRARY for root in roots for folder in FOLDERS)
    return next((place for place in places if place.exists()), None)


def load(roots: Sequence[Path]) -> Any:
    """`pynvml` with the library below one of the roots; if none has it, with the one that the loader finds."""
    pynvml: Any = importlib.import_module("pynvml")  # slow to load, and needed by nobody else
    found = library(roots)
    if found is not None and pynvml.nvmlLib is None:
        pynvml.nvmlLib = ctypes.CDLL(str(found))
    return pynvml


class Nvidia:
    """The NVIDIA cards of this machine; follows `discovery.Source`."""

    def __init__(self, node: str, interpreter: Interpreter, roots: Sequence[Path]) -> None:
        self._node = node
        self._interpreter = interpreter
        self._roots = roots

    def look(self) -> Found:
        """The cards as they are now."""
        found = nvml.find(self._interpreter, load(self._roots))
        return replace(found, machine=found.machine and replace(found.machine, name=self._node))

    async def change(self) -> None:
        """Return after a while."""
        await asyncio.sleep(PERIOD)
