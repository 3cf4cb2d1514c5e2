"""Writes pods' status to the API server: only the changes, and again until the server has them.

One write a pod is under way at a time; changes meanwhile are written together afterwards.  What others write over it is
put back, the first time at once and then after a pause, so that a client that never stops costs little.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from subak.local.kubelet.difference import changes
from subak.local.kubelet.pod import Seen
from subak.model.manifest import Lean, Metadata
from tinykube.client import STRATEGIC_PATCH, Client
from tinykube.codec import Header
from tinykube.resource import PODS
from tinykube.status import ApiError

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
REPAIR_PAUSE = 1.0
"""At least so many seconds are between two repairs of one pod's status."""

JsonObject = dict[str, Any]

log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Answer(Lean, frozen=True, gc=False, kw_only=True):
    metadata: Metadata
    status: msgspec.Raw


class StatusReporter:
    """The status of one pod on its way to the API server.

    `gone` is set once the server has no such pod any more.
    """

    __slots__ = (
        "_client",
        "_delete",
        "_known",
        "_metadata",
        "_news",
        "_repair_at",
        "_revision",
        "_said",
        "_spoiled",
        "_task",
        "_timer",
        "gone",
    )

    def __init__(self, client: Client, seen: Seen) -> None:
        self._client = client
        self._metadata = seen.metadata
        # As bytes, since most pods are at rest most of the time; `_known` is shared with what the worker has seen.
        self._known, self._revision = seen.status, int(seen.metadata.resource_version or 0)
        self._said = bytes(seen.status)
        self._news = self._spoiled = self._delete = False
        self._repair_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.gone = False

    @property
    def said(self) -> JsonObject:
        """What was last said of the pod; at first what the server had, perhaps from an earlier kubelet."""
        return _decode(self._said)

    def report(self, status: JsonObject) -> None:
        """Write this status soon."""
        self._said = msgspec.json.encode(status)
        self._news = True
        self._work()

    def see(self, seen: Seen) -> None:
        """Take in what the server has now; if somebody else changed what is ours, put it back."""
        revision = int(seen.metadata.resource_version)
        if revision < self._revision:
            return  # our own write was quicker than the watch
        same = seen.status == self._known
        self._known, self._revision = seen.status, revision
        if not same and not self._news and changes(_decode(self._known), self.said):
            self._spoiled = True
            if self._timer is None:
                self._work()

    def delete(self) -> None:
        """Delete the pod from the server for good, once its status is written."""
        self._delete = True
        self._work()

    def close(self) -> None:
        """Stop writing."""
        self._set_timer(None)
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _work(self) -> None:
        self._set_timer(None)
        if self._task is None and not self.gone:
            self._task = asyncio.get_running_loop().create_task(self._write())

    def _set_timer(self, pause: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if pause is None else asyncio.get_running_loop().call_later(pause, self._work)

    async def _write(self) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        try:
            while not self.gone and (self._news or self._spoiled or self._delete):
                only_repairs = not self._news and not self._delete
                if only_repairs and self._repair_at > loop.time():
                    self._set_timer(self._repair_at - loop.time())
                    return
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
        if not self._news and not self._spoiled:
            await self._client.delete(PODS, name, namespace, grace=0, uid=uid)
            self._delete = False
            return
        if self._spoiled:
            self._repair_at = asyncio.get_running_loop().time() + REPAIR_PAUSE
        self._news = self._spoiled = False
        said = self.said
        patch = changes(_decode(self._known), said)
        if not patch:
            return
        try:
            body = {"metadata": {"uid": uid}, "status": patch}
            answer = await self._client.patch(
                PODS, name, namespace, body, kind=STRATEGIC_PATCH, subresource="status", type=_Answer
            )
        except BaseException:
            self._news = True
            raise
        revision = int(answer.metadata.resource_version)
        if revision > self._revision:
            self._known, self._revision = answer.status.copy(), revision
            # Somebody was quicker, with another change.  To say the same once more would change nothing.
            self._spoiled = changes(_decode(self._known), said) not in ({}, patch)

    async def _is_gone(self, error: ApiError) -> bool:
        """Whether the pod is gone.  A new pod of its name has another UID: a conflict, or an invalid change."""
        if error.code in (409, 422):
            try:
                found = await self._client.get(PODS, self._metadata.name, self._metadata.namespace, type=Header)
                return found.metadata.uid != self._metadata.uid
            except (ApiError, OSError, TimeoutError) as other:
                return isinstance(other, ApiError) and other.code == 404
        return error.code == 404
