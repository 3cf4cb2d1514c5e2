"""Ports of the node that pods open: a port can be given once for each protocol and address.

    taken = same protocol, same port, and the same address, where one of the two may be all addresses (0.0.0.0)

Init containers that end before the others start do not count, as in Kubernetes.  When a pod leaves, pods that wait for
its node are measured by it again; so no other change is a cure.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Self

import numpy as np

from subak.model import manifest
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Request
from subak.policy import Across
from subak.policy.judged import Judged, Memory, Objection
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Pool, Verdicts
from subak.snapshot.topology import Counts, Topology
from subak.snapshot.watcher import Change

ALL = "0.0.0.0"

Opened = tuple[str, int, str]
"""Protocol, port and address."""


class HostPorts(Across):
    """Host ports."""

    name = "host ports"
    cures = frozenset[Change]()

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._taken: dict[tuple[str, int], dict[str, Counts]] = {}
        self._memory = Memory(topology, self._judge)

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot.watched(Topology))

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        return tuple(sorted(opened(pod))) or None

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        return self._memory.refuse(node, request)

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        return self._memory.verdicts(pool, request)

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        self._count(pod, node, 1)

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        self._count(pod, node, -1)

    def _count(self, pod: manifest.Pod, node: str, amount: int) -> None:
        for protocol, port, address in opened(pod):
            addresses = self._taken.setdefault((protocol, port), {})
            counts = addresses.setdefault(address, Counts())
            counts.add(self._topology.number(node), amount)
            if not counts.total:
                del addresses[address]
                if not addresses:
                    del self._taken[protocol, port]

    def _judge(self, request: Request) -> Judged:
        wanted = request.read(self.name)
        assert isinstance(wanted, tuple), "only requests of which something was read are judged"
        objections = [self._objection(each) for each in wanted]
        return Judged(self._topology.nodes.room, objections)

    def _objection(self, wanted: Opened) -> Objection:
        protocol, port, address = wanted
        room = self._topology.nodes.room
        taken: Bools = np.zeros(room, np.bool_)
        for other, counts in self._taken.get((protocol, port), {}).items():
            if ALL in (address, other) or address == other:
                taken |= counts.column(room) > 0
        where = "" if address == ALL else f" of {address}"
        return taken, NodeRefusal(Reason.HOST_PORT_TAKEN, f"host port {port}/{protocol}{where} taken")


def opened(pod: manifest.Pod) -> set[Opened]:
    """The ports of its node that the pod opens."""
    early = [each for each in pod.spec.init_containers or () if each.restart_policy == "Always"]
    ports = [port for each in (*early, *pod.spec.containers) if each.ports for port in each.ports]
    return {(port.protocol, port.host_port, port.host_ip or ALL) for port in ports if port.host_port}
