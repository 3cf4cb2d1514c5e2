"""Requests that wait, in columns: whoever fits on a node is among those that may fit there; nobody sleeps on."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.request import Request
from subak.policy.demand import Demand
from subak.policy.node import refuse_dialect, refuse_node
from subak.policy.on_node import on_node
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.policy.test_place import admitted
from tests.support.world import KINDS, make, pods


def fits(snapshot: Snapshot, name: str, request: Request) -> bool:
    """Whether the node takes the request, by the full rules."""
    node = snapshot.node(name)
    assert node is not None
    home = snapshot.home(name)
    assert home is not None
    pool, at = home
    if refuse_node(node, request.needs) or any(refuse_dialect(node, claim) for claim in request.claims):
        return False
    if any(pool.free(at, resource) < amount for resource, amount in request.needs.resources):
        return False
    return isinstance(on_node(node, snapshot.cards(name), request), tuple)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=3),
    running=st.lists(pods(), max_size=6),
    waiting=st.lists(pods(), min_size=1, max_size=6),
)
def test_whoever_fits_on_a_node_may_fit_there(
    kinds: list[int], running: list[manifest.Pod], waiting: list[manifest.Pod]
) -> None:
    snapshot = Snapshot(make(kind, f"node-{i}") for i, kind in enumerate(kinds))
    for number, pod in enumerate(running):
        ready = admitted(pod, f"pod-{number}")
        placement = None if ready is None else place(snapshot, ready[1])
        if ready is not None and placement is not None:
            snapshot.assume(ready[0].key, placement, ready[1].needs.resources)
    demand = Demand()
    requests = [ready[1] for pod in waiting if (ready := admitted(pod, "waiting")) is not None]
    numbers = [demand.add(request) for request in requests]
    for node in snapshot:
        answers = demand.may_fit(snapshot, node.name)
        for number, request in zip(numbers, requests, strict=True):
            assert answers[number] or not fits(snapshot, node.name, request)
