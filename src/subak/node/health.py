"""Which NVIDIA cards are broken, as far as the driver says so.

    an Xid error     the driver reports a fault of a card as an event; those that programs cause do not count
    a demand         newer drivers say what a card needs: nothing, a reset, a reboot of the machine

A card is healthy again when a newer driver demands nothing for a while.  Of an older driver nobody learns that; then
the card stays broken until it was gone from the driver, as after a reset, or the agent is started again.

To reset a card, nobody may have it open.  So the driver is let go of while a card is broken.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

APPLICATION_ERRORS = frozenset({13, 31, 43, 45, 68, 109})
"""Xid errors that a program causes: HAMi's, Koordinator's and NVIDIA's own agents ignore them too."""

CALM = 60.0
"""A card that had a fault is believed to be well after so many seconds without a demand of the driver."""

DEMANDS = {1: "a reset", 2: "a reboot of the machine", 3: "its peers to be drained", 4: "to be drained and reset"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a card, and when that was last seen."""

    reason: str
    at: float


class Health:
    """The faults of the cards, by their minor numbers: MIG instances have that of their card.

    `nvml` are the functions of `pynvml`.
    """

    def __init__(self, nvml: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.faults: dict[int, Fault] = {}
        self.unwatched: list[str] = []
        self._nvml = nvml
        self._clock = clock
        self._events: Any = None

    @property
    def watching(self) -> bool:
        """Whether events are waited for, and the driver is held."""
        return self._events is not None

    def examine(self) -> None:
        """Ask the driver what each card needs.  NVML must be initialized."""
        nvml, seen = self._nvml, set()
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                minor = nvml.nvmlDeviceGetMinorNumber(handle)
            except nvml.NVMLError:
                continue  # it is lost, and counts as broken for that
            seen.add(minor)
            self._judge(minor, self._demand(handle))
        for minor in self.faults.keys() - seen:
            del self.faults[minor]  # once it is back, it was reset

    def _judge(self, minor: int, demand: int | None) -> None:
        known, now = self.faults.get(minor), self._clock()
        if demand:
            self._blame(minor, f"the driver demands {DEMANDS.get(demand, f'action {demand}')}")
        elif demand == 0 and known is not None and now - known.at > CALM:
            del self.faults[minor]

    def _blame(self, minor: int, reason: str) -> None:
        known = self.faults.get(minor)
        if known is None or known.reason != reason:
            log.warning("card /dev/nvidia%d is broken: %s", minor, reason)
        self.faults[minor] = Fault(reason, self._clock())

    def _demand(self, handle: Any) -> int | None:
        """What the driver wants to be done to a card; None if it does not say."""
        field = getattr(self._nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        if field is None:
            return None
        try:
            (value,) = self._nvml.nvmlDeviceGetFieldValues(handle, [field])
        except self._nvml.NVMLError:
            return None
        return int(value.value.uiVal) if value.nvmlReturn == 0 else None

    def watch(self) -> None:
        """Begin to wait for events of all cards.  Raises NVMLError."""
        nvml = self._nvml
        if self.watching:
            return
        nvml.nvmlInit()
        self._events = nvml.nvmlEventSetCreate()
        self.unwatched = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            except nvml.NVMLError as error:
                self.unwatched.append(f"the health of card {index} cannot be watched: {error}")

    def let_go(self) -> None:
        """Wait for events no more, and hold the driver no more."""
        if not self.watching:
            return
        events, self._events = self._events, None
        try:
            self._nvml.nvmlEventSetFree(events)
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            log.warning("the driver could not be let go of: %s", error)

    def wait(self, milliseconds: int) -> bool:
        """Wait for an event, but no longer; True if the cards are to be looked at."""
        nvml = self._nvml
        try:
            event = nvml.nvmlEventSetWait_v2(self._events, milliseconds)
        except nvml.NVMLError_Timeout:
            return False
        except nvml.NVMLError as error:
            log.warning("events of the driver cannot be waited for: %s", error)
            self.let_go()
            return True
        xid = int(event.eventData)
        if event.eventType != nvml.nvmlEventTypeXidCriticalError or xid in APPLICATION_ERRORS:
            return False
        try:
            self._blame(nvml.nvmlDeviceGetMinorNumber(event.device), f"Xid {xid}")
        except nvml.NVMLError as error:
            log.warning("a card has Xid %d, and the driver does not say which: %s", xid, error)
        return True
