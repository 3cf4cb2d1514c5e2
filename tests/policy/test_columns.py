"""Whole columns at once: never stricter than the rules card by card, and exact where nothing else decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.koordinator_names import ISOLATION
from subak.dialects.koordinator_rules import KoordinatorRules
from subak.dialects.metax_rules import Shared
from subak.model import manifest
from subak.model.manifest import Expression, Role, Taint, Toleration
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.request import (
    BINPACK,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    SPREAD,
    CardPolicy,
    Claim,
    Needs,
    Pick,
    Request,
    Selection,
)
from subak.policy import registry
from subak.policy.columns import prepare
from subak.policy.node import refuse_dialect, refuse_node
from subak.policy.on_node import on_node
from subak.policy.place import place
from subak.policy.score import use
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Pool
from subak.snapshot.scores import NEVER
from tests.policy.test_place import admitted
from tests.support.cards import cards_of, claim, device, grant, node, placed, share
from tests.support.fuzz import examples
from tests.support.world import KINDS, make, pods


def scores(pool: Pool, request: Request) -> list[int]:
    """The scores of a pool's nodes; none at all if its make rules the request out."""
    evaluator = prepare(pool, request)
    if evaluator is None:
        return [NEVER] * pool.size
    found: list[int] = evaluator.scores(slice(0, pool.size)).tolist()
    for at in pool:
        assert evaluator.scores(np.array([at])).tolist() == [found[at]], "one node says the same as all"
    return found


def admits(snapshot: Snapshot, home: Node, request: Request) -> bool:
    """Whether the node takes the pod, by the rules one by one."""
    if refuse_node(home, request.needs) or any(refuse_dialect(home, each) for each in request.claims):
        return False
    found = snapshot.home(home.name)
    assert found is not None
    pool, at = found
    if any(pool.free(at, name) < amount for name, amount in request.needs.resources):
        return False
    return isinstance(on_node(home, snapshot.cards(home.name), request), tuple)


def compare(snapshot: Snapshot, request: Request, exactly: bool = False) -> None:
    """A node that takes the pod is never struck out, and its score is right."""
    for pool in snapshot.pools:
        for home, found in zip(pool.nodes, scores(pool, request), strict=True):
            if not admits(snapshot, home, request):
                assert not exactly or found == NEVER, home.name
                continue
            cards = snapshot.cards(home.name)
            grants = on_node(home, cards, request)
            assert isinstance(grants, tuple)
            assert found == registry.score_of(request).score(home, cards, request, grants), home.name


@examples(quick=20, ci=200)
@given(
    kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=4),
    stream=st.lists(st.tuples(pods(), st.integers(0, 3)), max_size=10),
    data=st.data(),
)
def test_a_node_that_takes_a_pod_is_never_struck_out(
    kinds: list[int], stream: list[tuple[manifest.Pod, int]], data: st.DataObject
) -> None:
    nodes = {f"node-{i}": make(kind, f"node-{i}") for i, kind in enumerate(kinds)}
    snapshot = Snapshot(nodes.values())
    for number, (pod, event) in enumerate(stream):
        ready = admitted(pod, f"pod-{number}")
        if ready is None:
            continue
        complete, request = ready
        compare(snapshot, request)
        home = nodes[data.draw(st.sampled_from(sorted(nodes)))]
        if event == 0:  # a pod of another scheduler takes what it likes
            victim = data.draw(st.sampled_from(home.devices))
            part = share(victim.id, data.draw(st.integers(0, 20_000)), data.draw(st.integers(0, 120)))
            snapshot.restore(f"other/{number}", placed(home.name, part), (("cpu", 30_000),))
        elif admits(snapshot, home, request):  # book it anywhere, not only where it is best
            grants = on_node(home, snapshot.cards(home.name), request)
            assert isinstance(grants, tuple)
            snapshot.assume(complete.key, Placement(home.name, grants), request.needs.resources)


states = st.lists(
    st.builds(
        lambda healthy, cordoned, model, mode, mib, cores, slots: device(
            healthy=healthy, cordoned=cordoned, model=model, mode=mode, mib=mib, cores=cores, slots=slots
        ),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([False, False, False, True]),
        st.sampled_from(["NVIDIA-A100", "NVIDIA-T4"]),
        st.sampled_from(["", "mps"]),
        st.sampled_from([8_000, 16_000]),
        st.sampled_from([100, 100, 200]),
        st.integers(1, 3),
    ),
    min_size=2,
    max_size=2,
)
holdings = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from([0, 4_000, 8_000]), st.sampled_from([0, 50, 100])),
    max_size=6,
)
claims = st.builds(
    lambda mib, percent, cores, count, idle, mutex, selection: claim(
        mib,
        memory_percent=percent,
        cores=cores,
        count=count,
        idle=idle,
        selection=selection,
        policy=CardPolicy(mutex=mutex),
    ),
    st.sampled_from([0, 0, 4_000, 9_000]),
    st.sampled_from([0, 30, 50, 100]),
    st.sampled_from([0, 0, 30, 50, 100]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([False, False, True]),
    st.sampled_from([False, False, True]),
    st.sampled_from(
        [
            Selection(),
            Selection(),
            Selection(use_types=("a100",)),
            Selection(nouse_types=("a100",)),
            Selection(modes="mps"),
            Selection(use_ids=frozenset({"n0-0", "n1-1"})),
            Selection(nouse_ids=frozenset({"n0-0", "n1-1"})),
        ]
    ),
)


@examples(quick=20, ci=200)
@given(
    st.lists(states, min_size=4, max_size=4),
    holdings,
    claims,
    st.sampled_from([BINPACK, SPREAD, LEAST_ALLOCATED, MOST_ALLOCATED]),
)
def test_for_one_container_the_columns_know_all_rules(
    drawn: list[list[Any]], held: list[tuple[int, int, int, int]], asked: Claim, policy: str
) -> None:
    """But for who wants a hundred cores where cards differ: on some of them that is a card alone, on others not."""
    nodes = [
        node(f"n{i}", *(msgspec.structs.replace(each, index=row, id=f"n{i}-{row}") for row, each in enumerate(devices)))
        for i, devices in enumerate(drawn)
    ]
    snapshot = Snapshot(nodes)
    for number, (at, row, mib, cores) in enumerate(held):
        snapshot.restore(f"default/p{number}", placed(f"n{at}", share(f"n{at}-{row}", mib, cores)))
    plain = all(each.cores == 100 for home in nodes for each in home.devices)
    compare(snapshot, Request((asked,), node_policy=policy), exactly=plain or asked.cores != 100)


def cluster(*nodes: Node) -> Snapshot:
    return Snapshot(nodes)


def named(snapshot: Snapshot, request: Request) -> list[str]:
    """The nodes that the columns let through."""
    return sorted(
        name
        for pool in snapshot.pools
        for name, found in zip((each.name for each in pool.nodes), scores(pool, request), strict=True)
        if found != NEVER
    )


def one(name: str, count: int = 1, **facts: Any) -> Node:
    return node(name, *cards_of(name, count, **facts))


@pytest.mark.parametrize(
    ("facts", "held", "asked", "fits"),
    [
        ({}, [], claim(16_000), True),
        ({}, [], claim(16_001), False),
        ({}, [share("a-0", 8_000)], claim(memory_percent=50), True),
        ({}, [share("a-0", 8_001)], claim(memory_percent=50), False),
        ({}, [share("a-0", 8_001)], claim(7_999, memory_percent=50), True),
        ({"mib": 1_001}, [share("a-0", 501)], claim(memory_percent=50), True),
        ({"mib": 1_001}, [share("a-0", 501)], claim(memory_percent=50, granule=1), False),
        ({}, [share("a-0", 1, 70)], claim(cores=30), True),
        ({}, [share("a-0", 1, 71)], claim(cores=30), False),
        ({}, [share("a-0", 1, 99)], claim(), True),
        ({}, [share("a-0", 1, 100)], claim(), False),
        ({}, [share("a-0")] * 3, claim(), True),
        ({}, [share("a-0")] * 4, claim(), False),
        ({"healthy": False}, [], claim(), False),
        ({"cordoned": True}, [], claim(), False),
        ({}, [share("a-0")], claim(idle=True), False),
        ({}, [], claim(idle=True), True),
        ({}, [share("a-0")], claim(policy=CardPolicy(mutex=True)), False),
        ({}, [], claim(policy=CardPolicy(mutex=True)), True),
        ({}, [share("a-0")], claim(cores=100), False),
        ({}, [], claim(cores=100), True),
        ({"cores": 200}, [share("a-0")], claim(cores=100), True),
        ({"model": "NVIDIA-T4"}, [], claim(selection=Selection(use_types=("t4",))), True),
        ({"model": "NVIDIA-T4"}, [], claim(selection=Selection(use_types=("a100",))), False),
        ({"mode": "mps"}, [], claim(selection=Selection(modes="hami-core")), False),
        ({"mode": "mps"}, [], claim(selection=Selection(modes="mps")), True),
        ({}, [], claim(selection=Selection(use_ids=frozenset({"a-0"}))), True),
        ({}, [], claim(selection=Selection(use_ids=frozenset({"b-0"}))), False),
        ({}, [], claim(selection=Selection(nouse_ids=frozenset({"a-0"}))), False),
    ],
)
def test_the_columns_know_the_limits_of_each_rule(
    facts: dict[str, Any], held: list[Any], asked: Claim, fits: bool
) -> None:
    """Node b is of the same pool, so that the make of the nodes alone decides nothing."""
    snapshot = cluster(one("a", **facts), one("b"))
    snapshot.restore("default/p", placed("a", *held))
    assert ("a" in named(snapshot, Request((asked,)))) is fits
    compare(snapshot, Request((asked,)), exactly=True)


def test_a_pod_without_cards_may_follow_any_policy() -> None:
    snapshot = cluster(one("a"), node("b"))
    for policy in (BINPACK, SPREAD, LEAST_ALLOCATED, MOST_ALLOCATED):
        assert named(snapshot, Request(node_policy=policy)) == ["a", "b"]


@pytest.mark.parametrize("needs", [Needs(), Needs(selector=(("zone", "x"),))])
def test_a_node_must_speak_every_dialect_of_the_pod(needs: Needs) -> None:
    both = frozenset({"hami-nvidia", "volcano-share"})
    snapshot = cluster(*(replace(each, labels={"zone": "x"}) for each in (one("a"), replace(one("b"), offers=both))))
    claims = (claim(), claim(dialect="volcano-share", container=1))
    assert named(snapshot, Request(claims, needs)) == ["b"]


@examples(quick=20, ci=150)
@given(
    kinds=st.lists(st.sampled_from([0, 1, 4, 7, 8]), min_size=1, max_size=4),
    shapes=st.lists(pods(), min_size=1, max_size=3),
    events=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7), st.integers(0, 3)), max_size=16),
)
def test_what_is_remembered_of_a_shape_is_what_would_be_found_anew(
    kinds: list[int], shapes: list[manifest.Pod], events: list[tuple[int, int, int]]
) -> None:
    """Few shapes, often: every decision but the first of a shape rests on scores that were kept."""
    nodes = {f"node-{i}": make(kind, f"node-{i}") for i, kind in enumerate(kinds)}
    snapshot = Snapshot(nodes.values())
    requests = [ready[1] for pod in shapes if (ready := admitted(pod, "pod")) is not None]
    for number, (which, event, at) in enumerate(events):
        name = f"node-{at % len(nodes)}"
        if event == 0 and snapshot.bookings:
            snapshot.forget(sorted(snapshot.bookings)[at % len(snapshot.bookings)])
        elif event == 1:
            snapshot.remove(name)
        elif event == 2:
            snapshot.put([nodes[name]])
        elif event == 3:
            first, *rest = nodes[name].devices
            snapshot.put([replace(nodes[name], devices=(msgspec.structs.replace(first, healthy=False), *rest))])
        for request in requests[which : which + 1]:
            anew = Snapshot(snapshot)
            for key, booking in snapshot.bookings.items():
                anew.restore(key, booking.placement, booking.resources)
            found = place(snapshot, request)
            assert found == place(anew, request)
            if found is not None:
                snapshot.assume(f"default/p{number}", found, request.needs.resources)


def test_a_pool_with_too_few_cards_is_not_looked_at() -> None:
    (pool,) = cluster(one("a", 2)).pools
    assert prepare(pool, Request((claim(count=3),))) is None
    assert prepare(pool, Request((claim(count=2),))) is not None
    assert prepare(pool, Request((claim(families=frozenset({"metax"})),))) is None
    assert prepare(pool, Request((claim(), claim(container=1, count=3)))) is None


def test_a_model_that_comes_later_is_seen() -> None:
    (pool,) = cluster(one("a")).pools
    wanted = prepare(pool, Request((claim(selection=Selection(use_types=("h100",))),)))
    assert wanted is not None
    assert wanted.scores(slice(0, 1)).tolist() == [NEVER]
    pool.insert([one("b", model="NVIDIA-H100")])
    assert wanted.scores(slice(0, 2)).tolist() == [NEVER, 0]


def test_cards_of_other_vendors_on_the_node_do_not_count() -> None:
    mixed = node("a", device(0, id="a-0", family="metax", mib=64_000), device(1, id="a-1", mib=8_000))
    assert named(cluster(mixed), Request((claim(8_000),))) == ["a"]
    assert named(cluster(mixed), Request((claim(8_001),))) == []


@pytest.mark.parametrize(
    ("resources", "fitting"),
    [
        ((("cpu", 1_000),), ["a", "c"]),
        ((("cpu", 1_001),), ["c"]),
        ((("memory", 5),), ["a", "b", "c"]),
        ((("example.com/fpga", 1),), ["b"]),
        ((("ephemeral-storage", 1),), ["a", "b", "c"]),
        ((("cpu", 500), ("example.com/fpga", 1)), ["b"]),
    ],
)
def test_plain_resources_are_heeded_where_a_node_mentions_them(
    resources: tuple[tuple[str, int], ...], fitting: list[str]
) -> None:
    snapshot = cluster(
        replace(one("a"), allocatable={"cpu": 1_000}),
        replace(one("b"), allocatable={"cpu": 500, "example.com/fpga": 1}),
        one("c"),
    )
    request = Request((claim(),), Needs(resources=resources))
    assert named(snapshot, request) == fitting
    compare(snapshot, request, exactly=True)


def test_who_asks_for_no_cpu_does_not_mind_that_none_is_left() -> None:
    snapshot = cluster(replace(one("a"), allocatable={"cpu": 1_000}))
    snapshot.restore("default/p", placed("a"), (("cpu", 2_000),))
    assert named(snapshot, Request((claim(),))) == ["a"]
    assert named(snapshot, Request((claim(),), Needs(resources=(("cpu", 1),)))) == []


TAINT = Taint(key="gpu", effect="NoSchedule")
NODES = (
    one("a"),
    replace(one("b"), taints=(TAINT,)),
    replace(one("c"), ready=False),
    replace(one("d"), labels={"zone": "x", ISOLATION: "other"}),
    replace(one("e"), offers=frozenset()),
    replace(one("f"), unschedulable=True),
)


@pytest.mark.parametrize(
    ("needs", "fitting"),
    [
        (Needs(), ["a", "d"]),
        (Needs(tolerations=(Toleration(key="gpu", operator="Exists"),)), ["a", "b", "d"]),
        (Needs(tolerations=(Toleration(operator="Exists"),)), ["a", "b", "d", "f"]),
        (Needs(selector=(("zone", "x"),)), ["d"]),
        (Needs(terms=(((Expression(key="zone", operator="DoesNotExist"),), ()),)), ["a"]),
        (Needs(unsupported=("host ports",)), []),
    ],
)
def test_a_nodes_own_terms_are_heeded(needs: Needs, fitting: list[str]) -> None:
    assert named(cluster(*NODES), Request((claim(),), needs)) == fitting
    compare(cluster(*NODES), Request((claim(),), needs), exactly=True)


def test_claims_of_one_dialect_with_other_isolation_are_told_apart() -> None:
    snapshot = cluster(*NODES)
    assert named(snapshot, Request((claim(),))) == ["a", "d"]
    assert named(snapshot, Request((claim(rules=KoordinatorRules("hami-core")),))) == ["a"]
    assert named(snapshot, Request((claim(rules=KoordinatorRules("other")),))) == ["a", "d"]
    assert named(snapshot, Request((claim(dialect="volcano-share"),))) == []


def test_a_pool_where_nobody_speaks_the_dialect_learns_it() -> None:
    (pool,) = cluster(replace(one("a"), offers=frozenset())).pools
    evaluator = prepare(pool, Request((claim(),)))
    assert evaluator is not None
    at = np.zeros(1, np.intp)
    assert evaluator.scores(at).tolist() == [NEVER]
    pool.replace(0, one("a"))
    assert evaluator.scores(at).tolist() == [0]
    pool.replace(0, replace(one("a"), offers=frozenset()))
    assert evaluator.scores(at).tolist() == [NEVER]


def test_only_the_nodes_asked_about_are_scored() -> None:
    snapshot = cluster(one("a"), one("b"), one("c"))
    snapshot.restore("default/p", placed("c", share("c-0", 16_000)))
    snapshot.restore("default/q", placed("b", share("b-0", 8_000)))
    evaluator = prepare(snapshot.pools[0], Request((claim(8_000),)))
    assert evaluator is not None
    found = evaluator.scores(np.array([2, 1], np.intp)).tolist()
    assert found == [NEVER, use(snapshot.cards("b"))]


def together(mib: int, container: int, cores: int = 0, role: Role = Role.APP, **wishes: Any) -> Claim:
    return claim(mib, container=container, cores=cores, role=role, together=True, **wishes)


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ((together(8_000, 0), together(8_000, 1)), True),
        ((together(8_000, 0), together(8_001, 1)), False),
        ((together(16_000, 0, role=Role.INIT), together(16_000, 1)), True),
        ((together(8_000, 0, role=Role.SIDECAR), together(8_001, 1, role=Role.INIT)), False),
        ((together(1, 0, 60), together(1, 1, 41)), False),
        ((together(1, 0, 60), together(1, 1, 40)), True),
        ((together(0, 0, memory_percent=50), together(0, 1, memory_percent=50)), True),
        ((together(8_000, 0), together(9_000, 1, dialect="volcano-share")), True),
    ],
)
def test_containers_that_stay_together_need_one_card_for_all(claims: tuple[Claim, ...], fits: bool) -> None:
    home = replace(one("a", 2), offers=frozenset({"hami-nvidia", "volcano-share"}))
    snapshot = cluster(home)
    assert named(snapshot, Request(claims)) == (["a"] if fits else [])
    compare(snapshot, Request(claims), exactly=True)


def test_each_percentage_of_containers_that_stay_together_must_be_free() -> None:
    snapshot = cluster(one("a"))
    snapshot.restore("default/p", placed("a", share("a-0", 8_000)))
    small, large = together(0, 0, memory_percent=10), together(0, 1, memory_percent=60)
    assert named(snapshot, Request((small, replace(large, memory_percent=50)))) == ["a"]
    assert named(snapshot, Request((small, large))) == []


def test_containers_that_together_take_all_cores_may_join_others() -> None:
    """None of them wants a card alone."""
    snapshot = cluster(one("a"))
    snapshot.restore("default/p", placed("a", share("a-0", 1, 0)))
    assert named(snapshot, Request((together(1, 0, 60), together(1, 1, 40)))) == ["a"]


def test_online_pods_need_no_cores() -> None:
    metax = frozenset({"metax"})
    snapshot = cluster(one("a", family="metax"))
    snapshot.restore("default/p", Placement("a", (grant(share("a-0", 1, 100), tag=("", "online")),)))
    online = claim(families=metax, rules=Shared(None, "online"))
    assert named(snapshot, Request((replace(online, rules=Shared("x")),))) == []
    assert named(snapshot, Request((online,))) == ["a"]


def test_a_node_that_the_rules_refuse_has_no_score_where_scores_need_the_very_cards() -> None:
    """The columns see room; that the tenant is of another class only the card tells."""
    snapshot = cluster(one("a", family="metax"), one("b", family="metax"))
    snapshot.restore("default/p", placed("a", share("a-0", 1, 1)))
    online = claim(families=frozenset({"metax"}), rules=Shared(None, "online"), policy=CardPolicy(pick=Pick.RULES))
    assert named(snapshot, Request((online,))) == ["b"]
