"""The Node, Device and Lease objects of all machines: made at start, kept fresh, NotReady at the end.

    start ──> objects of new nodes are made, those of known nodes brought up to date; what to do with the others, below
    run   ──> leases renewed and the scheduler's handshakes answered, node by node, for as long as the cluster lives
    stop  ──> NotReady

A node of an earlier run that is not described this time stays with its pods, NotReady: who starts the cluster with the
hardware of before has everything back.  It is removed if no pod is there and nobody but us wrote to it, since then it
would come back as it was.  The computer's own node always stays: its cards are found, or they are not, because a
command has them or the driver fails.

A node may have been changed by others meanwhile: cordoned, labelled, tainted.  What they wrote stays.  What we wrote
before is in an annotation, so that only that is taken back when it is no longer described.

With more nodes each is visited less often, and its lease is longer: the load does not grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from subak.local.hardware import objects
from subak.local.hardware.objects import LEASE_NAMESPACE, PROFILE
from subak.model.manifest import DEVICES
from subak.node import nvml, reports
from subak.node.machine import Machine
from tinykube.client import Client
from tinykube.resource import LEASES, NODES, PODS, Resource
from tinykube.server.deletion import FOREGROUND, ORPHAN
from tinykube.status import ApiError

WRITTEN = "subak.io/written"
"""Annotation of a node: the keys of the labels, annotations and taints that are ours."""

RENEWAL = 10.0
LEASE = 40
VISITS = 20.0
"""Seconds between two visits of a node, seconds that its lease lasts, and the most visits in a second."""

TRIES, MOMENT = 100, 0.05
"""How often, and after how many seconds each, to look whether nodes that go have gone."""
AT_ONCE = 32
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
CONDITION_TAINTS = frozenset({NOT_READY["key"], "node.kubernetes.io/unreachable"})
"""Taints of nodes that are not ready; Kubernetes' controllers take them away when they are."""

REQUESTING = "Requesting"

log = logging.getLogger(__name__)

Clock = Callable[[], datetime]
Known = dict[str, Any] | None
"""An object as it was found, None if there was none."""


@dataclass(frozen=True, slots=True)
class Started:
    """What `start` found and did, by the nodes' names.

    `away` are nodes of this computer whose cards were not found, `left` those that are not described this time though
    pods are there or somebody wrote to them, `others` somebody else made.  All these stay.
    """

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Written(msgspec.Struct):
    """The keys under which we wrote."""

    labels: list[str] = []
    annotations: list[str] = []
    taints: list[str] = []


class Nodes:
    """All nodes of the local cluster."""

    def __init__(self, client: Client, machines: Iterable[Machine], clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._machines = {machine.name: machine for machine in machines}
        self._clock = clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.pause = max(RENEWAL / max(len(self._machines), 1), 1 / VISITS)
        self.lease_seconds = max(LEASE, int(4 * self.pause * len(self._machines)))

    async def start(self) -> Started:
        """Write the objects of all machines, and see to the nodes of earlier runs that are not described."""
        await self._let_go()
        known, leases, devices = [
            {each["metadata"]["name"]: each for each in (await self._client.list(resource, namespace)).items}
            for resource, namespace in ((NODES, ""), (LEASES, LEASE_NAMESPACE), (DEVICES, ""))
        ]
        unknown = {
            name: (node["metadata"].get("labels") or {}).get(PROFILE)
            for name, node in known.items()
            if name not in self._machines
        }
        away = [name for name, profile in unknown.items() if profile == nvml.PROFILE]
        ours = [name for name, profile in unknown.items() if profile is not None and name not in away]
        left = await self._needed({name: known[name] for name in ours})
        removed = [name for name in ours if name not in left]
        await self._remove(removed)
        await self._each(self._not_ready(name, objects.stopped(self._clock())) for name in (*away, *left))
        await self._each(
            self._put(machine, known.get(name), leases.get(name), devices.get(name))
            for name, machine in self._machines.items()
        )
        return Started(
            created=tuple(name for name in self._machines if name not in known),
            updated=tuple(name for name in self._machines if name in known),
            removed=tuple(removed),
            others=tuple(name for name, profile in unknown.items() if profile is None),
            away=tuple(away),
            left=tuple(left),
        )

    async def run(self) -> None:
        """Visit one node after the other until cancelled."""
        while True:
            for machine in self._machines.values():
                await asyncio.sleep(self.pause)
                try:
                    await self._renew(machine.name)
                    await self._answer(machine)
                except (ApiError, OSError, TimeoutError) as error:
                    log.warning("node %s: %s", machine.name, error)
            if not self._machines:
                await asyncio.sleep(self.pause)

    async def stop(self) -> None:
        """Say of all nodes that they are not ready any more."""
        condition = objects.stopped(self._clock())
        await self._each(self._not_ready(name, condition) for name in self._machines)

    # One node

    async def _put(self, machine: Machine, known: Known, known_lease: Known, known_device: Known) -> None:
        """Write a node's objects; a new node takes no pods until all of them are there."""
        wanted = objects.node(machine, self._clock())
        wanted["metadata"]["annotations"][WRITTEN] = _written(wanted)
        if known is None:
            taints = [*wanted["spec"].get("taints", ()), NOT_READY]
            known = await self._client.create(NODES, {**wanted, "spec": {"taints": taints}})
        else:
            status = _replaced(known.get("status") or {}, wanted["status"])
            await self._client.patch(NODES, machine.name, "", {"status": status}, subresource="status")
        uid = known["metadata"]["uid"]
        lease = objects.lease(machine.name, uid, self.lease_seconds, self._clock())
        await self._write(LEASES, LEASE_NAMESPACE, lease, known_lease)
        device = objects.device(machine, uid)
        if device is not None:
            await self._write(DEVICES, "", device, known_device)
        elif known_device is not None:
            await self._delete(DEVICES, machine.name)
        patch = _difference(known, wanted)
        if patch:
            await self._client.patch(NODES, machine.name, "", patch)

    async def _write(self, resource: Resource, namespace: str, wanted: dict[str, Any], known: Known) -> None:
        """Make an object, or give it this content."""
        if known is not None:
            metadata = wanted["metadata"] | {"resourceVersion": known["metadata"]["resourceVersion"]}
            try:
                await self._client.update(resource, metadata["name"], namespace, wanted | {"metadata": metadata})
                return
            except ApiError as error:
                if error.code != 404:  # it may go just now, with a node that was deleted before the last run ended
                    raise
        await self._client.create(resource, wanted, namespace)

    async def _renew(self, name: str) -> None:
        body = {"spec": {"renewTime": objects.renew_time(self._clock())}}
        await self._client.patch(LEASES, name, LEASE_NAMESPACE, body)

    async def _answer(self, machine: Machine) -> None:
        """Answer a scheduler that asks whether the vendor's plugin lives."""
        keys = reports.handshakes(machine)
        if not keys:
            return
        node = await self._client.get(NODES, machine.name)
        asked = [key for key in keys if REQUESTING in (node["metadata"].get("annotations") or {}).get(key, "")]
        if asked:
            answer = dict.fromkeys(asked, reports.reported(self._clock()))
            await self._client.patch(NODES, machine.name, "", {"metadata": {"annotations": answer}})

    async def _not_ready(self, name: str, condition: Mapping[str, Any]) -> None:
        try:
            await self._client.patch_status(NODES, name, "", {"conditions": [condition]})
        except (ApiError, OSError, TimeoutError) as error:
            log.warning("node %s: it could not be said that it is not ready: %s", name, error)

    # Nodes of earlier runs

    async def _let_go(self) -> None:
        """Wait for nodes that were deleted before the last run ended: the server removes them, and all that is theirs.

        Nodes that somebody else's finalizer holds are not waited for.
        """
        for _ in range(TRIES):
            if not any(map(_goes, (await self._client.list(NODES)).items)):
                return
            await asyncio.sleep(MOMENT)

    async def _needed(self, nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """The nodes whose removal would lose something: a pod, or what somebody else wrote to them."""
        if not nodes:
            return []
        occupied = {pod["spec"].get("nodeName") for pod in (await self._client.list(PODS)).items}
        return [name for name, node in nodes.items() if name in occupied or _touched(node)]

    async def _remove(self, names: Sequence[str]) -> None:
        """Remove nodes with all that is theirs."""
        await self._each(self._delete(DEVICES, name) for name in names)
        await self._each(self._delete(LEASES, name, LEASE_NAMESPACE) for name in names)
        await self._each(self._delete(NODES, name) for name in names)

    async def _delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        try:
            await self._client.delete(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _each(self, tasks: Iterable[Awaitable[None]]) -> None:
        """Do all, some at a time.  Raises what the first that fails raises."""

        async def in_turn(task: Awaitable[None]) -> None:
            async with self._slots:
                await task

        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(in_turn(task))
        except ExceptionGroup as problems:
            raise problems.exceptions[0] from None


def _written(node: Mapping[str, Any]) -> str:
    metadata = node["metadata"]
    taints = sorted(each["key"] for each in node["spec"].get("taints", ()))
    return msgspec.json.encode(
        Written(sorted(metadata["labels"]), sorted({*metadata["annotations"], WRITTEN}), taints)
    ).decode()


def _before(node: Mapping[str, Any]) -> Written:
    """What we wrote to a node."""
    try:
        return msgspec.json.decode((node["metadata"].get("annotations") or {}).get(WRITTEN, "{}"), type=Written)
    except (msgspec.MsgspecError, RecursionError):  # somebody else wrote it
        return Written()


def _goes(node: Mapping[str, Any]) -> bool:
    """Whether a node was deleted, and waits for nobody but the server."""
    metadata = node["metadata"]
    return bool(metadata.get("deletionTimestamp")) and {FOREGROUND, ORPHAN}.issuperset(metadata.get("finalizers", ()))


def _touched(node: Mapping[str, Any]) -> bool:
    """Whether somebody else labelled, annotated, tainted or cordoned a node."""
    metadata, spec, ours = node["metadata"], node.get("spec") or {}, _before(node)
    taints = {each["key"] for each in spec.get("taints") or ()} - CONDITION_TAINTS
    return bool(
        spec.get("unschedulable")
        or set(metadata.get("labels") or ()) - set(ours.labels)
        or set(metadata.get("annotations") or ()) - set(ours.annotations)
        or taints - set(ours.taints)
    )


def _difference(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes a node what it is to be, and takes back what we wrote before and want no more."""
    metadata, before = known["metadata"], _before(known)
    patch: dict[str, Any] = {}
    for part, ours in (("labels", before.labels), ("annotations", before.annotations)):
        has, new = metadata.get(part) or {}, wanted["metadata"][part]
        changes = {key: value for key, value in new.items() if has.get(key) != value}
        changes |= {key: None for key in ours if key in has and key not in new}
        if changes:
            patch.setdefault("metadata", {})[part] = changes
    has_taints = (known.get("spec") or {}).get("taints") or []
    ours_now = wanted["spec"].get("taints") or []
    mine = {*before.taints, *(each["key"] for each in ours_now), *CONDITION_TAINTS}
    taints = [each for each in has_taints if each["key"] not in mine] + ours_now
    if len(taints) != len(has_taints) or any(each not in has_taints for each in taints):
        patch["spec"] = {"taints": taints or None}
    return patch


def _replaced(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch for a status: maps inside are exchanged as a whole."""
    patch = dict(new)
    for name, value in new.items():
        if isinstance(value, dict):
            patch[name] = {**dict.fromkeys(old.get(name) or ()), **value}
    return patch
