"""A choice within some nodes is the choice that would be made if there were no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.policy.test_place import THOROUGH, admitted, clusters
from tests.support.world import make, pods


@THOROUGH
@given(kinds=clusters, stream=st.lists(st.tuples(pods(), st.sets(st.integers(0, 5))), max_size=10))
def test_a_choice_within_some_nodes_does_not_depend_on_the_others(
    kinds: list[int], stream: list[tuple[manifest.Pod, set[int]]]
) -> None:
    nodes = {f"node-{i}": make(kind, f"node-{i}") for i, kind in enumerate(kinds)}
    snapshot = Snapshot(nodes.values())
    for number, (pod, chosen) in enumerate(stream):
        ready = admitted(pod, f"pod-{number}")
        if ready is None:
            continue
        complete, request = ready
        names = frozenset(f"node-{i}" for i in chosen)
        alone = Snapshot(node for name, node in nodes.items() if name in names)
        for key, booking in snapshot.bookings.items():
            if booking.placement.node in names:
                alone.restore(key, booking.placement, booking.resources)
        decided = place(snapshot, request, within=names)
        assert decided == place(alone, request)
        everywhere = place(snapshot, request)
        assert place(snapshot, request, within=frozenset(nodes)) == everywhere
        if everywhere is not None:
            snapshot.assume(complete.key, everywhere, request.needs.resources)
