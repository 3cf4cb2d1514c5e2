"""Keeps the Node object, and Koordinator's Device object, saying what the agent knows of the cards.

    what is known ── want ──┐
    Node, Device ── watch ──┴──> what differs ──> one patch of metadata, one of status; nothing if nothing differs

Others see each write by itself.  So the metadata, which name the cards and mark them as ours, are written first where
something is added, and last where it is taken away: schedulers take amounts alone for cards without names of an agent
that is not ours, and give them to pods which our agent could never serve.

Kubelet and others write to the same Node.  Whatever of ours they change is put back as soon as the watch tells of it,
unless they insist (`contest`).  When the agent ends, `withdraw` takes away what is ours, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from subak.model import manifest
from subak.node.advertisement import NOTHING, Advertisement, Changes, Written, changes, written
from subak.node.contest import Contest
from subak.node.device_object import DeviceObject
from subak.node.reports import reported
from tinykube.client import Client
from tinykube.reflector import DELETED, Reflector
from tinykube.resource import NODES
from tinykube.status import ApiError

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
TRIES = 4
"""How often a withdrawal is tried."""

log = logging.getLogger(__name__)


class Advertiser:
    """What one node says.  `on_seen` is called whenever the Node or its Device object has changed.

    `said` tells whether the node says all that is wanted; `trouble` why it does not.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        on_seen: Callable[[], None] = lambda: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = name
        self.node: manifest.Node | None = None
        self.ours = Written()
        self.trouble: list[str] = []
        self.said = False
        self._client = client
        self._clock = clock
        self._on_seen = on_seen
        self._wanted: Advertisement | None = None
        self._changed = asyncio.Event()
        self._contest = Contest()
        self._contested: dict[str, str] = {}
        self._in_place: dict[str, str] = {}
        self.nodes = Reflector(
            client, NODES, manifest.Node, self._on_node, self._notice, fields=f"metadata.name={name}"
        )
        self.devices = DeviceObject(client, name, self._notice)

    @property
    def seen(self) -> bool:
        """Whether the node and its Device object are known, as far as they are there."""
        return self.nodes.synced.is_set() and self.devices.reflector.synced.is_set()

    def want(self, wanted: Advertisement) -> None:
        """Let the node say this from now on."""
        if wanted != self._wanted:
            self._wanted = wanted
            self.said = False
            self._changed.set()

    async def run(self) -> None:
        """Keep it so until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run())
            group.create_task(self.devices.reflector.run())
            group.create_task(self._keep())

    async def withdraw(self) -> None:
        """Take away what is ours.  `run` must have ended.  If the API server refuses, it stays, and a log says so."""
        self._wanted = NOTHING
        problem: Exception | None = None
        for attempt in range(TRIES):
            try:
                self._see(await self._client.get(NODES, self.name, type=manifest.Node))
                await self.devices.look()
                await self._write(NOTHING, frozenset())
                await self._write(NOTHING, frozenset())  # the list of what is ours goes when all else has gone
                return
            except (ApiError, OSError, TimeoutError) as error:
                if isinstance(error, ApiError) and error.code == 404:
                    return
                problem = error
            await asyncio.sleep(FIRST_PAUSE * 2**attempt)
        log.warning("node %s: what this agent said of its cards stays there: %s", self.name, problem)

    # What others do

    def _on_node(self, type: str, node: manifest.Node) -> None:
        if type == DELETED:
            self.node = None
            self.ours = Written()
            self._in_place.clear()
        else:
            self._see(node)
        self._notice()

    def _notice(self) -> None:
        self._changed.set()
        if self.seen:
            self._on_seen()

    def _see(self, node: manifest.Node) -> None:
        """Take in a version of the node; a late event about an older one than our own last write is no news."""
        known = self.node
        if known is None or known.metadata.uid != node.metadata.uid or _revision(node) >= _revision(known):
            self.node = node
            self.ours |= written(node)

    # What we do

    async def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            self._changed.clear()
            if self._wanted is not None and self.seen:
                try:
                    await self._round(self._wanted)
                    pause = FIRST_PAUSE
                except (ApiError, OSError, TimeoutError) as error:
                    self.trouble = [f"node {self.name}: its cards cannot be told: {str(error) or 'no answer'}"]
                    log.warning("%s; next try in %.1f s", self.trouble[0], pause)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
            await self._something()

    async def _something(self) -> None:
        """Wait until something has changed, or what was left alone may be written again."""
        now = _now()
        again = self._contest.next_try(now)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if again is None else again - now):
                await self._changed.wait()

    async def _round(self, wanted: Advertisement) -> None:
        if self.node is None:
            self.said = False
            self.trouble = [
                f"node {self.name} is not there: kubelet has not registered it, or it has another name (--node-name)"
            ]
            return
        alone = self._contest.left_alone(_now())
        self._contested = {key: text for key, text in self._contested.items() if key in alone}
        await self._write(wanted, alone)
        if wanted is self._wanted:
            self.said = True
        self.trouble = list(self._contested.values())

    async def _write(self, wanted: Advertisement, alone: frozenset[str]) -> None:
        """Write what differs, but not what is to be left alone."""
        node = self.node
        if node is None:
            return
        news = changes(node, wanted, self.ours, reported(self._clock()))
        annotations, labels = _but(news.annotations, alone), _but(news.labels, alone)
        amounts = _but(news.amounts, alone)
        self._note(news, node, annotations | labels | amounts)
        self.ours |= news.ours
        if wanted.device is None:
            await self.devices.put(None, node)
        await self._set_amounts({name: None for name, text in amounts.items() if text is None}, node)
        if annotations or labels:
            metadata = {"uid": node.metadata.uid, "annotations": annotations, "labels": labels}
            self._see(await self._client.patch(NODES, self.name, "", {"metadata": metadata}, type=manifest.Node))
        await self._set_amounts({name: text for name, text in amounts.items() if text is not None}, node)
        if wanted.device is not None:
            await self.devices.put(wanted.device, node)
        self.ours = news.ours

    async def _set_amounts(self, amounts: Mapping[str, str | None], node: manifest.Node) -> None:
        """Set these amounts of the node, as capacity and as allocatable; None removes one."""
        if amounts:
            body = {"metadata": {"uid": node.metadata.uid}, "status": {"capacity": amounts, "allocatable": amounts}}
            self._see(await self._client.patch(NODES, self.name, "", body, subresource="status", type=manifest.Node))

    def _note(self, news: Changes, node: manifest.Node, written: Mapping[str, str | None]) -> None:
        """Count what is put back: it was in place, and nobody of ours has changed it since."""
        now = _now()
        for key, text in written.items():
            if text is None:
                self._in_place.pop(key, None)
                continue
            if self._in_place.get(key) == text:
                found = _found(node, key)
                log.warning("node %s: %s was %s, and is put back to %s", self.name, key, found, text)
                if self._contest.put_back(key, now):
                    self._contested[key] = (
                        f"node {self.name}: somebody else keeps setting {key} to {found}, where this agent has {text}: "
                        "find out who (kubectl get node --show-managed-fields), and end one of the two"
                    )
                    log.error("%s", self._contested[key])
            self._in_place[key] = text


def _but(patch: Mapping[str, str | None], alone: frozenset[str]) -> dict[str, str | None]:
    return {key: text for key, text in patch.items() if key not in alone}


def _found(node: manifest.Node, key: str) -> object:
    for place in (node.status.capacity or {}, node.annotations, node.labels):
        if key in place:
            return place[key]
    return "removed"


def _revision(node: manifest.Node) -> int:
    text = node.metadata.resource_version
    return int(text) if text.isdecimal() else 0


def _now() -> float:
    return asyncio.get_running_loop().time()
