"""Carries out a binding, and finds out for certain whether the pod is bound by it.

A refusal is certain; if the server is only busy (429), we send the binding again.  A conflict may be our own binding
that arrived twice, and a missing answer or a server error says nothing: then we read the pod.  If it still has no node,
we send the same binding again.  That does no harm if the first one arrives late: the server accepts only one of them,
and both say the same.  Until the outcome is certain, the core keeps the cards for the pod.  If the server never gives a
certain answer, we give up only after LINGER seconds, when every request that was under way has arrived.
"""

from __future__ import annotations

import asyncio
import random

from subak.model import manifest
from subak.scheduler.counters import Counters
from subak.scheduler.messages import Bind
from tinykube.client import Client
from tinykube.resource import PODS
from tinykube.status import ApiError

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
TRIES = 5
LINGER = 10.0


class NotBound(Exception):
    """The pod is certainly not bound by this binding."""


class Binder:
    """Sends bindings, at most `at_once` of them at a time."""

    def __init__(self, client: Client, counters: Counters, at_once: int) -> None:
        self._client = client
        self._counters = counters
        self._slots = asyncio.Semaphore(at_once)

    async def bind(self, bind: Bind) -> None:
        """Return when the pod is bound.  Raises NotBound if it certainly will not be."""
        uncertain, problem = False, Exception()
        for attempt in range(TRIES):
            try:
                async with self._slots:
                    await self._send(bind)
                return
            except ApiError as error:
                if error.code == 429:
                    problem = error
                    await asyncio.sleep(_pause(attempt))
                    continue
                if error.code < 500 and error.code != 409 and not uncertain:
                    raise NotBound(error.message) from error
                uncertain, problem = uncertain or error.code >= 500, error
            except (OSError, TimeoutError) as error:
                uncertain, problem = True, error
            if await self._is_bound(bind, problem):
                return
            if not uncertain:
                raise NotBound(str(problem)) from problem
            await asyncio.sleep(_pause(attempt))
        if uncertain:
            await asyncio.sleep(LINGER)
        if not await self._is_bound(bind, problem):
            raise NotBound(str(problem)) from problem

    async def _is_bound(self, bind: Bind, problem: Exception) -> bool:
        """Whether the pod is bound as we want; False if it has no node.  Raises NotBound if it can no longer be."""
        pod = await self._look_up(bind)
        if pod is None or pod.spec.node_name not in ("", bind.node):
            raise NotBound(str(problem)) from problem
        return bool(pod.spec.node_name)

    async def _send(self, bind: Bind) -> None:
        namespace, name = bind.key.split("/")
        await self._client.bind(
            name, namespace, bind.node, uid=bind.uid, annotations=bind.annotations, labels=bind.labels
        )

    async def _look_up(self, bind: Bind) -> manifest.Pod | None:
        """The pod as it is on the server, None if it is gone; tries until the server answers."""
        self._counters.looked_up += 1
        namespace, name = bind.key.split("/")
        attempt = 0
        while True:
            try:
                pod = await self._client.get(PODS, name, namespace, type=manifest.Pod)
                return pod if pod.metadata.uid == bind.uid else None
            except ApiError as error:
                if error.code == 404:
                    return None
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(_pause(attempt))
            attempt += 1


def _pause(attempt: int) -> float:
    return min(FIRST_PAUSE * float(2 ** min(attempt, 10)), LONGEST_PAUSE) * random.uniform(0.5, 1.5)
