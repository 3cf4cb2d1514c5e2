"""What the agent says to users and does to their pods, where waiting is allowed: events, reports, and ends of pods.

Whoever decides about containers has no time for an API server.  It leaves its words here, and another task sends them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from subak.dialects import Dialect
from subak.model import manifest
from subak.node.counters import OTHER, Counters
from subak.node.reports import Reports
from tinykube.client import Client
from tinykube.events import WARNING, Recorder, Reference
from tinykube.resource import PODS
from tinykube.status import ApiError, is_temporary

REFUSED, NOT_LIMITED, UNLIKE = "CardsRefused", "CardsNotLimited", "CardsNotAsDecided"
"""Reasons of events: a container may not start; it runs without its limits; it is not as the node decided."""

PAUSES = (0.5, 2.0, 8.0)

log = logging.getLogger(__name__)


class Outbox:
    """Follows `guard.Outbox`.  `serving` gives the dialects in which a pod is served here."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        reports: Reports,
        serving: Callable[[manifest.Pod], list[Dialect]],
        counters: Counters,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._reports = reports
        self._serving = serving
        self._counters = counters
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: set[str] = set()

    def refused(self, pod: manifest.Pod, container: str, message: str, cause: str = "") -> None:
        """Tell the pod's user that a container may not start, and why; `cause` is the word under which it counts."""
        self._counters.refusals[cause or OTHER] += 1
        self._say(pod, REFUSED, f"container {container}: {message}" if container else message)
        if pod.metadata.uid not in self._failed:  # kubelet tries again and again
            self._failed.add(pod.metadata.uid)
            self._send(self._reports.failed(pod, self._serving(pod)))

    def served(self, pod: manifest.Pod) -> None:
        """Say that the pod has its cards, as the vendors' agents do."""
        self._failed.discard(pod.metadata.uid)
        self._send(self._reports.served(pod, self._serving(pod)))

    def warn(self, pod: manifest.Pod, container: str, message: str) -> None:
        """Tell the pod's user what is not as it should be."""
        self._say(pod, UNLIKE, message)

    def evict(self, pod: manifest.Pod, message: str) -> None:
        """Remove a pod whose container runs without its limits, and say why."""
        self._counters.kills[NOT_LIMITED] += 1
        self._say(pod, NOT_LIMITED, f"{message}; the pod is deleted, because no limit holds")
        self._send(self._delete(pod))

    def forget(self, pod: manifest.Pod) -> None:
        """The pod is gone."""
        self._failed.discard(pod.metadata.uid)

    async def stop(self) -> None:
        """Send nothing more."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _say(self, pod: manifest.Pod, reason: str, message: str) -> None:
        self._recorder.record(Reference.to(PODS, pod), WARNING, reason, message)

    def _send(self, words: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(words)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, pod: manifest.Pod) -> None:
        """Delete the pod, with its UID as a condition; a few times if the server cannot be reached."""
        for pause in (*PAUSES, None):
            try:
                await self._client.delete(PODS, pod.name, pod.namespace, grace=0, uid=pod.metadata.uid)
                return
            except (ApiError, OSError, TimeoutError) as error:
                if isinstance(error, ApiError) and error.code in (404, 409):
                    return
                if pause is None or not is_temporary(error):
                    log.error("pod %s runs without its limits, and could not be deleted: %s", pod.key, error)
                    return
                await asyncio.sleep(pause)
