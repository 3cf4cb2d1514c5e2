"""Writes on which node a pod waits for others to leave: `status.nominatedNodeName`, which autoscalers read too.

Writes about one pod follow one another, and only the latest wish counts.  The UID is a precondition.  It tries again
while the server cannot be reached, and logs a refusal: the field is a note to a later scheduler and to people, nothing
depends on it while we run.
"""

from __future__ import annotations

import asyncio
import logging

from subak.model import manifest
from subak.scheduler.insist import Refused, insist
from subak.scheduler.messages import Nominate
from tinykube.client import MERGE_PATCH, Client
from tinykube.resource import PODS

log = logging.getLogger(__name__)


class Nominator:
    """Carries out instructions to nominate."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._wishes: dict[str, Nominate] = {}
        self._writing: dict[str, asyncio.Event] = {}

    async def nominate(self, nominate: Nominate) -> None:
        """Write the field, or leave it to the task that writes about this pod already.  Never raises."""
        key = nominate.key
        self._wishes[key] = nominate
        if key in self._writing:
            return
        self._writing[key] = done = asyncio.Event()
        try:
            while (wish := self._wishes.pop(key, None)) is not None:
                await self._write(wish)
        finally:
            del self._writing[key]
            done.set()

    async def written(self) -> None:
        """Wait until all that is being written now is written, or given up."""
        for done in list(self._writing.values()):
            await done.wait()

    async def _write(self, wish: Nominate) -> None:
        namespace, name = wish.key.split("/")
        body = {"metadata": {"uid": wish.uid}, "status": {"nominatedNodeName": wish.node or None}}

        async def write() -> None:
            if wish.key not in self._wishes:  # else a later one says otherwise
                await self._client.patch(
                    PODS, name, namespace, body, kind=MERGE_PATCH, subresource="status", type=manifest.Object
                )

        try:
            await insist(write)
        except Refused as problem:
            text = "pod %s: its nominated node %r could not be written: %s"
            log.warning(text, wish.key, wish.node, problem, extra={"pod": wish.key})
