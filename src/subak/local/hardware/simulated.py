"""Simulated cards for an agent on a real node: the description of `subak up`, read again whenever it changes.

So a card is broken, lost or replaced by editing the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from subak.dialects.interpreter import Interpreter
from subak.local.hardware import profiles
from subak.local.hardware.description import BadDescription, load
from subak.local.hardware.driver import NoDriver
from subak.node.machine import Machine
from subak.node.nvml import Found

PERIOD = 0.5


class Simulated:
    """The described machine of one node; follows `node.discovery.Source`.  `install` gives it a simulated driver."""

    def __init__(
        self,
        path: Path,
        node: str,
        interpreter: Interpreter,
        install: Callable[[Machine], Machine] = lambda machine: machine,
    ) -> None:
        self._path = path
        self._node = node
        self._interpreter = interpreter
        self._install = install
        self._stamp: object = None

    def look(self) -> Found:
        """The machine that the file describes now; if it cannot be read, none, and why."""
        self._stamp = self._stat()
        try:
            return Found(self._install(described(self._path, self._node, self._interpreter)))
        except (BadDescription, NoDriver) as error:
            return Found(None, (str(error),))
        except OSError as error:
            return Found(None, (f"{error.filename}: {error.strerror}: the simulated driver cannot be made ready",))

    async def change(self) -> None:
        """Return when the file is another one."""
        while self._stat() == self._stamp:
            await asyncio.sleep(PERIOD)

    def _stat(self) -> object:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def described(path: Path, node: str, interpreter: Interpreter) -> Machine:
    """The machine of this name that a file describes, or its only one under this name.  Raises BadDescription."""
    try:
        content = load(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadDescription(f"{path}: cannot be read: {reason}") from None
    machines = profiles.machines(content, str(path), interpreter)
    for machine in machines:
        if machine.name == node:
            return _untainted(machine)
    if len(machines) > 1:
        names = ", ".join(machine.name for machine in machines)
        raise BadDescription(f"{path}: nodes: it describes {names}, but not {node}: add an entry with name: {node}")
    (only,) = profiles.machines(_renamed(content, node), str(path), interpreter)
    return _untainted(only)


def _renamed(content: Any, node: str) -> Any:
    (entry,) = content["nodes"]
    return {"nodes": [{**{key: entry[key] for key in entry if key != "count"}, "name": node}]}


def _untainted(machine: Machine) -> Machine:
    """The taints of a real node are its administrator's."""
    return replace(machine, taints=())
