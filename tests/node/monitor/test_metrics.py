"""What Prometheus and `subak top` read of a node: zeros for idle containers, nothing where nobody knows."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from subak.model.device import Device
from subak.model.manifest import Container, Metadata, Pod, PodSpec
from subak.model.placement import Charge, Share
from subak.node.counters import Counters
from subak.node.monitor import state, use
from subak.node.monitor.gauges import Reading
from subak.node.monitor.metrics import Metrics
from subak.node.monitor.monitor import Moment, Monitor, look
from subak.node.tenant import Held, Tenant
from tests.support.fuzz import examples
from tests.support.regions import MIB, add, region, work

CARD = Device("GPU-00", 0, "nvidia", "NVIDIA-A10", 8192 * MIB)
BROKEN = Device("GPU-01", 1, "nvidia", "NVIDIA-A10", 8192 * MIB, healthy=False)


def tenant(folder: Path, name: str, *containers: str, cores: int = 30) -> Tenant:
    pod = Pod(metadata=Metadata(name=name, uid=name, namespace="team"), spec=PodSpec(containers=[Container(name="c")]))
    held = (Held(0, CARD, Share(CARD.id, 0, 2048 * MIB, cores)),)
    (folder / name).write_bytes(state.EMPTY)
    names = dict(enumerate(containers or ("c",)))
    return Tenant(pod, names, held, folder / f"{name}.cache", (folder / name,))


def at_work(who: Tenant, *, charged: int = 0) -> bytearray:
    """The region of a tenant with a process in each container: 100 MiB for the first, 200 MiB for the second, ..."""
    assert who.region is not None
    content, now = region(), time.monotonic_ns()
    work(content, now, charged=charged)
    for position in who.containers:
        add(content, position, 17, (position + 1) * 100 * MIB, container=position, beat=now)
    who.region.write_bytes(content)
    return content


class Node:
    """A node with these tenants, as its agent shows it."""

    def __init__(self, *tenants: Tenant) -> None:
        self.tenants = tenants
        self.monitor = Monitor(lambda: tenants)
        self.counters = Counters()
        self.readings: dict[str, Reading] = {}
        self.held = {CARD.id: Charge(memory_bytes=4096 * MIB, cores=60)}
        self._registry = CollectorRegistry()
        self._registry.register(
            Metrics("n1", self.monitor, lambda: [CARD, BROKEN], lambda: self.held, lambda: self.readings, self.counters)
        )

    def scrape(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The figures by metric, and by the labels that differ here."""
        self.monitor.seen = look(self.tenants, Moment.now())
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(generate_latest(self._registry).decode()):
            for sample in family.samples:
                labels = [sample.labels.get(name) for name in ("pod", "container", "device", "reason")]
                found.setdefault(sample.name, {})[tuple(filter(None, labels))] = sample.value
        return found


def test_a_container_that_is_idle_has_zeros(tmp_path: Path) -> None:
    shown = Node(tenant(tmp_path, "idle")).scrape()
    idle = ("idle", "c", "GPU-00")
    assert shown["subak_container_memory_used_bytes"] == {idle: 0}
    assert shown["subak_container_time_used_ratio"] == {idle: 0}
    assert shown["subak_container_memory_limit_bytes"] == {idle: 2048 * MIB}
    assert shown["subak_container_time_limit_ratio"] == {idle: 0.3}
    assert shown["subak_container_share_lifted"] == {idle: 1}
    assert shown["subak_container_blocked"] == {idle: 0}


def test_a_container_at_work_shows_what_it_uses(tmp_path: Path) -> None:
    busy = tenant(tmp_path, "busy")
    at_work(busy, charged=1_500_000)
    shown = Node(busy).scrape()
    assert shown["subak_container_memory_used_bytes"] == {("busy", "c", "GPU-00"): 100 * MIB}
    assert shown["subak_container_time_seconds_total"] == {("busy", "c", "GPU-00"): 0.0015}


def test_nobody_counts_the_time_of_a_container_whose_share_is_lifted(tmp_path: Path) -> None:
    """It works, so zero would be wrong."""
    alone, neighbour = tenant(tmp_path, "alone"), tenant(tmp_path, "neighbour")
    at_work(alone)
    node = Node(alone, neighbour)
    assert node.scrape()["subak_container_time_used_ratio"].keys() == {("neighbour", "c", "GPU-00")}
    at_work(neighbour)
    assert len(node.scrape()["subak_container_time_used_ratio"]) == 2


def test_a_container_without_a_limit_of_time_may_use_all_of_it(tmp_path: Path) -> None:
    assert Node(tenant(tmp_path, "all", cores=0)).scrape()["subak_container_time_limit_ratio"] == {
        ("all", "c", "GPU-00"): 1
    }


def test_containers_that_count_together_are_told_apart(tmp_path: Path) -> None:
    both = tenant(tmp_path, "both", "one", "two")
    at_work(both)
    shown = Node(both).scrape()
    assert shown["subak_container_memory_used_bytes"] == {
        ("both", "one", "GPU-00"): 100 * MIB,
        ("both", "two", "GPU-00"): 200 * MIB,
    }
    assert shown["subak_container_time_seconds_total"].keys() == {("both", "one", "GPU-00")}
    assert shown["subak_card_memory_used_bytes"] == {("GPU-00",): 300 * MIB, ("GPU-01",): 0}


def test_where_nobody_knows_there_is_no_figure(tmp_path: Path) -> None:
    stranger = replace(tenant(tmp_path, "stranger"), region=None)
    shown = Node(stranger).scrape()
    assert "subak_container_memory_used_bytes" not in shown
    assert shown["subak_container_memory_limit_bytes"] == {("stranger", "c", "GPU-00"): 2048 * MIB}
    assert shown["subak_card_memory_used_bytes"] == {("GPU-01",): 0}


def test_cards_show_what_is_held_what_is_used_and_whether_they_work(tmp_path: Path) -> None:
    node = Node(tenant(tmp_path, "a"), tenant(tmp_path, "b"))
    node.readings = {CARD.id: Reading(700 * MIB, 0.5, 61, 120.5)}
    shown = node.scrape()
    assert shown["subak_card_healthy"] == {("GPU-00",): 1, ("GPU-01",): 0}
    assert shown["subak_card_memory_bytes"][("GPU-00",)] == 8192 * MIB
    assert shown["subak_card_memory_allocated_bytes"] == {("GPU-00",): 4096 * MIB, ("GPU-01",): 0}
    assert shown["subak_card_memory_used_bytes"][("GPU-00",)] == 700 * MIB
    assert shown["subak_card_time_allocated_ratio"][("GPU-00",)] == 0.6
    assert shown["subak_card_time_used_ratio"] == {("GPU-00",): 0.5}
    assert shown["subak_card_temperature_celsius"] == {("GPU-00",): 61}
    assert shown["subak_card_power_watts"] == {("GPU-00",): 120.5}
    assert shown["subak_card_containers"] == {("GPU-00",): 2, ("GPU-01",): 0}


def test_the_agent_counts_what_it_refused_and_ended() -> None:
    node = Node()
    assert "subak_agent_kubelet_differences" not in node.scrape()
    node.counters.refusals["Overcommitted"] += 2
    node.counters.kills["Unlimited"] += 1
    node.counters.differences = 0
    shown = node.scrape()
    assert shown["subak_agent_refusals_total"] == {("Overcommitted",): 2}
    assert shown["subak_agent_kills_total"] == {("Unlimited",): 1}
    assert shown["subak_agent_kubelet_differences"] == {(): 0}
    assert shown["subak_agent_info"] == {(): 1}


def test_names_that_need_escaping_do_not_break_the_page() -> None:
    odd = msgspec.structs.replace(CARD, model='A10 "half"\\n')
    registry = CollectorRegistry()
    registry.register(Metrics("n1", Monitor(list), lambda: [odd], dict, dict, Counters()))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert {s.labels["model"] for f in families for s in f.samples if "model" in s.labels} == {odd.model}


def test_top_is_told_the_same(tmp_path: Path) -> None:
    both, stranger = tenant(tmp_path, "both", "one", "two"), replace(tenant(tmp_path, "odd"), region=None)
    at_work(both)
    node = Node(both, stranger)
    node.scrape()
    answer = use.shown("n1", node.monitor)
    assert answer["node"] == "n1"
    assert [(row["pod"], row["container"], row["memory_used_bytes"]) for row in answer["containers"]] == [
        ("both", "one", 100 * MIB),
        ("both", "two", 200 * MIB),
        ("odd", "c", None),
    ]
    assert answer["containers"][0] == {
        "namespace": "team",
        "pod": "both",
        "container": "one",
        "card": "GPU-00",
        "memory_limit_bytes": 2048 * MIB,
        "memory_used_bytes": 100 * MIB,
        "time_limit_percent": 30,
        "time_used_percent": 0,
        "blocked": False,
        "lifted": False,
    }


@examples(quick=20, ci=100)
@given(seed=st.integers(0, 2**32))
def test_scribbled_regions_make_no_absurd_figures(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder, chance = tmp_path_factory.mktemp("n"), random.Random(seed)
    who = tenant(folder, "scribbler", "one", "two")
    content = at_work(who)
    places = [chance.randrange(12, len(content)) for _ in range(3000)] + list(range(2_008_890, 2_008_952))
    for place in places + list(range(len(content) - 4096, len(content), 7)):
        content[place] = chance.randrange(256)
    assert who.region is not None
    who.region.write_bytes(content)
    shown = Node(who).scrape()
    for name, figures in shown.items():
        for figure in figures.values():
            assert figure >= 0
            if name.endswith("_ratio"):
                assert figure <= 1
            if name.endswith("_time_seconds_total"):
                assert figure <= time.monotonic()
