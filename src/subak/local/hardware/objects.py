"""What the cluster sees of a machine: Node, Device and Lease objects, as kubelet and the agents would write them.

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

from subak import __version__
from subak.model import manifest
from subak.node.machine import Machine
from subak.node.reports import handshakes, in_use, reported

PROFILE = "subak.io/profile"
"""Label of every node that we make: the profile's name.  It also tells our nodes from those that others made."""

LEASE_NAMESPACE = "kube-node-lease"

HEALTHY = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
"""Conditions of a node that are False as long as all is well, with kubelet's reasons."""


def node(machine: Machine, now: datetime) -> dict[str, Any]:
    """The Node object, ready."""
    said = machine.publish()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": {
                "kubernetes.io/arch": _architecture(),
                "kubernetes.io/hostname": machine.name,
                "kubernetes.io/os": "linux",
                **said.labels,
                PROFILE: machine.profile,
            },
            "annotations": {
                **said.annotations,
                **in_use(machine, machine.devices),
                **dict.fromkeys(handshakes(machine), reported(now)),
            },
        },
        "spec": {"taints": [_taint(each) for each in machine.taints]} if machine.taints else {},
        "status": {
            "capacity": dict(said.capacity),
            "allocatable": dict(said.allocatable),
            "conditions": conditions(now),
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": machine.name},
            ],
            "nodeInfo": _node_info(),
        },
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
    """The Device object, None where no dialect has one.  It belongs to the node with this uid."""
    found = machine.publish().device
    if found is None:
        return None
    owner = _owner(machine.name, owner_uid) | {"controller": True, "blockOwnerDeletion": True}
    return {**found, "metadata": {**found["metadata"], "ownerReferences": [owner]}}


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
