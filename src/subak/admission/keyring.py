"""The Secret that holds the webhook's certificates, which all replicas share.

Whichever replica finds that there is none, or that a new generation is due, writes it.  The API server lets one of
several win (a new object, or the revision that was read), and the others read what the winner wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from subak.admission import certificates
from subak.admission.certificates import BadSecret, Generation
from subak.admission.objects import LABELS
from tinykube.client import Client
from tinykube.resource import SECRETS
from tinykube.status import ApiError

TRIES = 5

log = logging.getLogger(__name__)


class Keyring:
    """`known` are the generations in the Secret, as last read; the latest is the last.

    A malformed Secret of that name is written anew if its labels say that it is ours.  If not, it is left alone, and
    BadSecret is raised.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        names: frozenset[str],
        lifetime: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        self.namespace, self.name = namespace, name
        self.known: list[Generation] = []
        self._client = client
        self._names = names
        self._lifetime = lifetime
        self._clock = clock

    def due(self) -> bool:
        """Whether the Secret must be looked at, for all that is known of it."""
        latest = self.known[-1] if self.known else None
        return latest is None or latest.ages(self._clock()) or not self._names <= latest.names

    async def refresh(self) -> None:
        """Read the Secret, and write a new generation if one is due.  Raises BadSecret and what a client raises."""
        for _ in range(TRIES):
            found = await self._read()
            there = [] if found is None else self._generations(found)
            known = there or self.known  # what was deleted or damaged is put back by whoever remembers it
            wanted = certificates.renewed(known, self._names, self._clock(), self._lifetime) or known
            if wanted == there or await self._write(found, wanted):
                self.known = wanted
                return
        raise ApiError(409, "Conflict", f"secret {self.namespace}/{self.name}: others keep changing it")

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(SECRETS, self.name, self.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _generations(self, found: dict[str, Any]) -> list[Generation]:
        try:
            return certificates.read(found.get("data"))
        except BadSecret as error:
            place = f"secret {self.namespace}/{self.name}"
            labels = found["metadata"].get("labels") or {}
            if not labels.items() >= LABELS.items():
                text = f"{place} is not ours: {error}; delete it, or choose another name"
                raise BadSecret(text) from None
            log.warning("%s is written anew: %s", place, error)
            return []

    async def _write(self, found: dict[str, Any] | None, known: list[Generation]) -> bool:
        """Whether we were the ones to write it."""
        metadata: dict[str, Any] = {"name": self.name, "labels": LABELS}
        body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": certificates.written(known)}
        try:
            if found is None:
                await self._client.create(SECRETS, {**body, "metadata": metadata}, self.namespace)
            else:
                metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
                await self._client.update(SECRETS, self.name, self.namespace, {**body, "metadata": metadata})
        except ApiError as error:
            if error.code != 409:
                raise
            return False
        log.info(
            "secret %s/%s is written; its certificate is good until %s", self.namespace, self.name, known[-1].expires
        )
        return True
