"""Writes on which node a pod waits for others to leave: `status.nominatedNodeName`, which autoscalers read too.

Writes about one pod follow one another, and only the latest wish counts.  The UID is a precondition.  It tries again
while the server cannot be reached, and logs a refusal: the field is a note to a later scheduler and to people, nothing
depends on it while we run.
"""

from __future__ import annotations

import asyncio
import logging

from subak.model import manifest
from subak.scheduler.messages import Nominate
from tinykube.client import MERGE_PATCH, Client
from tinykube.resource import PODS
from tinykube.status import ApiError

TRIES = 5
PAUSE = 1.0

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
        problem = ""
        for attempt in range(TRIES):
            if wish.key in self._wishes:
                return  # a later one says otherwise
            try:
                await self._client.patch(
                    PODS, name, namespace, body, kind=MERGE_PATCH, subresource="status", type=manifest.Object
                )
                return
            except ApiError as error:
                if error.code in (404, 409):
                    return  # the pod is gone, or is another one
                problem = error.message
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, TimeoutError) as error:
                problem = str(error)
            await asyncio.sleep(PAUSE * 2**attempt)
        log.warning("pod %s: its nominated node %r could not be written: %s", wish.key, wish.node, problem)
