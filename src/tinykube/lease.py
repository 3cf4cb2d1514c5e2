"""Leader election on a Lease, as client-go does it: of several replicas, at most one believes that it leads.

    acquire ──> leading ── renewed every `retry` seconds ──> leading ...
       ^           │
       │           └── not renewed for `renew_deadline` seconds, or another holds the Lease: lost
       └── held by another; free as soon as it has not changed for its duration

Clocks of two machines are never compared.  A candidate counts from when it saw the Lease change, and a leader from
when it sent the renewal that succeeded, each on its own monotonic clock.  So a leader stops some seconds before
another can begin.  Every write names the version of the Lease that it is based on, so that a late one changes nothing.

A Lease elects, it does not fence: what the leader sent may arrive after it has lost.  `left` tells how many seconds it
may still send.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from tinykube.client import Client
from tinykube.codec import Metadata
from tinykube.resource import LEASES
from tinykube.status import ApiError

JITTER = 1.2
"""Candidates wait up to so many times longer than `retry`, so that they do not all try at once."""
RELEASE_PATIENCE = 3.0

log = logging.getLogger(__name__)


class Spec(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Who holds a Lease, for how many seconds after its last renewal, and how often it has changed hands."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease, as far as an election needs it."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Spec = Spec()


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: how long others respect a Lease, how long its holder does, and how often it is renewed."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class Elector:
    """One candidate for a Lease.  `holder` is who holds it, as last seen; `tried` is set after the first answer.

    `clock` gives the time that is written into the Lease for people to read.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.identity = identity
        self.tried = asyncio.Event()
        self._client = client
        self._namespace, self._name = namespace, name
        self._terms = terms or Terms()
        self._clock = clock
        self._known: Lease | None = None
        self._changed_at = 0.0
        self._renewed_at = -math.inf

    @property
    def holder(self) -> str:
        """Who holds the Lease, as last seen; empty for nobody."""
        return "" if self._known is None else self._known.spec.holder_identity or ""

    def left(self) -> float:
        """For how many seconds we may still act as the leader; 0 if we are not."""
        return max(self._renewed_at + self._terms.renew_deadline - _now(), 0.0)

    async def acquire(self) -> None:
        """Return as soon as we lead."""
        while not await self._try():
            await asyncio.sleep(self._terms.retry * random.uniform(1.0, 1.0 + JITTER))

    async def keep(self) -> None:
        """Renew the Lease; return when it is lost."""
        while True:
            await asyncio.sleep(min(self._terms.retry, self.left()))
            try:
                async with asyncio.timeout(self.left()):
                    while not await self._try():
                        if self.holder != self.identity:
                            self._renewed_at = -math.inf
                            return
                        await asyncio.sleep(self._terms.retry)
            except TimeoutError:
                return

    async def release(self) -> None:
        """Stop leading, and let the others know at once.  If that fails, the Lease expires.  `keep` must have ended."""
        self._renewed_at = -math.inf
        try:
            async with asyncio.timeout(RELEASE_PATIENCE):
                await self._give_back()
        except (ApiError, OSError, TimeoutError) as error:
            log.warning("lease %s/%s could not be released: %s", self._namespace, self._name, error)

    async def _give_back(self) -> None:
        stamp = _stamp(self._clock())
        nobody = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": stamp, "renewTime": stamp}
        while True:
            await self._look()
            if self._known is None or self.holder != self.identity:
                return
            try:
                await self._write(nobody)
                return
            except ApiError as error:
                if error.code != 409:  # a renewal that was under way has just arrived
                    raise

    async def _try(self) -> bool:
        """Try once to take or renew the Lease."""
        sent = _now()
        try:
            async with asyncio.timeout(self._terms.renew_deadline / 2):
                held = await self._take()
        except (ApiError, OSError, TimeoutError) as error:
            if isinstance(error, ApiError):
                self.tried.set()
            problem = str(error) or "no answer"
            log.warning("lease %s/%s can be neither taken nor renewed: %s", self._namespace, self._name, problem)
            return False
        if held:
            self._renewed_at = sent
        self.tried.set()
        return held

    async def _take(self) -> bool:
        """Write that the Lease is ours, unless another holds it."""
        if self.holder != self.identity:
            await self._look()
        for _ in range(2):
            if not self._free():
                return False
            try:
                await self._write(self._ours())
                return True
            except ApiError as error:
                gone = error.code == 404 and self._known is not None
                if error.code != 409 and not gone:
                    raise
            await self._look()  # somebody else has written or deleted it, or the answer to a write of ours was lost
        return False

    def _free(self) -> bool:
        """Whether we may write: nobody holds the Lease, we do, or it has expired."""
        if self._known is None or self.holder in ("", self.identity):
            return True
        duration = self._known.spec.lease_duration_seconds
        return _now() >= self._changed_at + (self._terms.duration if duration is None else duration)

    def _ours(self) -> dict[str, Any]:
        stamp = _stamp(self._clock())
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._terms.duration),
            "renewTime": stamp,
        }
        if self._known is None:
            spec |= {"acquireTime": stamp, "leaseTransitions": 0}
        elif self.holder != self.identity:
            spec |= {"acquireTime": stamp, "leaseTransitions": (self._known.spec.lease_transitions or 0) + 1}
        return spec

    async def _look(self) -> None:
        try:
            self._see(await self._client.get(LEASES, self._name, self._namespace, type=Lease))
        except ApiError as error:
            if error.code != 404:
                raise
            self._known = None

    async def _write(self, spec: dict[str, Any]) -> None:
        """Create the Lease, or change the version that we know.  Raises ApiError 409 if there is a later one."""
        if self._known is None:
            body = {"metadata": {"name": self._name}, "spec": spec}
            self._see(await self._client.create(LEASES, body, self._namespace, type=Lease))
        else:
            body = {"metadata": {"resourceVersion": self._known.metadata.resource_version}, "spec": spec}
            self._see(await self._client.patch(LEASES, self._name, self._namespace, body, type=Lease))

    def _see(self, lease: Lease) -> None:
        if self._known is None or lease.spec != self._known.spec:
            holder = lease.spec.holder_identity or ""
            if holder != self.holder:
                log.info("lease %s/%s is held by %s", self._namespace, self._name, holder or "nobody")
            self._changed_at = _now()
        self._known = lease


def _now() -> float:
    return asyncio.get_running_loop().time()


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
