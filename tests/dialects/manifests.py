"""Short ways to write pods and nodes in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from subak.dialects import Dialect, Patch
from subak.dialects.interpreter import apply
from subak.dialects.stock import one_stock
from subak.model import manifest
from subak.model.node import Node

Limits = Mapping[str, str | int]


def pod_of(text: str) -> manifest.Pod:
    return msgspec.convert(yaml.safe_load(text), manifest.Pod)


def pod(*containers: Limits, init: Sequence[Limits] = (), annotations: Mapping[str, str] | None = None) -> manifest.Pod:
    """A pod whose containers `c0`, `c1`, ... have these limits; init containers are `i0`, ..."""
    content = {
        "metadata": {"name": "p", "annotations": dict(annotations or {})},
        "spec": {
            "initContainers": [_container(f"i{i}", limits) for i, limits in enumerate(init)],
            "containers": [_container(f"c{i}", limits) for i, limits in enumerate(containers)],
        },
    }
    return msgspec.convert(content, manifest.Pod)


def _container(name: str, limits: Limits) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": dict(limits)}}


def annotated(pod: manifest.Pod, annotations: Mapping[str, str]) -> manifest.Pod:
    """The pod with these annotations added, as binding does."""
    return apply(pod, Patch(annotations=dict(annotations)))


def admitted(dialect: Dialect, pod: manifest.Pod) -> manifest.Pod:
    """The pod as the API server keeps it after admission."""
    return apply(pod, dialect.admit(pod))


def node_of(
    name: str, capacity: Limits, annotations: Mapping[str, str] | None = None, allocatable: Limits | None = None
) -> manifest.Node:
    content = {
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity if allocatable is None else allocatable)},
    }
    return msgspec.convert(content, manifest.Node)


def stocked(seen: manifest.Node, *dialects: Dialect) -> Node:
    """The node with the one stock that these dialects see together."""
    sights = {dialect.name: dialect.sight(seen, None) for dialect in dialects}
    devices, warnings = one_stock(seen.name, sights.values())
    assert not warnings
    return Node(seen.name, devices, frozenset(name for name, sight in sights.items() if sight.offered))
