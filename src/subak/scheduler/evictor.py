"""Carries out evictions: the condition `DisruptionTarget` first, then the deletion.

So whoever looks at the pod meanwhile, a restarted scheduler among them, sees that it is going.  Both name the UID: a
new pod of the same name stays as it is.  It tries again while the server cannot be reached or has trouble, and logs
a refusal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import Enum

from subak.model import manifest
from subak.scheduler.messages import Evict
from tinykube.client import STRATEGIC_PATCH, Client
from tinykube.events import WARNING, Recorder, Reference
from tinykube.resource import PODS
from tinykube.status import ApiError, is_temporary

TRIES = 5
PAUSE = 1.0

log = logging.getLogger(__name__)


class Outcome(Enum):
    """What became of a write."""

    DONE = "done"
    GONE = "the pod is gone"
    REFUSED = "the server refuses, or could not be reached for long"


class Evictor:
    """Carries out instructions to evict."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder

    async def evict(self, evict: Evict) -> bool:
        """Mark and delete the pod.  False if it stays.  Never raises; logs a failure."""
        namespace, name = evict.key.split("/")
        condition = {
            "type": manifest.DISRUPTION_TARGET,
            "status": "True",
            "reason": evict.reason,
            "message": evict.message,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": evict.uid}, "status": {"conditions": [condition]}}

        async def mark() -> None:
            await self._client.patch(
                PODS, name, namespace, body, kind=STRATEGIC_PATCH, subresource="status", type=manifest.Object
            )

        async def delete() -> None:
            await self._client.delete(PODS, name, namespace, uid=evict.uid)

        outcome = await self._insist(evict, mark)
        if outcome is Outcome.DONE:
            outcome = await self._insist(evict, delete)
        if outcome is Outcome.DONE:
            pod = Reference(PODS.api_version, PODS.kind, name, namespace, evict.uid)
            self._recorder.record(pod, WARNING, evict.event, evict.message)
        return outcome is not Outcome.REFUSED

    async def _insist(self, evict: Evict, write: Callable[[], Awaitable[None]]) -> Outcome:
        """Write until it is done, the pod is gone, or the server refuses."""
        problem = ""
        for attempt in range(TRIES):
            try:
                await write()
                return Outcome.DONE
            except ApiError as error:
                if error.code in (404, 409):
                    return Outcome.GONE  # or it is another pod
                problem = error.message
                if not is_temporary(error):
                    break
            except (OSError, TimeoutError) as error:
                problem = str(error)
            await asyncio.sleep(PAUSE * 2**attempt)
        fields = {"pod": evict.key}
        log.warning("pod %s could not be evicted (%s): %s", evict.key, evict.message, problem, extra=fields)
        return Outcome.REFUSED
