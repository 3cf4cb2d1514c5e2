"""What is free per node and model, in columns, is what one counts card by card."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from subak.model.device import RDMA, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.scheduler import cards
from subak.snapshot.cluster import Snapshot

Figures = dict[tuple[str, str, str], float]
MODELS = ("A100", "A10", 'odd "name"\\')

device = st.tuples(st.sampled_from(MODELS), st.booleans(), st.booleans(), st.sampled_from(["gpu", RDMA]))
nodes = st.lists(st.lists(device, max_size=4), max_size=5)


def node(name: str, described: Iterable[tuple[str, bool, bool, str]]) -> Node:
    devices = tuple(
        Device(f"{name}-{index}", index, "nvidia", model, 1000 + index, healthy=healthy, cordoned=cordoned, kind=kind)
        for index, (model, healthy, cordoned, kind) in enumerate(described)
    )
    return Node(name, devices)


def one_by_one(snapshot: Snapshot) -> Figures:
    """As one would count with pencil and paper."""
    figures: Figures = {}
    for each in snapshot:
        for card in snapshot.cards(each.name):
            if card.device.kind != "gpu":
                continue
            usable = card.device.healthy and not card.device.cordoned
            memory, cores = (max(card.memory_free, 0), max(card.cores_free, 0)) if usable else (0, 0)
            where = (each.name, card.device.model)
            for name, amount in (("subak_free_memory_bytes", memory), ("subak_free_cores", cores)):
                figures[name, *where] = figures.get((name, *where), 0) + amount
            largest = ("subak_largest_free_slice_bytes", *where)
            figures[largest] = max(figures.get(largest, 0), memory)
    return figures


def parsed(text: str) -> Figures:
    return {
        (sample.name, sample.labels["node"], sample.labels["model"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@given(nodes, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 1500)), max_size=6), st.data())
def test_the_figures_are_those_that_one_counts_card_by_card(
    described: list[list[tuple[str, bool, bool, str]]], taken: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    snapshot = Snapshot([node(f"n{number}", each) for number, each in enumerate(described)])
    for number, (at, row, amount) in enumerate(taken):
        known = snapshot.node(f"n{at}")
        if known is not None and row < len(known.devices):
            share = Share(known.devices[row].id, row, amount, 10)
            snapshot.restore(f"a/p{number}", Placement(known.name, (Grant("hami-nvidia", (0,), Role.APP, (share,)),)))
    for name in data.draw(st.sets(st.sampled_from([each.name for each in snapshot]))) if len(snapshot) else ():
        snapshot.remove(name)  # its position stays, vacant
    assert parsed(cards.printed(snapshot)) == one_by_one(snapshot)
