"""Turns the lists and watches of an API server into events of the core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from subak.dialects import mark
from subak.model import manifest, volume
from subak.model.budget import BUDGETS, Budget
from subak.model.group import GROUPS, PRIORITY_CLASSES, QUEUES, GroupObject, PriorityClass, Queue
from subak.scheduler.messages import (
    AgentGone,
    AgentSeen,
    BudgetGone,
    BudgetSeen,
    DeviceGone,
    DeviceSeen,
    Event,
    GroupGone,
    GroupSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PriorityClassGone,
    PriorityClassSeen,
    QueueGone,
    QueueSeen,
    QuotasSeen,
    StorageGone,
    StorageSeen,
)
from tinykube.client import Client
from tinykube.reflector import DELETED, Reflector, ignore
from tinykube.resource import LEASES, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, Resource


class Feed:
    """Pods, nodes, Koordinator's Devices, namespaces, quotas, PodDisruptionBudgets, storage, the Leases of our agents,
    groups of pods, queues and priority classes.

    A server may lack some of the kinds, or get them later.  `on_queues` is called after each complete list of queues.
    """

    def __init__(self, client: Client, handle: Callable[[Event], None], on_queues: Callable[[], None] = ignore) -> None:
        self._handle = handle
        self._quotas: dict[str, dict[str, manifest.ResourceQuota]] = {}
        self.pods = Reflector(client, PODS, manifest.Pod, self._pod)
        self.nodes = Reflector(client, NODES, manifest.Node, self._node)
        self.claims = Reflector(client, volume.CLAIMS, volume.Claim, self._stored, optional=True)
        self.volumes = Reflector(client, volume.VOLUMES, volume.Volume, self._stored, optional=True)
        self.groups: dict[Resource, Reflector[Any]] = {
            resource: Reflector(client, resource, kind, self._group, optional=True) for resource, kind in GROUPS.items()
        }
        self.queues = Reflector(client, QUEUES, Queue, self._queue, on_queues, optional=True)
        self.reflectors: tuple[Reflector[Any], ...] = (
            self.pods,
            self.nodes,
            Reflector(client, manifest.DEVICES, manifest.Device, self._device, optional=True),
            Reflector(client, NAMESPACES, manifest.Namespace, self._namespace),
            Reflector(client, RESOURCE_QUOTAS, manifest.ResourceQuota, self._quota),
            self.claims,
            self.volumes,
            Reflector(client, volume.CLASSES, volume.Class, self._stored, optional=True),
            Reflector(client, volume.CSI_NODES, volume.CsiNode, self._stored, optional=True),
            Reflector(client, volume.DRIVERS, volume.Driver, self._stored, optional=True),
            Reflector(client, volume.CAPACITIES, volume.Capacity, self._stored, optional=True),
            Reflector(client, volume.ATTACHMENTS, volume.Attachment, self._stored, optional=True),
            Reflector(client, BUDGETS, Budget, self._budget, optional=True),
            Reflector(client, LEASES, manifest.Lease, self._lease, namespace=mark.NAMESPACE, labels=mark.MARK),
            *self.groups.values(),
            self.queues,
            Reflector(client, PRIORITY_CLASSES, PriorityClass, self._priority_class, optional=True),
        )

    async def run(self) -> None:
        """Deliver events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())

    async def complete(self) -> None:
        """Wait until all objects that exist at the start have been delivered."""
        for reflector in self.reflectors:
            await reflector.synced.wait()

    def _pod(self, change: str, pod: manifest.Pod) -> None:
        self._handle(PodGone(pod.key) if change == DELETED else PodSeen(pod))

    def _node(self, change: str, node: manifest.Node) -> None:
        self._handle(NodeGone(node.name) if change == DELETED else NodeSeen(node))

    def _device(self, change: str, device: manifest.Device) -> None:
        self._handle(DeviceGone(device.name) if change == DELETED else DeviceSeen(device))

    def _namespace(self, change: str, namespace: manifest.Namespace) -> None:
        self._handle(NamespaceGone(namespace.name) if change == DELETED else NamespaceSeen(namespace))

    def _stored(self, change: str, object: volume.Stored) -> None:
        self._handle(StorageGone(object) if change == DELETED else StorageSeen(object))

    def _budget(self, change: str, budget: Budget) -> None:
        self._handle(BudgetGone(budget.key) if change == DELETED else BudgetSeen(budget))

    def _lease(self, change: str, lease: manifest.Lease) -> None:
        gone = change == DELETED
        self._handle(AgentGone(lease.name) if gone else AgentSeen(lease.name, mark.lives_until(lease)))

    def _group(self, change: str, object: GroupObject) -> None:
        group = object.as_group()
        self._handle(GroupGone(group.words, group.key) if change == DELETED else GroupSeen(group))

    def _queue(self, change: str, queue: Queue) -> None:
        self._handle(QueueGone(queue.name) if change == DELETED else QueueSeen(queue))

    def _priority_class(self, change: str, found: PriorityClass) -> None:
        self._handle(PriorityClassGone(found.metadata.name) if change == DELETED else PriorityClassSeen(found))

    def _quota(self, change: str, quota: manifest.ResourceQuota) -> None:
        namespace = quota.metadata.namespace
        quotas = self._quotas.setdefault(namespace, {})
        if change == DELETED:
            quotas.pop(quota.name, None)
        else:
            quotas[quota.name] = quota
        self._handle(QuotasSeen(namespace, tuple(quotas.values())))
