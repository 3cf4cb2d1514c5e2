"""The Lease by which the agent shows that it lives: schedulers bind no pods to a node whose agent does not.

It is renewed only while containers can be given their cards.  A container runtime that starts again takes a few
seconds, which the Lease outlasts; one that is away for longer ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from subak.dialects import mark
from subak.model import manifest
from tinykube.client import Client
from tinykube.resource import LEASES
from tinykube.status import ApiError

RENEWAL, DURATION = 10.0, 40
"""Seconds between two renewals, and seconds that the Lease lasts."""
PAUSE = 2.0
"""Seconds until the next try after one that failed, or while there is nothing to show."""

log = logging.getLogger(__name__)


class Heartbeat:
    """The Lease of one node's agent.  `able` says whether the agent can do its work now.

    `beating`: whether the Lease was renewed lately; `trouble` says why not.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        able: Callable[[], bool],
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.trouble: list[str] = []
        self.beating = False
        self._client = client
        self._node = node
        self._able = able
        self._on_change = on_change
        self._clock = clock
        self._news = asyncio.Event()

    def look(self) -> None:
        """The agent may be able to work now: do not wait for the next try."""
        self._news.set()

    async def run(self) -> None:
        """Renew the Lease until cancelled."""
        while True:
            renewed = False
            if self._able():
                try:
                    await self._renew()
                    renewed, self.trouble = True, []
                except NotOurs as error:
                    self.trouble = [str(error)]
                except (ApiError, OSError, TimeoutError) as error:
                    self.trouble = [f"{self._place} cannot be renewed: {str(error) or 'no answer'}"]
                    log.warning("%s", self.trouble[0])
            if renewed and not self.beating:
                self.beating = True
                self._on_change()
            await self._pause(renewed)

    async def _pause(self, renewed: bool) -> None:
        if renewed:
            await asyncio.sleep(RENEWAL)
            return
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await self._news.wait()

    async def end(self) -> None:
        """Take the Lease away.  `run` must have ended, or find that the agent is not able."""
        try:
            found = await self._client.get(LEASES, self._node, mark.NAMESPACE, type=manifest.Lease)
            if mark.MARK in found.labels:
                await self._client.delete(LEASES, self._node, mark.NAMESPACE, uid=found.metadata.uid)
        except (ApiError, OSError, TimeoutError) as error:
            if not (isinstance(error, ApiError) and error.code == 404):
                log.warning("%s could not be removed, and ends by itself: %s", self._place, error)

    @property
    def _place(self) -> str:
        return f"Lease {mark.NAMESPACE}/{self._node}"

    async def _renew(self) -> None:
        """Renew the Lease, or make it.  Raises NotOurs if the name is taken."""
        stamp = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = {"holderIdentity": self._node, "leaseDurationSeconds": DURATION, "renewTime": stamp}
        if not self.beating:  # the first time: it may be another's
            await self._claim({**spec, "acquireTime": stamp})
            return
        try:
            await self._client.patch(LEASES, self._node, mark.NAMESPACE, {"spec": spec})
        except ApiError as error:
            if error.code != 404:
                raise
            await self._claim({**spec, "acquireTime": stamp})

    async def _claim(self, spec: dict[str, Any]) -> None:
        try:
            found = await self._client.get(LEASES, self._node, mark.NAMESPACE, type=manifest.Lease)
        except ApiError as error:
            if error.code != 404:
                raise
            metadata = {"name": self._node, "labels": {mark.MARK: ""}}
            await self._client.create(LEASES, {"metadata": metadata, "spec": spec}, mark.NAMESPACE)
            return
        if mark.MARK not in found.labels:
            raise NotOurs(
                f"{self._place} has no label {mark.MARK}, so it is not an agent's: "
                "remove it, or give the node another name"
            )
        await self._client.patch(LEASES, self._node, mark.NAMESPACE, {"spec": spec})


class NotOurs(Exception):
    """Somebody else has a Lease of this name."""
