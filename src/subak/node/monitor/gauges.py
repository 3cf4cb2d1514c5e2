"""What the driver itself says of whole cards: memory in use, how busy, how warm, how much power.

NVML may answer slowly, so it is asked now and then in a thread, and the last answers are kept.  A figure that a card
does not tell, as a MIG instance does not tell how busy it is, is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

EVERY, SOON = 5.0, 0.5
"""Seconds between two questions, and between two looks whether there are cards."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one card; None where it tells none."""

    memory_used_bytes: int | None = None
    busy_ratio: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


class Gauges:
    """Reads the cards that `ids` lists.  `load` gives the functions of `pynvml`; called when there are real cards."""

    def __init__(self, ids: Callable[[], Iterable[str]], load: Callable[[], Any]) -> None:
        self._ids = ids
        self._load = load
        self._nvml: Any = None
        self.readings: Mapping[str, Reading] = {}

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            ids = tuple(self._ids())
            self.readings = await asyncio.to_thread(self.read, ids)
            await asyncio.sleep(EVERY if ids else SOON)

    def read(self, ids: Sequence[str]) -> dict[str, Reading]:
        """What these cards say now; nothing if the driver does not answer.  Without cards the driver is let go."""
        nvml = self._opened() if ids else self._nvml
        if nvml is None:
            return {}
        handles = {id: _asked(nvml, partial(nvml.nvmlDeviceGetHandleByUUID, id)) for id in ids}
        found = {id: self._of(nvml, handle) for id, handle in handles.items() if handle is not None}
        if not found:
            self._nvml = None  # if the driver is gone, it may come back
            _asked(nvml, nvml.nvmlShutdown)
        return found

    def _opened(self) -> Any:
        """The driver's functions, ready; None if there is no driver.  It stays open: to open it may take a second."""
        if self._nvml is None:
            nvml = self._load()
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                log.debug("the driver does not answer: %s", error)
                return None
            self._nvml = nvml
        return self._nvml

    @staticmethod
    def _of(nvml: Any, handle: Any) -> Reading:
        memory = _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        busy = _asked(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        warm = _asked(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        milliwatts = _asked(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return Reading(
            None if memory is None else int(memory.used),
            None if busy is None else busy.gpu / 100,
            warm,
            None if milliwatts is None else milliwatts / 1000,
        )


def _asked(nvml: Any, question: Callable[[], Any]) -> Any:
    """The answer; None if this card, or this driver, has none."""
    try:
        return question()
    except nvml.NVMLError:
        return None
