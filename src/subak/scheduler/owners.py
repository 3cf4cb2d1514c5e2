"""Looks up what the owners of pods say of their groups: how many of the pods must start together.

Asked once for each owner, as Volcano does when it makes a PodGroup.  An owner that cannot be read, or says nothing that
makes sense, has no gang: its pods start one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from subak.model import manifest
from subak.scheduler.messages import AskOwner, OwnerSeen
from tinykube.client import Client
from tinykube.resource import BadName, Resource
from tinykube.status import ApiError, is_temporary

ANNOTATION = "scheduling.volcano.sh/group-min-member"

OWNERS = {
    ("apps/v1", "ReplicaSet"): Resource("apps", "v1", "replicasets", kind="ReplicaSet"),
    ("apps/v1", "StatefulSet"): Resource("apps", "v1", "statefulsets", kind="StatefulSet"),
    ("apps/v1", "DaemonSet"): Resource("apps", "v1", "daemonsets", kind="DaemonSet"),
    ("batch/v1", "Job"): Resource("batch", "v1", "jobs", kind="Job"),
}
"""The owners that may say so; those of other kinds have no gangs."""

AT_ONCE = 16
REMEMBERED = 10_000
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

log = logging.getLogger(__name__)


class Owners:
    """Answers questions about owners."""

    def __init__(self, client: Client, answer: Callable[[OwnerSeen], None]) -> None:
        self._client = client
        self._answer = answer
        self._known: OrderedDict[str, int] = OrderedDict()
        self._asked: set[str] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, ask: AskOwner) -> None:
        """Look an owner up, and answer, as soon as the server tells.  Never raises."""
        if ask.uid not in self._known:
            if ask.uid in self._asked:
                return  # it is on its way
            self._asked.add(ask.uid)
            try:
                self._remember(ask.uid, await self._look_up(ask))
            finally:
                self._asked.discard(ask.uid)
        self._answer(OwnerSeen(ask.uid, self._known[ask.uid]))

    def _remember(self, uid: str, min_member: int) -> None:
        self._known[uid] = min_member
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def _look_up(self, ask: AskOwner) -> int:
        resource = OWNERS.get((ask.api_version, ask.kind))
        if resource is None:
            return 1
        failures = 0
        while True:
            try:
                async with self._turns:
                    owner = await self._client.get(resource, ask.name, ask.namespace, type=manifest.Object)
                return min_member(ask, owner)
            except (ApiError, OSError, TimeoutError, BadName) as error:
                if not failures:
                    log.warning("%s could not be asked for its group: %s", _named(ask), error)
                if not is_temporary(error):
                    return 1
            await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(failures, 10), LONGEST_PAUSE))
            failures += 1


def min_member(ask: AskOwner, owner: manifest.Object) -> int:
    """How many of an owner's pods must start together; 1 unless it says so in a way that can be read."""
    text = owner.annotations.get(ANNOTATION, "")
    if owner.metadata.uid != ask.uid or not text:
        return 1
    if text.isascii() and text.isdigit() and len(text) < 10:
        return max(int(text), 1)
    log.warning("%s: annotation %s is %r, which is no number of pods; it counts as 1", _named(ask), ANNOTATION, text)
    return 1


def _named(ask: AskOwner) -> str:
    return f"{ask.kind} {ask.namespace}/{ask.name}"
