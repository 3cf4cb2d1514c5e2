"""The monitor as a part of the agent: it runs beside the others, and the agent's window shows what it sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from subak.node.arbiter import Arbiter
from subak.node.counters import Counters
from subak.node.monitor import use
from subak.node.monitor.gauges import Gauges
from subak.node.monitor.metrics import Metrics
from subak.node.monitor.monitor import Monitor
from subak.node.tenant import Tenant


class Watched(Protocol):
    """The agent, as far as it is watched."""

    arbiter: Arbiter
    registry: CollectorRegistry
    counters: Counters
    parts: dict[str, Callable[[], Awaitable[None]]]
    use: Callable[[], Any]


def attach(agent: Watched, node: str, load: Callable[[], Any]) -> Monitor:
    """Give the agent of a node its monitor, before it runs.  `load` gives the functions of `pynvml`."""

    def tenants() -> Iterator[Tenant]:
        # Not by the watch: a pod that is gone from there may still have a container that lives.
        for pod in agent.arbiter.holders():
            yield from agent.arbiter.tenants(pod)

    def real_cards() -> list[str]:
        """The cards that the driver is asked about; none while one is broken, since to be reset it must be let go."""
        machine = agent.arbiter.machine
        asked = machine.real and all(each.healthy for each in machine.devices)
        return [each.id for each in machine.devices] if asked else []

    monitor, gauges = Monitor(tenants), Gauges(real_cards, load)
    agent.parts["monitor"] = monitor.run
    agent.parts["gauges"] = gauges.run
    agent.use = lambda: use.shown(node, monitor)
    metrics = Metrics(
        node,
        monitor,
        lambda: agent.arbiter.machine.devices,
        lambda: agent.arbiter.held(),
        lambda: gauges.readings,
        agent.counters,
    )
    agent.registry.register(metrics)
    return monitor
