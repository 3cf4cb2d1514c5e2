"""Where the agent knows its machine's cards from, and what becomes of cards that come and go while it runs.

A `Source` is looked at whenever it says that something may have changed.  Cards keep their numbers while pods hold any
of them: records of Volcano's name cards by number.  A card that is missing counts as broken, for it may still be in
use; when nobody holds anything, it is forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import msgspec

from subak.node.machine import Machine
from subak.node.nvml import Found


class Source(Protocol):
    """A driver, or a description of simulated cards."""

    def look(self) -> Found:
        """The machine as it is now.  May take a while; it is called in a thread of its own."""

    async def change(self) -> None:
        """Return when it is worth looking again."""


def carried_on(known: Machine | None, found: Machine | None, idle: bool) -> Machine | None:
    """The machine as it goes on: `found` now, after it was `known` before.  `idle`: nobody holds any of its cards."""
    if known is None or (idle and found is not None):
        return found
    if found is None:
        return replace(known, devices=tuple(msgspec.structs.replace(each, healthy=False) for each in known.devices))
    now = {each.id: each for each in found.devices}
    devices = [
        msgspec.structs.replace(now.pop(each.id), index=each.index)
        if each.id in now
        else msgspec.structs.replace(each, healthy=False)
        for each in known.devices
    ]
    first = max((each.index for each in devices), default=-1) + 1
    devices += [msgspec.structs.replace(each, index=first + more) for more, each in enumerate(now.values())]
    files = {**known.device_files, **found.device_files}
    return replace(found, devices=tuple(devices), device_files=files)
