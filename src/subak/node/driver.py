"""The NVIDIA driver of this machine, wherever it is installed, as a source of cards.

On most machines that is the root of the file system.  Where the driver comes in a container of its own (NVIDIA's GPU
operator) it is below a folder, and an agent in a pod sees the machine's root below another.  The first root that has
the driver's management library counts.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.node import nvml
from subak.node.health import Health
from subak.node.machine import Machine
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

PERIOD, SLICE = 10.0, 1.0
"""Seconds between two looks if no event comes, and the longest that the end of the program has to wait for."""


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
    """The NVIDIA cards of this machine; follows `discovery.Source`.

    `loaded` gives the functions of `pynvml`, `root` is where /dev, /proc and /sys are.
    """

    def __init__(self, node: str, interpreter: Interpreter, loaded: Callable[[], Any], root: Path = Path("/")) -> None:
        self._node = node
        self._interpreter = interpreter
        self._loaded = loaded
        self._root = root
        self._health: Health | None = None
        self._listed: frozenset[str] = frozenset()

    def look(self) -> Found:
        """The cards as they are now, with their health."""
        try:
            functions = self._loaded()
        except OSError as error:
            return Found(None, (f"no NVIDIA cards are used: {error}",))
        health = self._health or Health(functions)
        self._health = health
        if (listed := self._cards_listed()) != self._listed:
            health.let_go()  # the driver's library knows only those cards that were there when it was initialized
            self._listed = listed
        found = nvml.find(self._interpreter, functions, self._root)
        if found.machine is None:
            health.let_go()
            return found
        machine = self._judged(functions, health, replace(found.machine, name=self._node))
        return replace(found, machine=machine, notes=(*found.notes, *health.unwatched))

    def _judged(self, functions: Any, health: Health, machine: Machine) -> Machine:
        """The machine with what the driver says of the health of its cards."""
        try:
            functions.nvmlInit()
            try:
                health.examine()
            finally:
                functions.nvmlShutdown()
            if health.faults:
                health.let_go()
            else:
                health.watch()
        except functions.NVMLError as error:
            health.unwatched = [f"the health of the cards cannot be watched: {error}"]
        devices = tuple(
            msgspec.structs.replace(each, healthy=False) if each.minor in health.faults else each
            for each in machine.devices
        )
        return replace(machine, devices=devices)

    def _cards_listed(self) -> frozenset[str]:
        """The cards that the kernel's driver has, by their bus addresses."""
        folder = self._root / "proc/driver/nvidia/gpus"
        return frozenset(each.name for each in folder.iterdir()) if folder.is_dir() else frozenset()

    async def change(self) -> None:
        """Return when a card has a fault, another one comes or goes, or it is time to look again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PERIOD
        while loop.time() < end:
            health = self._health
            if health is None or not health.watching:
                await asyncio.sleep(SLICE)
            elif await asyncio.to_thread(health.wait, int(SLICE * 1000)):
                return
            if self._cards_listed() != self._listed:
                return
