"""Short ways to make pods."""

from __future__ import annotations

from typing import Any

import msgspec

from subak.local.kubelet.pod import Pod, Seen

UID = "0b6e2d4c-0000-4000-8000-000000000001"


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", "exit 0"], **fields}


def pod_object(
    *containers: dict[str, Any],
    name: str = "web",
    init: list[dict[str, Any]] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    spec = {"nodeName": "node-1", "containers": list(containers) or [container()], **spec}
    if init:
        spec["initContainers"] = init
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": UID, "generation": 1, **(metadata or {})},
        "spec": spec,
        "status": status or {"phase": "Pending"},
    }


def seen(*containers: dict[str, Any], **rest: Any) -> Seen:
    return msgspec.json.decode(msgspec.json.encode(pod_object(*containers, **rest)), type=Seen)


def pod(*containers: dict[str, Any], **rest: Any) -> Pod:
    return seen(*containers, **rest).decoded()
