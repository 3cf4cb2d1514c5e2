"""Writes pods' status to the API server: only the changes, and again until the server has them.

One write a pod is under way at a time; changes meanwhile are written together afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from subak.local.kubelet.pod import Metadata
from subak.local.kubelet.status import changes, merged
from tinykube.client import Client
from tinykube.codec import Header
from tinykube.resource import PODS
from tinykube.status import ApiError

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0

JsonObject = dict[str, Any]

log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class StatusReporter:
    """The status of one pod on its way to the API server.

    `gone` is set once the server has no such pod any more.
    """

    __slots__ = ("_client", "_delete", "_known", "_metadata", "_task", "_wanted", "gone")

    def __init__(self, client: Client, metadata: Metadata, known: bytes) -> None:
        self._client = client
        self._metadata = metadata
        self._known = known  # as bytes, since most pods are at rest most of the time
        self._wanted: JsonObject | None = None
        self._delete = False
        self._task: asyncio.Task[None] | None = None
        self.gone = False

    @property
    def known(self) -> JsonObject:
        """The status that the server is known to have."""
        return _decode(self._known)

    def report(self, status: JsonObject) -> None:
        """Write this status soon."""
        self._wanted = status
        self._work()

    def delete(self) -> None:
        """Delete the pod from the server for good, once its status is written."""
        self._delete = True
        self._work()

    def close(self) -> None:
        """Stop writing."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _work(self) -> None:
        if self._task is None and not self.gone:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        pause = FIRST_PAUSE
        try:
            while not self.gone and (self._wanted is not None or self._delete):
                try:
                    await self._once()
                    pause = FIRST_PAUSE
                except (ApiError, OSError, TimeoutError) as error:
                    self.gone = isinstance(error, ApiError) and await self._is_gone(error)
                    if self.gone:
                        return
                    log.warning("status of pod %s: %s; tried again", self._metadata.name, error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            self._task = None

    async def _once(self) -> None:
        name, namespace, uid = self._metadata.name, self._metadata.namespace, self._metadata.uid
        wanted = self._wanted
        if wanted is not None:
            known = self.known
            patch = changes(known, wanted)
            if patch:
                await self._client.patch_status(PODS, name, namespace, patch, uid=uid)
                self._known = msgspec.json.encode(merged(known, wanted))
            if self._wanted is wanted:
                self._wanted = None
            return
        await self._client.delete(PODS, name, namespace, grace=0, uid=uid)
        self._delete = False

    async def _is_gone(self, error: ApiError) -> bool:
        """Whether the pod is gone.  A new pod of its name has another UID: a conflict, or an invalid change."""
        if error.code in (409, 422):
            try:
                found = await self._client.get(PODS, self._metadata.name, self._metadata.namespace, type=Header)
                return found.metadata.uid != self._metadata.uid
            except (ApiError, OSError, TimeoutError) as other:
                return isinstance(other, ApiError) and other.code == 404
        return error.code == 404
