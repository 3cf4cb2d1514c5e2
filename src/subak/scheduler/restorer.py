"""Restores records of bound pods that somebody changed.

It sends a merge patch of these annotations only, with the pod's UID as precondition: a new pod of the same name stays
as it is.  It tries again while the server cannot be reached, and logs a refusal.
"""

from __future__ import annotations

import logging

from subak.model import manifest
from subak.scheduler.insist import Refused, insist
from subak.scheduler.messages import Restore
from tinykube.client import MERGE_PATCH, Client
from tinykube.resource import PODS

log = logging.getLogger(__name__)


class Restorer:
    """Carries out instructions to restore."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def restore(self, restore: Restore) -> None:
        """Restore the annotations.  Never raises; logs a failure."""
        namespace, name = restore.key.split("/")
        body = {"metadata": {"uid": restore.uid, "annotations": restore.annotations}}

        async def write() -> None:
            await self._client.patch(PODS, name, namespace, body, kind=MERGE_PATCH, type=manifest.Object)

        try:
            await insist(write)
        except Refused as problem:
            fields = {"pod": restore.key}
            log.warning("pod %s: its record could not be put back: %s", restore.key, problem, extra=fields)
