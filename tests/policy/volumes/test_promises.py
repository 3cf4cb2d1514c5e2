"""What decided pods are promised is not promised twice, and is free again when they give their place back."""

from __future__ import annotations

from subak.model.volume import Assignment
from tests.policy.volumes.world import World, pod
from tests.support.volumes import LOCAL, claim, persistent_volume


def two_claims() -> World:
    """Two claims, and one local volume on a1."""
    return World(claim("one", class_name=LOCAL), claim("two", class_name=LOCAL), persistent_volume("pv", host="a1"))


def test_a_volume_is_promised_once() -> None:
    world = two_claims()
    assert world.place("first", "one") == ("a1", (Assignment("default/one", "uid-one", "pv"),))
    assert world.fits("two") == set()
    world.leave("first")
    assert world.fits("two") == {"a1"}
    assert not len(world.volumes.promises)


def test_pods_that_share_a_claim_are_promised_the_same_volume() -> None:
    world = two_claims()
    world.see(persistent_volume("a-smaller-name", host="a2"))
    first = world.place("first", "one")
    assert world.place("second", "one") == first
    world.leave("first")
    assert world.fits("one") == {first[0] if first else ""}, "the other is still promised it"


def test_pods_that_share_a_claim_go_to_the_node_for_which_it_is_provisioned() -> None:
    world = World(claim("data"))
    placed = world.place("first", "data")
    assert placed == ("a1", (Assignment("default/data", "uid-data"),))
    assert world.fits("data") == {"a1"}
    world.leave("first")
    assert world.fits("data") == {"a1", "a2", "b1"}


def test_a_bound_claim_ends_the_promise() -> None:
    world = two_claims()
    world.place("first", "one")
    world.see(persistent_volume("pv", host="a1", claim="one"), claim("one", class_name=LOCAL, volume="pv"))
    assert not len(world.volumes.promises)
    assert world.fits("one") == {"a1"}
    assert world.fits("two") == set()


def test_another_claim_of_the_same_name_is_promised_nothing() -> None:
    world = two_claims()
    world.place("first", "one")
    world.see(claim("one", class_name=LOCAL, metadata={"uid": "new"}))
    assert world.fits("one") == set()


def test_a_rolled_back_decision_promises_nothing() -> None:
    world = two_claims()
    with world.snapshot.transaction():
        assert world.place("first", "one") is not None
        assert world.fits("two") == set()
    assert world.fits("two") == {"a1"}


def test_a_bound_pod_is_promised_nothing() -> None:
    world = two_claims()
    world.run("first", "a1", "one")
    assert world.fits("two") == {"a1"}
    assert world.volumes.promises.of(pod("first").key) == ()
