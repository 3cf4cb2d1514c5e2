"""What `/metrics` shows: read from the running scheduler when somebody asks, and kept nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from subak.scheduler import cards
from subak.scheduler.counters import BOUNDS, Durations
from subak.scheduler.observed import Observed
from subak.scheduler.queue_metrics import of_queues
from subak.scheduler.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """The metrics of one service and of its way to the API server."""

    def __init__(self, service: Service, observed: Observed) -> None:
        self._service = service
        self._observed = observed
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def printed(self) -> str:
        """All of them, as text."""
        return generate_latest(self._registry).decode() + cards.printed(self._service.core.snapshot)

    def collect(self) -> Iterator[Metric]:
        service, counters = self._service, self._service.counters
        yield GaugeMetricFamily("subak_leader", "1 if this replica decides, 0 if it stands by.", int(service.leading))
        yield GaugeMetricFamily("subak_queue_length", "Pods that have no place yet.", len(service.core))
        yield GaugeMetricFamily(
            "subak_batch_config_refused",
            "1 if the scheduler configuration that is written is not the one in force.",
            int(bool(service.batch_configuration.trouble)),
        )
        decisions = CounterMetricFamily("subak_decisions", "What came of decisions.", labels=["outcome"])
        outcomes = {
            "bound": counters.bound,
            "binding_failed": counters.bind_failures,
            "waiting": counters.reports,
            "evicted": counters.evicted,
        }
        for outcome, count in outcomes.items():
            decisions.add_metric([outcome], count)
        yield decisions
        refusals = CounterMetricFamily("subak_refusals", "Reports of why a pod waits, by reason.", labels=["reason"])
        for reason, count in sorted(counters.refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals
        yield _histogram(
            "subak_created_to_bound_seconds", "From a pod's creation to its binding.", counters.created_to_bound
        )
        errors = CounterMetricFamily(
            "subak_api_errors",
            "Requests that the API server refused, by HTTP code; `none` if no answer came.",
            labels=["verb", "code"],
        )
        for labels, count in sorted(self._observed.errors.items()):
            errors.add_metric(labels, count)
        yield errors
        yield _histogram(
            "subak_batch_session_seconds", "Cycles in which gangs and queues were decided on.", counters.with_sessions
        )
        yield from of_queues(service.core.batch.queues())


def _histogram(name: str, text: str, durations: Durations) -> Metric:
    bounds = (*map(str, BOUNDS), "+Inf")
    buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
    return HistogramMetricFamily(name, text, buckets, durations.total)
