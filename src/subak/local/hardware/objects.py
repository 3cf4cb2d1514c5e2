"""What the cluster sees of a machine: Node, Device and Lease objects, as kubelet and the plugins would write them.

What they say of the cards is the described machine's.  Addresses and operating system are those of this computer, where
the containers run.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from subak import __version__
from subak.dialects import product
from subak.dialects.interpreter import Interpreter
from subak.local.hardware.machine import PROFILE, Machine
from subak.model import manifest
from subak.model.node import Node

PODS = "110"
LEASE_NAMESPACE = "kube-node-lease"

HEALTHY = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
"""Conditions of a node that are False as long as all is well, with kubelet's reasons."""


def node(machine: Machine, now: datetime) -> dict[str, Any]:
    """The Node object, ready."""
    spec: dict[str, Any] = {}
    if machine.taints:
        spec["taints"] = [_taint(each) for each in machine.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": node_labels(machine),
            "annotations": node_annotations(machine, now),
        },
        "spec": spec,
        "status": node_status(machine, now),
    }


def node_labels(machine: Machine) -> dict[str, str]:
    """Kubernetes' own labels, the plugins', the names of the cards, the description's, and the profile."""
    return {
        "kubernetes.io/arch": _architecture(),
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        **{key: value for plugin in machine.plugins for key, value in plugin.labels(machine.stock).items()},
        **product.labels(machine.devices),
        **machine.labels,
        PROFILE: machine.profile,
    }


def node_annotations(machine: Machine, now: datetime) -> dict[str, str]:
    """What the plugins write on the node, signs of life included."""
    written = {key: text for plugin in machine.plugins for key, text in plugin.annotations(machine.stock).items()}
    return written | {key: reported(now) for key in handshakes(machine)}


def handshakes(machine: Machine) -> list[str]:
    """The annotations by which the machine's plugins show that they live."""
    keys = (plugin.dialect.protocols.handshake for plugin in machine.plugins)
    return [key for key in keys if key]


def reported(now: datetime) -> str:
    """A plugin's sign of life, and its answer to the scheduler's `Requesting_<time>`."""
    return f"Reported {now:%Y-%m-%d %H:%M:%S}"


def node_status(machine: Machine, now: datetime) -> dict[str, Any]:
    """Capacity, conditions, addresses and what the node runs on."""
    plain = {
        "cpu": machine.cpu,
        "ephemeral-storage": machine.storage,
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": machine.memory,
        "pods": PODS,
    }
    stock = machine.stock
    capacity = {name: amount for plugin in machine.plugins for name, amount in plugin.capacity(stock).items()}
    usable = {name: amount for plugin in machine.plugins for name, amount in plugin.dialect.capacity(stock).items()}
    return {
        "capacity": plain | capacity,
        # kubelet knows a resource whose devices are all broken: it has none of it.
        "allocatable": plain | dict.fromkeys(capacity, "0") | usable,
        "conditions": conditions(now),
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": machine.name},
        ],
        "nodeInfo": _node_info(),
    }


def conditions(now: datetime) -> list[dict[str, Any]]:
    """All is well."""
    well = [_condition(type, "False", reason, message, now) for type, (reason, message) in HEALTHY.items()]
    return [*well, _condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now)]


def stopped(now: datetime) -> dict[str, Any]:
    """The condition of a node whose cluster has been stopped."""
    return _condition("Ready", "False", "KubeletNotReady", "the local cluster has been stopped", now)


def _condition(type: str, status: str, reason: str, message: str, now: datetime) -> dict[str, Any]:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": _seconds(now),
        "lastTransitionTime": _seconds(now),
    }


def device(machine: Machine, owner_uid: str) -> dict[str, Any] | None:
    """The Device object, None where no plugin writes one.  It belongs to the node with this uid."""
    for plugin in machine.plugins:
        found = plugin.device_object(machine.stock)
        if found is not None:
            owner = _owner(machine.name, owner_uid) | {"controller": True, "blockOwnerDeletion": True}
            found["metadata"]["ownerReferences"] = [owner]
            return found
    return None


def lease(name: str, owner_uid: str, seconds: int, now: datetime) -> dict[str, Any]:
    """The lease by which a node shows that it lives."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [_owner(name, owner_uid)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": renew_time(now)},
    }


def renew_time(now: datetime) -> str:
    """A time as leases have it."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _seconds(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _owner(name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


def _taint(taint: manifest.Taint) -> dict[str, str]:
    return {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})


def digest(machine: Machine, interpreter: Interpreter) -> tuple[Node, list[str]]:
    """The machine as a scheduler reads it from its objects, and what it could not read."""
    epoch = datetime.fromtimestamp(0, UTC)
    told, cards = node(machine, epoch), device(machine, "")
    return interpreter.node(
        msgspec.convert(told, manifest.Node), None if cards is None else msgspec.convert(cards, manifest.Device)
    )


@cache
def _node_info() -> Mapping[str, str]:
    """This computer, under the names that Kubernetes has."""
    return {
        "machineID": _line("/etc/machine-id"),
        "systemUUID": _line("/etc/machine-id"),
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": os.uname().release,
        "osImage": _os_image(),
        "containerRuntimeVersion": f"subak://{__version__}",
        "kubeletVersion": f"v{__version__}",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _architecture(),
    }


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def _architecture() -> str:
    """The processor as Go and Kubernetes call it."""
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
