"""What the agent's `/metrics` shows, read when somebody asks and kept nowhere else.

    subak_container_...   one container on one card: zero while it is idle, missing where nobody can know
    subak_card_...        one card
    subak_agent_...       the agent itself

Units are bytes, seconds and ratios of one; labels are those that others use, so that figures can be joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from subak import __version__
from subak.model.device import FULL_CORES, Device
from subak.model.placement import Charge
from subak.node.counters import Counters
from subak.node.monitor.gauges import Reading
from subak.node.monitor.measure import Measure, measures
from subak.node.monitor.monitor import Moment, Monitor
from subak.node.monitor.words import Word

CARD_LABELS = ("node", "device", "model", "vendor")
CONTAINER_LABELS = ("namespace", "pod", "container", *CARD_LABELS)


@dataclass(frozen=True, slots=True)
class Card:
    """A card, what pods hold of it, what the driver says of it, and the containers on it."""

    device: Device
    held: Charge
    reading: Reading
    containers: Sequence[Measure]

    @property
    def used(self) -> int | None:
        """Memory in use: the driver's word, else what the containers say together; None if one of them cannot tell."""
        if self.reading.memory_used_bytes is not None:
            return self.reading.memory_used_bytes
        uses = [each.use for each in self.containers]
        return None if None in uses else sum(use.memory_bytes for use in uses if use is not None)


CONTAINER_GAUGES: Mapping[str, tuple[str, Callable[[Measure], float | None]]] = {
    "subak_container_memory_limit_bytes": (
        "Memory of the card that the container may use; the same for containers that share it.",
        lambda row: row.memory_limit_bytes,
    ),
    "subak_container_memory_used_bytes": (
        "Memory of the card that the container uses.",
        lambda row: None if row.use is None else row.use.memory_bytes,
    ),
    "subak_container_time_limit_ratio": (
        "Share of the card's time that the container may use; 1 if it has no limit.",
        lambda row: row.time_limit,
    ),
    "subak_container_time_used_ratio": (
        "Share of the card's time that the container used in the last moment, where it is limited.",
        lambda row: None if row.use is None or row.use.time_percent is None else row.use.time_percent / 100,
    ),
    "subak_container_last_launch_timestamp_seconds": (
        "When the container last had work for any of its cards; 0 if never.",
        lambda row: row.last_launch,
    ),
    "subak_container_blocked": (
        "1 while the container waits, because one of higher priority works on the card.",
        lambda row: Word.BLOCKED in row.word,
    ),
    "subak_container_share_lifted": (
        "1 while the limit on time does not hold, because nobody else works on the card.",
        lambda row: Word.LIFTED in row.word,
    ),
}

CARD_GAUGES: Mapping[str, tuple[str, Callable[[Card], float | None]]] = {
    "subak_card_healthy": ("1 if the card works, 0 if it is broken or gone.", lambda card: card.device.healthy),
    "subak_card_memory_bytes": ("Memory of the card.", lambda card: card.device.memory_bytes),
    "subak_card_memory_allocated_bytes": (
        "Memory of the card that pods hold, used or not.",
        lambda card: card.held.memory_bytes,
    ),
    "subak_card_memory_used_bytes": ("Memory of the card in use, by whomever.", lambda card: card.used),
    "subak_card_time_allocated_ratio": (
        "Share of the card's time that pods hold.",
        lambda card: card.held.cores / (card.device.cores or FULL_CORES),
    ),
    "subak_card_time_used_ratio": ("How busy the card is.", lambda card: card.reading.busy_ratio),
    "subak_card_temperature_celsius": ("How warm the card is.", lambda card: card.reading.temperature_celsius),
    "subak_card_power_watts": ("Power that the card draws.", lambda card: card.reading.power_watts),
    "subak_card_containers": ("Containers that hold a part of the card.", lambda card: len(card.containers)),
}


class Metrics(Collector):
    """The metrics of one agent.  `devices` and `held` are its cards now, and what pods hold of each."""

    def __init__(
        self,
        node: str,
        monitor: Monitor,
        devices: Callable[[], Iterable[Device]],
        held: Callable[[], Mapping[str, Charge]],
        readings: Callable[[], Mapping[str, Reading]],
        counters: Counters,
    ) -> None:
        self._node = node
        self._monitor = monitor
        self._devices = devices
        self._held = held
        self._readings = readings
        self._counters = counters

    def describe(self) -> list[Metric]:
        """Nothing: names are known when somebody asks, and registering must read no files."""
        return []

    def collect(self) -> Iterator[Metric]:
        rows = list(measures(self._monitor.seen, Moment.now()))
        labels = [[row.namespace, row.pod, row.container, *self._labels(row.device)] for row in rows]
        for name, (text, of_container) in CONTAINER_GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=CONTAINER_LABELS)
            yield _filled(gauge, zip(labels, map(of_container, rows), strict=True))
        charged = CounterMetricFamily(
            "subak_container_time_seconds", "Time of the card charged to the container.", labels=CONTAINER_LABELS
        )
        yield _filled(charged, zip(labels, (row.time_seconds for row in rows), strict=True))
        cards = self._cards(rows)
        for name, (text, of_card) in CARD_GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=CARD_LABELS)
            yield _filled(gauge, ((self._labels(card.device), of_card(card)) for card in cards))
        yield from self._agent()

    def _cards(self, rows: Iterable[Measure]) -> list[Card]:
        held, readings = self._held(), self._readings()
        there: dict[str, list[Measure]] = {}
        for row in rows:
            there.setdefault(row.device.id, []).append(row)
        return [
            Card(each, held.get(each.id, Charge()), readings.get(each.id, Reading()), there.get(each.id, ()))
            for each in self._devices()
        ]

    def _agent(self) -> Iterator[Metric]:
        yield InfoMetricFamily("subak_agent", "The agent.", {"version": __version__, "node": self._node})
        counted = {
            "refusals": ("Containers that were refused, by reason; kubelet tries again.", self._counters.refusals),
            "kills": ("Running containers that were ended, by reason.", self._counters.kills),
        }
        for name, (text, counts) in counted.items():
            family = CounterMetricFamily(f"subak_agent_{name}", text, labels=["reason"])
            for reason, count in sorted(counts.items()):
                family.add_metric([reason], count)
            yield family
        yield CounterMetricFamily(
            "subak_agent_monitor_rounds", "Looks at all tenants; one a second.", self._monitor.rounds
        )
        if self._counters.differences is not None:
            yield GaugeMetricFamily(
                "subak_agent_kubelet_differences",
                "Containers about whose devices kubelet (PodResources) and the agent disagree.",
                self._counters.differences,
            )

    def _labels(self, device: Device) -> list[str]:
        return [self._node, device.id, device.model, device.family]


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, figures: Iterable[tuple[list[str], float | None]]
) -> Metric:
    for labels, figure in figures:
        if figure is not None:
            family.add_metric(labels, float(figure))
    return family
