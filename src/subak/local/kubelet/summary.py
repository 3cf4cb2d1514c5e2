"""What a node's pods use, in the form of kubelet's Summary API: `stats/summary` with accelerators.

A container has an entry for each of its cards whose use is known.  Unknown use is left out, also an unknown share of
time: a client must not take it for zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from subak.local.kubelet.devices import Devices
from subak.model import manifest
from subak.model.device import Device
from subak.node.usage import Use

Json = dict[str, Any]


def summary(node: str, pods: Iterable[manifest.Pod], devices: Devices) -> Json:
    """The summary of one node with these pods."""
    return {"node": {"nodeName": node}, "pods": [_pod(pod, devices) for pod in pods]}


def _pod(pod: manifest.Pod, devices: Devices) -> Json:
    used = devices.use(pod)
    containers = [
        {"name": each.name, "accelerators": [_accelerator(*card) for card in used.get(each.name, ())]}
        for each in pod.containers
    ]
    reference = {"name": pod.name, "namespace": pod.namespace, "uid": pod.metadata.uid}
    return {"podRef": reference, "containers": containers}


def _accelerator(card: Device, use: Use) -> Json:
    stats: Json = {
        "make": card.family,
        "model": card.model,
        "id": card.id,
        "memoryTotal": card.memory_bytes,
        "memoryUsed": use.memory_bytes,
    }
    return stats if use.time_percent is None else stats | {"dutyCycle": use.time_percent}
