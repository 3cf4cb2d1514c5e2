"""Gives a pod's claims their volumes, before the pod is bound.

    a volume that is there   its `claimRef` names the claim, as if Kubernetes' volume controller had chosen it
    a new volume             the claim's annotation `selected-node` names the node, and a provisioner makes the volume
    both                     wait until the volume controller has bound the claim

Every write names the revision that it changes.  After a conflict, or without an answer, we look before we write again.
If the pod cannot be bound after all, we undo our own writes, unless the claim is bound by then.  A killed scheduler
undoes nothing: the next one sees what is written, and goes on from there.  A provisioner that cannot make a volume for
the node removes `selected-node`: then the pod is decided again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from subak.model.manifest import Object
from subak.model.volume import (
    BOUND_BY_CONTROLLER,
    CLAIMS,
    SELECTED_NODE,
    VOLUMES,
    Assignment,
    Claim,
    Volume,
)
from subak.policy.volumes.reach import within
from subak.scheduler.binder import NotBound
from subak.scheduler.feed import Feed
from subak.scheduler.locks import Wakeups
from subak.scheduler.messages import Bind, Event, NodeGone, PodGone, StorageGone, StorageSeen
from tinykube.client import Client
from tinykube.resource import Resource
from tinykube.status import ApiError

TIMEOUT = 600.0
"""Seconds in which all claims of a pod must be bound, as in kube-scheduler."""

TRIES = 5
PAUSE = 0.2

Json = dict[str, Any]
Revisions = dict[str, int]
"""Of objects that we wrote, by name: what the watch shows of them before that is out of date."""

log = logging.getLogger(__name__)


class VolumeBinder:
    """Binds claims for pods; what it waits for comes by way of `feed`."""

    def __init__(self, client: Client, feed: Feed, timeout: float = TIMEOUT) -> None:
        self._client = client
        self._feed = feed
        self._timeout = timeout
        self._wakeups = Wakeups()

    def hear(self, event: Event) -> None:
        """Wake the tasks that an event concerns; `feed` has it already."""
        match event:
            case StorageSeen(Claim() as claim) | StorageGone(Claim() as claim):
                self._wakeups.wake(_claim(claim.key))
            case StorageSeen(Volume() as volume) | StorageGone(Volume() as volume):
                self._wakeups.wake(_volume(volume.name))
                if volume.spec.claim_ref is not None:
                    self._wakeups.wake(_claim(f"{volume.spec.claim_ref.namespace}/{volume.spec.claim_ref.name}"))
            case PodGone(key):
                self._wakeups.wake(key)
            case NodeGone(name):
                self._wakeups.wake(name)

    @asynccontextmanager
    async def bound(self, bind: Bind) -> AsyncIterator[None]:
        """Bind the pod's claims; undo what is not complete if NotBound is raised here or inside."""
        if not bind.volumes:
            yield
            return
        ours: list[Assignment] = []
        try:
            revisions: Revisions = {}
            for each in bind.volumes:
                await (self._reserve if each.volume else self._select)(bind, each, ours, revisions)
            await self._wait(bind, revisions)
            yield
        except NotBound:
            for each in ours:
                await self._undo(bind, each)
            raise

    # Writing

    async def _reserve(self, bind: Bind, each: Assignment, ours: list[Assignment], revisions: Revisions) -> None:
        """Let the volume name the claim."""
        namespace, _, name = each.claim.partition("/")

        def change(volume: Volume) -> Json | None:
            claim = self._claim(each)
            mine = volume.spec.claim_ref
            if mine is not None and not mine.means(claim):
                raise NotBound(f"volume {volume.name} was given to claim {mine.namespace}/{mine.name}")
            if mine is not None and mine.uid:
                return None
            _note(each, ours)
            reference = {
                "apiVersion": CLAIMS.api_version,
                "kind": CLAIMS.kind,
                "namespace": namespace,
                "name": name,
                "uid": each.uid,
                "resourceVersion": claim.metadata.resource_version,
            }
            annotations = {} if mine is not None else {BOUND_BY_CONTROLLER: "yes"}
            return {"metadata": {"annotations": annotations}, "spec": {"claimRef": reference}}

        seen = self._feed.volumes.objects.get(each.volume)
        written = await self._insist(VOLUMES, each.volume, seen, change)
        revisions[_volume(each.volume)] = _revision(written)

    async def _select(self, bind: Bind, each: Assignment, ours: list[Assignment], revisions: Revisions) -> None:
        """Let the claim name the node."""

        def change(claim: Claim) -> Json | None:
            if claim.metadata.uid != each.uid:
                raise NotBound(f"claim {each.claim} is another one now")
            if claim.selected_node == bind.node or claim.spec.volume_name:
                return None
            if claim.selected_node is not None:
                raise NotBound(f"claim {each.claim} is provisioned for node {claim.selected_node}")
            _note(each, ours)
            return {"metadata": {"annotations": {SELECTED_NODE: bind.node}}}

        written = await self._insist(CLAIMS, each.claim, self._feed.claims.objects.get(each.claim), change)
        revisions[_claim(each.claim)] = _revision(written)

    async def _undo(self, bind: Bind, each: Assignment) -> None:
        """Take back what we wrote, unless the claim is bound.  Never raises; logs a failure."""

        def reserved(volume: Volume) -> Json | None:
            mine = volume.spec.claim_ref
            if mine is None or mine.uid != each.uid:
                return None
            if BOUND_BY_CONTROLLER in volume.annotations:
                return {"metadata": {"annotations": {BOUND_BY_CONTROLLER: None}}, "spec": {"claimRef": None}}
            return {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}  # its user wrote the rest

        def selected(claim: Claim) -> Json | None:
            done = claim.spec.volume_name or claim.metadata.uid != each.uid or claim.selected_node != bind.node
            return None if done else {"metadata": {"annotations": {SELECTED_NODE: None}}}

        try:
            if not each.volume:
                await self._insist(CLAIMS, each.claim, None, selected)
            elif not await self._has_volume(each):
                await self._insist(VOLUMES, each.volume, None, reserved)
        except NotBound as problem:
            log.warning("pod %s: claim %s is not as it was: %s", bind.key, each.claim, problem)

    async def _has_volume(self, each: Assignment) -> bool:
        """Whether the claim names a volume; one that is gone does not."""
        try:
            claim = await self._insist(CLAIMS, each.claim, None, lambda claim: None)
        except Gone:
            return False
        return bool(claim.spec.volume_name) and claim.metadata.uid == each.uid

    async def _insist(self, resource: Resource, key: str, seen: Any, change: Callable[[Any], Json | None]) -> Any:
        """Patch an object with what `change` makes of it as it is now; gives the object as it is then.

        `change` gives None if there is nothing to do, and raises NotBound if nothing can be done.  Without `seen` the
        object is read first.  Raises NotBound if the server refuses, or does not answer for long.
        """
        namespace, _, name = key.rpartition("/")
        type, found, problem = (Claim if resource is CLAIMS else Volume), seen, ""
        for attempt in range(TRIES):
            try:
                if found is None:
                    found = await self._client.get(resource, name, namespace, type=type)
                body = change(found)
                if body is None:
                    return found
                body.setdefault("metadata", {})["resourceVersion"] = found.metadata.resource_version
                return await self._client.patch(resource, name, namespace, body, type=type)
            except ApiError as error:
                if error.code == 404:
                    raise Gone(f"{resource.kind} {key} is gone") from error
                if error.code < 500 and error.code not in (409, 429):
                    raise NotBound(f"{resource.kind} {key} cannot be written: {error.message}") from error
                problem = error.message
            except (OSError, TimeoutError) as error:
                problem = str(error)
            found = None
            await asyncio.sleep(PAUSE * 2**attempt)
        raise NotBound(f"{resource.kind} {key} cannot be written now: {problem}")

    # Waiting

    async def _wait(self, bind: Bind, revisions: Revisions) -> None:
        """Wait until all claims are bound.  Raises NotBound if that cannot be any more, or takes too long."""
        news = asyncio.Event()
        names = {_claim(each.claim) for each in bind.volumes}
        names |= {_volume(each.volume) for each in bind.volumes if each.volume}
        try:
            with self._wakeups.listen(news, bind.key, bind.node, *names):
                async with asyncio.timeout(self._timeout):
                    while not self._complete(bind, revisions):
                        news.clear()
                        await news.wait()
        except TimeoutError:
            claims = ", ".join(each.claim for each in bind.volumes)
            raise NotBound(f"the volumes of {claims} are not there after {self._timeout:.0f} s") from None

    def _complete(self, bind: Bind, revisions: Revisions) -> bool:
        """Whether all claims are bound, as far as the watch has shown what we wrote.  Raises NotBound."""
        pod = self._feed.pods.objects.get(bind.key)
        if pod is None or pod.metadata.uid != bind.uid or pod.spec.node_name:
            raise NotBound("the pod is gone or has a node")
        complete = True
        for each in bind.volumes:
            claim = self._claim(each)
            volume = self._feed.volumes.objects.get(each.volume or claim.spec.volume_name)
            seen, written = (volume, _volume(each.volume)) if each.volume else (claim, _claim(each.claim))
            if seen is None:
                raise NotBound(f"volume {each.volume} is gone")
            if _revision(seen) < revisions[written]:
                complete = False
                continue
            self._check(bind, each, claim, volume)
            complete = complete and claim.bound and volume is not None
        return complete

    def _check(self, bind: Bind, each: Assignment, claim: Claim, volume: Volume | None) -> None:
        """Raise NotBound if the claim will not get its volume on the pod's node."""
        if each.volume and volume is not None:
            mine = volume.spec.claim_ref
            if mine is None or mine.uid != each.uid or claim.spec.volume_name not in ("", each.volume):
                raise NotBound(f"volume {each.volume} is no longer meant for claim {each.claim}")
        elif not each.volume and claim.selected_node != bind.node:
            raise NotBound(f"no volume could be provisioned for claim {each.claim} on node {bind.node}")
        node = self._feed.nodes.objects.get(bind.node)
        if node is None:
            raise NotBound(f"node {bind.node} is gone")
        if volume is not None and not within(volume.terms, node.labels):
            raise NotBound(f"volume {volume.name} of claim {each.claim} is not within reach of node {bind.node}")

    def _claim(self, each: Assignment) -> Claim:
        claim = self._feed.claims.objects.get(each.claim)
        if claim is None or claim.metadata.uid != each.uid:
            raise NotBound(f"claim {each.claim} is gone")
        return claim


class Gone(NotBound):
    """An object is no longer there."""


def _note(each: Assignment, ours: list[Assignment]) -> None:
    """Note what we are about to write: without an answer, it may be written."""
    if each not in ours:
        ours.append(each)


def _revision(object: Object) -> int:
    return int(object.metadata.resource_version or 0)


def _claim(key: str) -> str:
    return f"claim {key}"


def _volume(name: str) -> str:
    return f"volume {name}"
