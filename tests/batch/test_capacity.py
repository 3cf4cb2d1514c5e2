"""What the cluster has and what pods use of it: the counters say what a recount says, after any history."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subak.batch.amounts import add
from subak.batch.capacity import Capacity, Card, card_part
from subak.batch.dimensions import Dimensions
from subak.dialects import Part
from subak.model.device import GPU, MIB
from subak.model.node import Node
from subak.model.placement import Placement
from subak.policy.decider import Decider
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import UNLIMITED
from tests.support.cards import cards_of, device, node
from tests.support.world import INTERPRETER, KINDS, make, pods


def capacity(*nodes: Node) -> Capacity:
    return Snapshot(nodes).watched(Capacity)


def recount(snapshot: Snapshot) -> dict[str, float]:
    """What all nodes that are ready have, counted anew."""
    total: dict[str, float] = {}
    for each in snapshot:
        if each.ready:
            add(total, {"cpu": UNLIMITED, "memory": UNLIMITED, "pods": UNLIMITED} | dict(each.allocatable))
            for card in each.devices:
                if card.healthy:
                    gpu = {"slots": card.slots, "cards": 1} if card.kind == GPU else {}
                    parts = {"memory": card.memory_bytes, "cores": card.cores, **gpu}
                    add(total, {f"{card.family}/{part}": amount for part, amount in parts.items()})
    total.pop("subak.io/slot", None)
    return total


def test_broken_cards_and_nodes_that_are_not_ready_count_for_nothing() -> None:
    cards = (device(0), device(1, healthy=False), device(2, cordoned=True))
    found = capacity(
        node("a", *cards, allocatable={"cpu": 4000}), node("b", *cards_of("b"), ready=False, allocatable={"cpu": 1})
    )
    assert found.total["nvidia/cards"] == 2
    assert found.total["nvidia/memory"] == 2 * 16_000 * MIB
    assert found.total["cpu"] == 4000


def test_a_node_closed_to_new_pods_counts_as_what_its_pods_hold_does() -> None:
    assert capacity(node("a", device(0), unschedulable=True)).total["nvidia/cards"] == 1


def test_the_usual_card_is_the_one_of_which_there_are_most_and_of_equally_many_the_smallest() -> None:
    snapshot = Snapshot([node("a", device(0), device(1, mib=24_000))])
    found = snapshot.watched(Capacity)
    assert found.usual("nvidia") == Card(16_000 * MIB)
    before = found.version
    snapshot.put([node("b", device(0, mib=24_000))])
    assert found.usual("nvidia") == Card(24_000 * MIB)
    assert found.version > before
    snapshot.remove("a")
    snapshot.remove("b")
    assert found.usual("nvidia") is None


def test_a_node_that_changes_nothing_that_is_counted_makes_no_estimate_old() -> None:
    snapshot = Snapshot([node("a", device(0))])
    found = snapshot.watched(Capacity)
    before = found.version
    snapshot.put([node("a", device(0), labels={"zone": "x"})])
    assert found.version == before


def test_names_of_cards_are_told_from_names_of_resources() -> None:
    assert card_part("nvidia/memory") == ("nvidia", Part.MEMORY)
    assert card_part("nvidia.com/cores") is None
    assert card_part("memory") is None
    assert card_part("nvidia/power") is None


@given(
    kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=4),
    asking=st.lists(pods(), max_size=8),
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=12),
)
def test_counters_say_what_a_recount_says_after_any_history(kinds, asking, events) -> None:  # type: ignore[no-untyped-def]
    nodes = [make(kind, f"node-{i}") for i, kind in enumerate(kinds)]
    decider = Decider(INTERPRETER, nodes[: len(nodes) // 2])
    snapshot = decider.snapshot
    watcher = snapshot.watched(Capacity)
    dimensions = Dimensions(INTERPRETER, snapshot)
    snapshot.put(nodes)
    for i, pod in enumerate(asking):
        try:
            request = decider.request(INTERPRETER.admit(pod))
        except ValueError:
            continue
        answer = decider.decide("default", request)
        if isinstance(answer, Placement):
            snapshot.assume(f"default/p{i}", answer, request.needs.resources, pod)
    for what, which in events:
        chosen = nodes[which % len(nodes)]
        match what:
            case 0:
                snapshot.remove(chosen.name)
            case 1:
                snapshot.put([chosen])
            case 2:
                snapshot.put([replace(chosen, ready=False)])
            case _:
                broken = [msgspec.structs.replace(each, healthy=False) for each in chosen.devices[:1]]
                snapshot.put([replace(chosen, devices=(*broken, *chosen.devices[1:]))])
    assert watcher.total == recount(snapshot)
    used = watcher.used()
    held: dict[str, float] = {}
    for booking in snapshot.bookings.values():
        place = snapshot.node(booking.placement.node)
        if place is not None and place.ready and all(card.healthy for card in place.devices):
            add(held, dimensions.booked(booking))
    sound = all(card.healthy for each in snapshot for card in each.devices)
    for name in Counter(used.keys() | held.keys()) if sound else ():
        if not name.endswith("/cards"):  # shares of several pods may fill a card together
            assert used.get(name, 0) == held.get(name, 0), name
