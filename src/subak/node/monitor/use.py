"""`/use`: what containers have and use of this node's cards, as JSON for `subak top`."""

from __future__ import annotations

from typing import Any

import msgspec

from subak.node.monitor.measure import Measure, measures
from subak.node.monitor.monitor import Moment, Monitor
from subak.node.monitor.words import Word


class ContainerUse(msgspec.Struct, frozen=True, kw_only=True):
    """One container on one card.  What nobody knows is null, which is not the same as zero."""

    namespace: str
    pod: str
    container: str
    card: str
    memory_limit_bytes: int
    memory_used_bytes: int | None = None
    time_limit_percent: int
    time_used_percent: int | None = None
    blocked: bool = False
    lifted: bool = False


class NodeUse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a node."""

    node: str
    containers: list[ContainerUse]


def shown(node: str, monitor: Monitor) -> dict[str, Any]:
    """The answer of this node, now."""
    rows = [_row(each) for each in measures(monitor.seen, Moment.now())]
    content: dict[str, Any] = msgspec.to_builtins(NodeUse(node=node, containers=rows))
    return content


def _row(measure: Measure) -> ContainerUse:
    use = measure.use
    return ContainerUse(
        namespace=measure.namespace,
        pod=measure.pod,
        container=measure.container,
        card=measure.device.id,
        memory_limit_bytes=measure.memory_limit_bytes,
        memory_used_bytes=None if use is None else use.memory_bytes,
        time_limit_percent=round(100 * measure.time_limit),
        time_used_percent=None if use is None else use.time_percent,
        blocked=Word.BLOCKED in measure.word,
        lifted=Word.LIFTED in measure.word,
    )
