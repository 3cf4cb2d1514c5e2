"""Storage objects as an API server gives them, and as the scheduler reads them."""

from __future__ import annotations

from typing import Any

import msgspec

from subak.model import volume
from subak.model.volume import BIND_COMPLETED, HOSTNAME, SELECTED_NODE, Stored

Json = dict[str, Any]
WAITING, LOCAL, IMMEDIATE = "waiting", "local", "immediate"
DRIVER = "disks.example.com"
RESOURCES = {each.kind: each for each in volume.RESOURCES}


def read(content: Json) -> Stored:
    """The object as the scheduler reads it."""
    return msgspec.convert(content, volume.KINDS[content["kind"]])


def claim(
    name: str, size: str = "1Gi", class_name: str | None = WAITING, *, volume: str = "", node: str = "", **more: Any
) -> Json:
    """A claim; with a volume it is bound to it, with a node it is provisioned for that."""
    annotations = {SELECTED_NODE: node} if node else {}
    if volume:
        annotations[BIND_COMPLETED] = "yes"
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    spec: Json = {"accessModes": more.pop("modes", ["ReadWriteOnce"]), "resources": {"requests": {"storage": size}}}
    if class_name is not None:
        spec["storageClassName"] = class_name
    if volume:
        spec["volumeName"] = volume
    metadata |= more.pop("metadata", {})
    status = {"phase": more.pop("phase", "Bound" if volume else "Pending")}
    return _object("PersistentVolumeClaim", metadata, spec={**spec, **more}, status=status)


def persistent_volume(
    name: str,
    size: str = "1Gi",
    class_name: str = LOCAL,
    *,
    host: str = "",
    claim: str = "",
    uid: str | None = None,
    phase: str = "",
    labels: dict[str, str] | None = None,
    **more: Any,
) -> Json:
    """A volume; with a host it is a disk there, with a claim it is meant for that."""
    spec: Json = {
        "capacity": {"storage": size},
        "accessModes": more.pop("modes", ["ReadWriteOnce"]),
        "storageClassName": class_name,
        "hostPath": {"path": f"/disks/{name}"},
    }
    if host:
        spec["nodeAffinity"] = affinity(HOSTNAME, host)
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim, "uid": f"uid-{claim}" if uid is None else uid}
    if "csi" in more:
        del spec["hostPath"]
    status = {"phase": phase or ("Bound" if claim else "Available")}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels or {}, **more.pop("metadata", {})}
    return _object("PersistentVolume", metadata, spec={**spec, **more}, status=status)


def affinity(key: str, *values: str) -> Json:
    """The affinity of a volume to nodes whose label has one of these values."""
    line = {"key": key, "operator": "In", "values": list(values)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [line]}]}}


def storage_class(name: str, provisioner: str = DRIVER, waits: bool = True, **more: Any) -> Json:
    """A class."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return _object("StorageClass", {"name": name}, provisioner=provisioner, volumeBindingMode=mode, **more)


def classes() -> list[Json]:
    """One that makes volumes for pods, one of local disks, and one that does not wait."""
    return [
        storage_class(WAITING),
        storage_class(LOCAL, "kubernetes.io/no-provisioner"),
        storage_class(IMMEDIATE, waits=False),
    ]


def csi_node(node: str, **limits: int) -> Json:
    """What a driver says of a node."""
    count = limits.get("limit")
    allocatable = {} if count is None else {"allocatable": {"count": count}}
    driver = {"name": DRIVER, "nodeID": node, "topologyKeys": [], **allocatable}
    return _object("CSINode", {"name": node}, spec={"drivers": [driver]})


def driver(counts: bool) -> Json:
    """The driver, which may count what is left."""
    return _object("CSIDriver", {"name": DRIVER}, spec={"attachRequired": True, "storageCapacity": counts})


def capacity(name: str, size: str, class_name: str = WAITING, **labels: str) -> Json:
    """What is left for nodes with these labels."""
    topology = {"matchLabels": {key.replace("_", "/"): value for key, value in labels.items()}}
    metadata = {"name": name, "namespace": "default"}
    return _object("CSIStorageCapacity", metadata, storageClassName=class_name, capacity=size, nodeTopology=topology)


def attachment(name: str, node: str, volume: str) -> Json:
    """A volume that is attached to a node."""
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return _object("VolumeAttachment", {"name": name}, spec=spec)


def csi(handle: str) -> Json:
    """The source of a volume of the driver."""
    return {"driver": DRIVER, "volumeHandle": handle}


def with_claims(*names: str) -> list[Json]:
    """`spec.volumes` of a pod with these claims."""
    return [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": name}} for at, name in enumerate(names)]


def _object(kind: str, metadata: Json, **content: Any) -> Json:
    return {"apiVersion": RESOURCES[kind].api_version, "kind": kind, "metadata": metadata, **content}
