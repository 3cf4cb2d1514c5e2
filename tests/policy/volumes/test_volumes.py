"""Whatever comes and goes in whatever order, what is kept by events equals what a fresh look finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from subak.model.placement import Placement
from subak.model.volume import HOSTNAME
from subak.policy.volumes.storage import of_claim, of_class
from subak.snapshot.watcher import Change
from tests.policy.volumes.world import World, node, pod
from tests.support.volumes import (
    LOCAL,
    WAITING,
    Json,
    attachment,
    capacity,
    claim,
    csi,
    csi_node,
    driver,
    persistent_volume,
    read,
)

NODES = ("a1", "a2", "b1")
CLAIMS = ("one", "two", "three")
nodes, claims = st.sampled_from(NODES), st.sampled_from(CLAIMS)
volume_names = st.sampled_from(["pv1", "pv2", "pv3"])
sizes = st.sampled_from(["1Gi", "2Gi"])
class_names = st.sampled_from([LOCAL, WAITING])
modes = st.sampled_from([["ReadWriteOnce"], ["ReadWriteOncePod"]])

STORED = st.one_of(
    st.builds(claim, claims, sizes, class_names, modes=modes),
    st.builds(claim, claims, sizes, class_names, modes=modes, volume=volume_names),
    st.builds(claim, claims, sizes, class_names, node=nodes),
    st.builds(persistent_volume, volume_names, sizes, class_names, host=nodes),
    st.builds(persistent_volume, volume_names, sizes, class_names, claim=claims),
    st.builds(persistent_volume, volume_names, sizes, class_names, csi=st.builds(csi, volume_names), claim=claims),
    st.builds(csi_node, nodes, limit=st.integers(0, 2)),
    st.builds(driver, st.booleans()),
    st.builds(capacity, st.sampled_from(["c1", "c2"]), sizes, st.just(WAITING)),
    st.builds(attachment, st.sampled_from(["t1", "t2"]), nodes, volume_names),
)
PODS = st.lists(claims, min_size=1, max_size=2, unique=True)
STEPS = st.one_of(
    st.tuples(st.just("see"), STORED),
    st.tuples(st.just("see"), STORED),
    st.tuples(st.just("lose"), STORED),
    st.tuples(st.just("run"), st.tuples(st.sampled_from("pqr"), nodes, PODS)),
    st.tuples(st.just("place"), st.tuples(st.sampled_from("pqr"), PODS)),
    st.tuples(st.just("place"), st.tuples(st.sampled_from("pqr"), PODS)),
    st.tuples(st.just("leave"), st.sampled_from("pqr")),
    st.tuples(st.just("node"), st.tuples(nodes, nodes)),
)


def name_of(stored: Json) -> tuple[str, str]:
    return stored["kind"], stored["metadata"]["name"]


@given(st.lists(STEPS, min_size=3, max_size=25))
def test_what_events_keep_is_what_a_fresh_look_finds(steps: list[tuple[str, object]]) -> None:
    first = [*(claim(name, class_name=LOCAL) for name in CLAIMS), persistent_volume("pv1", host="a1")]
    world, there = World(*first), {name_of(each): each for each in first}
    for step in steps:
        match step:
            case "see", dict() as stored:
                there[name_of(stored)] = stored
                world.see(stored)
            case "lose", dict() as stored:
                if (known := there.pop(name_of(stored), None)) is not None:
                    world.volumes.lose(read(known))
            case "run", (str() as name, str() as where, list() as wanted):
                world.run(name, where, *wanted)
            case "place", (str() as name, list() as wanted):
                place_once(world, name, wanted)
            case "leave", str() as name:
                world.leave(name)
            case "node", (str() as name, str() as host):
                world.snapshot.put([node(name, **{HOSTNAME: host})])
        for each in CLAIMS:  # what is remembered of now must not be what is said later
            for pool in world.snapshot.pools:
                world.volumes.verdicts(pool, world.request(pod("asked", each)))
    fresh = looked_at_anew(world, there)
    for wanted in (["one"], ["two"], ["three"], ["one", "two"], ["one", "two", "three"]):
        request = world.request(pod("asked", *wanted))
        for pool in world.snapshot.pools:
            kept = world.volumes.verdicts(pool, request)
            for at in pool:
                refusal = fresh.volumes.refuse(pool.nodes[at], request)
                assert world.volumes.refuse(pool.nodes[at], request) == refusal
                assert kept.texts[kept.codes[at]] == refusal


def place_once(world: World, name: str, wanted: list[str]) -> None:
    """Place a pod; what others are promised is not promised to it, unless its user says so in the volume."""
    world.leave(name)
    others = {each for other in "pqr" for each in world.volumes.promises.of(f"default/{other}")}
    world.place(name, *wanted)
    for mine in world.volumes.promises.of(f"default/{name}"):
        if mine.volume and world.volumes.storage.volumes[mine.volume].spec.claim_ref is None:
            assert {each.claim for each in others if each.volume == mine.volume} <= {mine.claim}


def looked_at_anew(world: World, there: dict[tuple[str, str], Json]) -> World:
    """A world that sees all objects at once, the last ones first."""
    fresh = World(*reversed(there.values()))
    fresh.snapshot.put(world.snapshot)
    for key, booking in reversed(world.snapshot.bookings.items()):
        assert booking.pod is not None
        where = booking.placement.node
        claims = [key.partition("/")[2] for key in world.volumes.limits.pods(where)[key].claims]
        fresh.snapshot.restore(key, Placement(where), (), None, pod(booking.pod.name, *claims, node=where))
        fresh.volumes.promises.make(key, where, world.volumes.promises.of(key))
    return fresh


def test_news_reach_only_those_that_they_may_help() -> None:
    world = World(claim("one"), claim("two", class_name=LOCAL))
    news = world.snapshot.changes
    news.clear()
    request = world.request(pod("asked", "two"))
    cures = world.volumes.cured_by(request)
    assert cures == {Change.VOLUME_CHANGED, of_claim("default/two"), of_class(LOCAL)}
    world.see(claim("one", node="a1"), persistent_volume("pv", class_name=WAITING, claim="one"))
    assert cures.isdisjoint(news), "somebody else's claim is on its way"
    world.see(persistent_volume("disk", host="a1"))
    assert not cures.isdisjoint(news)


def test_a_freed_volume_is_news_for_its_class() -> None:
    world = World(claim("one", class_name=LOCAL), claim("two", class_name=LOCAL), persistent_volume("pv", host="a1"))
    world.place("first", "one")
    news = world.snapshot.changes
    news.clear()
    world.leave("first")
    assert of_class(LOCAL) in news
    assert of_claim("default/one") in news
