"""What a cluster does by itself after a write.

- `accounts`: every namespace has a `default` service account
- `namespaces`: a namespace that is being deleted is emptied, then ended
- `garbage`: what is owned goes with its owners
- `quotas`: the status of a quota says what is used
- `strays`: pods whose node is gone are removed
- `expiry`: events are forgotten after an hour
- `workloads`: Deployments, ReplicaSets, DaemonSets and Jobs have their pods

A controller takes note of every change and says when it wants to act.  It acts one turn of the loop later at the
earliest, so that writers do not wait for it.  What it could not do, as on a full disk, it does a second later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from tinykube.failures import told
from tinykube.server import bootstrap
from tinykube.server.controllers.accounts import Accounts
from tinykube.server.controllers.expiry import Expiry
from tinykube.server.controllers.garbage import Garbage
from tinykube.server.controllers.namespaces import Namespaces
from tinykube.server.controllers.quotas import Quotas
from tinykube.server.controllers.strays import Strays
from tinykube.server.controllers.workloads import Workloads
from tinykube.server.registry import Registry
from tinykube.server.store import Change
from tinykube.status import ApiError

RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


class Controller(Protocol):
    """Keeps one thing in order."""

    def note(self, change: Change) -> float | None:
        """Take in a change; gives the seconds after which to act, None if this is nothing to act upon."""

    def act(self) -> float | None:
        """Do what there is to do; gives the seconds after which to act again.  Called once at the beginning, too.

        It is called again if it raises anything: what is not done must not be forgotten.
        """


class Controllers:
    """All controllers of a store, with `workloads` or without.  They start with what has to be there."""

    def __init__(self, registry: Registry, workloads: bool = True) -> None:
        self._all: tuple[Controller, ...] = (
            Accounts(registry),
            Garbage(registry),
            Namespaces(registry),
            Quotas(registry),
            Strays(registry),
            Expiry(registry),
            *([Workloads(registry)] if workloads else ()),
        )
        self._timers: dict[Controller, asyncio.TimerHandle] = {}
        self._waiting: dict[Controller, float] = {}
        self._failing: set[Controller] = set()
        self._silence = registry.store.subscribe(self._note)
        bootstrap.fill(registry)
        for each in self._all:
            self._schedule(each, 0.0)

    def close(self) -> None:
        """Stop acting."""
        self._silence()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _note(self, change: Change) -> None:
        for each in self._all:
            seconds = each.note(change)
            if seconds is not None:
                self._schedule(each, seconds)
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for each, seconds in waiting.items():
                self._schedule(each, seconds)

    def _schedule(self, controller: Controller, seconds: float) -> None:
        """Have a controller act later, or at the time it is to act anyway if that is sooner."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._waiting[controller] = seconds  # until a change comes in a loop
            return
        timer = self._timers.get(controller)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[controller] = loop.call_later(seconds, self._act, controller)

    def _act(self, controller: Controller) -> None:
        del self._timers[controller]
        try:
            seconds = controller.act()
        except Exception as error:  # whatever is wrong with one object, the controller goes on to others
            if controller not in self._failing:
                problem = error.message if isinstance(error, ApiError) else told(error)
                log.warning("%s: %s", type(controller).__name__.lower(), problem)
            self._failing.add(controller)
            seconds = RETRY_SECONDS
        else:
            self._failing.discard(controller)
        if seconds is not None:
            self._schedule(controller, seconds)
