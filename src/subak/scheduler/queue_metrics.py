"""Metrics of queues: how much each holds of what it deserves, and who waits in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from subak.batch.overview import QueueView
from subak.batch.world import Phase

AMOUNTS = {
    "held": "What the pods of a queue hold; bytes of memory, and processors.",
    "deserved": "What a queue deserves by its weight, of what it asks for.",
    "asked": "What the pods of a queue hold and ask for.",
    "capability": "The most that a queue may have, where it is limited.",
}


def of_queues(views: Sequence[QueueView]) -> Iterator[Metric]:
    """All metrics of these queues."""
    for field, text in AMOUNTS.items():
        family = GaugeMetricFamily(f"subak_batch_queue_{field}", text, labels=["queue", "resource"])
        for view in views:
            for resource, amount in sorted((getattr(view, field) or {}).items()):
                family.add_metric([view.name, resource], amount / 1000 if resource == "cpu" else amount)
        yield family
    yield _gauge("weight", "How much a queue counts when queues share.", {view.name: view.weight for view in views})
    shares = {view.name: view.share for view in views if view.share is not None}
    yield _gauge("share", "How much of what it deserves a queue holds: 1 is all of it.", shares)
    yield _gauge("overused", "1 if a queue holds all that it deserves.", {view.name: view.overused for view in views})
    half = {view.name: view.half_bound for view in views}
    yield _gauge("half_bound_groups", "Groups of which a part runs alone, so that it must be completed or leave.", half)
    groups = GaugeMetricFamily("subak_batch_queue_groups", "Groups of a queue, by phase.", labels=["queue", "phase"])
    pods = GaugeMetricFamily("subak_batch_queue_pods", "Pods of a queue.", labels=["queue", "state"])
    for view in views:
        for phase in Phase:
            groups.add_metric([view.name, phase.value], view.groups.get(phase.value, 0))
        pods.add_metric([view.name, "running"], view.pods_running)
        pods.add_metric([view.name, "waiting"], view.pods_waiting)
    yield groups
    yield pods


def _gauge(name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"subak_batch_queue_{name}", text, labels=["queue"])
    for queue, value in values.items():
        family.add_metric([queue], value)
    return family
