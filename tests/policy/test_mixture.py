"""Node scores that are mixed by weights: columns say what a slow count of one node says."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import pstdev

from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.request import BINPACK, SPREAD, Mixture, Packed, Request
from subak.policy.mixture import THOUSAND, card_points
from subak.policy.on_node import on_node
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from subak.snapshot.scores import NEVER
from tests.policy.test_columns import admits, scores
from tests.policy.test_place import admitted
from tests.support.fuzz import examples
from tests.support.world import KINDS, make, pods

NAMES = ("cpu", "memory", "pods", "example.com/none", "NVIDIA/memory", "NVIDIA/cores", "NVIDIA/cards", "NVIDIA/slots")

weights = st.integers(0, 3)
mixtures = st.builds(
    Mixture,
    cpu=st.integers(0, 4_000),
    memory=st.integers(0, 1 << 33),
    least=weights,
    most=weights,
    balanced=weights,
    packing=weights,
    packed=st.lists(
        st.builds(Packed, st.sampled_from(NAMES), weights, st.integers(0, 1 << 34)),
        max_size=3,
        unique_by=lambda p: p.name,
    ).map(tuple),
    cards=weights,
    card_policy=st.sampled_from([BINPACK, SPREAD]),
)


def amount(snapshot: Snapshot, node: Node, name: str) -> tuple[int, int]:
    """What a node has of a resource, and what is used, card by card and pod by pod."""
    family, _, kind = name.rpartition("/")
    cards = [card for card in snapshot.cards(node.name) if card.device.family == family]
    if cards and kind in ("memory", "cores", "slots", "cards"):
        match kind:
            case "memory":
                return sum(card.device.memory_bytes for card in cards), sum(card.memory_used for card in cards)
            case "cores":
                return sum(card.device.cores for card in cards), sum(card.cores_used for card in cards)
            case "slots":
                return sum(card.device.slots for card in cards), sum(card.slots_used for card in cards)
            case _:
                return len(cards), sum(1 for card in cards if card.tenants)
    if name not in node.allocatable:
        return 0, 0
    held = [dict(snapshot.bookings[key].resources) for key in snapshot.pods_on(node.name)]
    return node.allocatable[name], sum(each.get(name, 0) for each in held)


def slow(snapshot: Snapshot, node: Node, request: Request) -> int:
    """The score of one node, by the formulas as they are written."""
    mixture = request.mixture
    assert mixture is not None
    plain = [(*amount(snapshot, node, "cpu"), mixture.cpu), (*amount(snapshot, node, "memory"), mixture.memory)]
    there = [each for each in plain if each[0] > 0]
    least = sum(max(total - used - asked, 0) * 100 // total for total, used, asked in there)
    most = sum(min(used + asked, total) * 100 // total for total, used, asked in there)
    points = (mixture.least * (least // max(len(there), 1)) + mixture.most * (most // max(len(there), 1))) * THOUSAND
    if mixture.balanced:
        families = dict.fromkeys(device.family for device in node.devices)
        slots = {
            f"{family}/slots": sum(c.count for c in request.claims if c.slotted and family in c.families)
            for family in families
        }
        parts = there + [(*amount(snapshot, node, name), asked) for name, asked in slots.items() if asked]
        after = even([min((used + asked) / total, 1) for total, used, asked in parts if total > 0])
        before = even([min(used / total, 1) for total, used, _ in parts if total > 0])
        points += mixture.balanced * (50 + (50 + after - before) // 2) * THOUSAND
    filled = [(*amount(snapshot, node, each.name), each) for each in mixture.packed if each.asked > 0]
    total_weight = sum(each.weight for _, _, each in filled)
    if mixture.packing and total_weight and all(not t or u + each.asked <= t for t, u, each in filled):
        share = sum(each.weight * (u + each.asked) / t for t, u, each in filled if t) / total_weight
        points += math.floor(share * 100 * (THOUSAND * mixture.packing) + 1e-6)
    return points


def even(parts: list[float]) -> int:
    return math.floor((1 - (pstdev(parts) if parts else 0)) * 100 + 1e-9)


@examples(quick=20, ci=300)
@given(
    kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=4),
    stream=st.lists(st.tuples(pods(), mixtures), max_size=8),
)
def test_columns_say_what_a_slow_count_says(kinds: list[int], stream: list[tuple[manifest.Pod, Mixture]]) -> None:
    nodes = {f"node-{i}": make(kind, f"node-{i}") for i, kind in enumerate(kinds)}
    snapshot = Snapshot(nodes.values())
    for number, (pod, mixture) in enumerate(stream):
        ready = admitted(pod, f"pod-{number}")
        if ready is None:
            continue
        complete, plain = ready
        request = replace(plain, mixture=mixture)
        best: tuple[int, str] | None = None
        for pool in snapshot.pools:
            for node, found in zip(pool.nodes, scores(pool, request), strict=True):
                if not admits(snapshot, node, request):
                    continue
                grants = on_node(node, snapshot.cards(node.name), request)
                assert isinstance(grants, tuple)
                points = slow(snapshot, node, request)
                if mixture.cards:
                    points += mixture.cards * card_points(snapshot.cards(node.name), grants, mixture.card_policy)
                assert found != NEVER
                assert abs(found - points) <= 1, (node.name, found, points)
                best = min(best or (-found, node.name), (-found, node.name))
        placement = place(snapshot, request)
        assert (placement and placement.node) == (best and best[1]), "the highest score wins, the first by name"
        if placement is not None:
            snapshot.assume(complete.key, Placement(placement.node, placement.grants), request.needs.resources)
