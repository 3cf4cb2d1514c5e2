"""Carries out evictions: the condition `DisruptionTarget` first, then the deletion.

So whoever looks at the pod meanwhile, a restarted scheduler among them, sees that it is going.  Both name the UID: a
new pod of the same name stays as it is.  It tries again while the server cannot be reached or has trouble, and logs
a refusal.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from subak.model import manifest
from subak.scheduler.insist import Refused, insist
from subak.scheduler.messages import Evict
from tinykube.client import STRATEGIC_PATCH, Client
from tinykube.events import WARNING, Recorder, Reference
from tinykube.resource import PODS

log = logging.getLogger(__name__)


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

        try:
            if await insist(mark) and await insist(delete):
                pod = Reference(PODS.api_version, PODS.kind, name, namespace, evict.uid)
                self._recorder.record(pod, WARNING, evict.event, evict.message)
            return True
        except Refused as problem:
            fields = {"pod": evict.key}
            log.warning("pod %s could not be evicted (%s): %s", evict.key, evict.message, problem, extra=fields)
            return False
