"""Stories of pods that make room for more important ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.model.budget import Budget
from subak.scheduler.messages import Bind, BudgetSeen, Evict, EvictFailed, Instruction, NodeGone, Nominate, PodSeen
from subak.scheduler.record import State
from tests.support.scheduler import Cluster, pod, volcano_node

MEMORY = "volcano.sh/gpu-memory"


@pytest.fixture
def cluster() -> Cluster:
    """One node with two cards of 1,000 MiB."""
    made = Cluster()
    made.add_node(volcano_node("n1", cards=2, mib=1000))
    return made


def add(cluster: Cluster, name: str, mib: int, priority: int = 0, **more: Any) -> None:
    cluster.create(pod(name, {MEMORY: mib}, priority=priority, **more))
    cluster.settle()


def card_of(cluster: Cluster, name: str) -> str:
    return cluster.pods[f"default/{name}"].annotations["volcano.sh/gpu-index"]


def only(kind: type[Any], instructions: list[Instruction]) -> list[Any]:
    return [each for each in instructions if isinstance(each, kind)]


def test_a_less_important_pod_leaves_and_its_card_goes_to_the_more_important_one(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=5)
    add(cluster, "vip", 800, priority=10)
    assert cluster.evictions == ["default/a"]
    assert cluster.pods["default/vip"].status.nominated_node_name == "n1"
    assert cluster.reports["default/vip"] == "waits on node n1 for 1 pod to leave: default/a"
    assert "vip" not in cluster.placed()
    place = card_of(cluster, "a")
    cluster.kubelets()
    cluster.settle()
    assert cluster.placed() == {"b": "n1", "vip": "n1"}
    assert card_of(cluster, "vip") == place


def test_a_victim_says_who_preempted_it(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900)
    cluster.create(pod("vip", {MEMORY: 800}, priority=10))
    cluster.see()
    (evict,) = only(Evict, cluster.cycle())
    assert (evict.event, evict.reason) == ("Preempted", "PreemptionByScheduler")
    assert evict.message == "Preempted by pod uid-vip on node n1"


def test_two_pods_of_one_card_leave_rather_than_a_more_important_one_of_another(cluster: Cluster) -> None:
    for name, mib, priority in (("a", 500, 1), ("b", 500, 1), ("c", 900, 3)):
        add(cluster, name, mib, priority=priority)
    add(cluster, "vip", 600, priority=10)
    assert sorted(cluster.evictions) == ["default/a", "default/b"]


def test_equal_and_lower_priority_evict_nobody(cluster: Cluster) -> None:
    add(cluster, "a", 900, priority=5)
    add(cluster, "b", 900, priority=5)
    add(cluster, "equal", 800, priority=5)
    add(cluster, "lower", 800, priority=4)
    assert not cluster.evictions
    assert "largest free slice 100 MiB" in cluster.reports["default/equal"]


def test_a_pod_that_never_preempts_waits(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900)
    add(cluster, "patient", 800, priority=10, preemptionPolicy="Never")
    assert not cluster.evictions
    add(cluster, "vip", 800, priority=10)
    assert len(cluster.evictions) == 1


def test_nobody_leaves_for_a_pod_that_would_not_fit_even_then(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=20)
    add(cluster, "vip", 1100, priority=10)
    assert not cluster.evictions


def test_pods_of_one_shape_each_make_room_until_there_is_none(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900)
    for name in ("v1", "v2", "v3"):
        add(cluster, name, 800, priority=10)
    assert sorted(cluster.evictions) == ["default/a", "default/b"]
    cluster.kubelets()
    cluster.settle()
    assert cluster.placed() == {"v1": "n1", "v2": "n1"}
    assert cluster.core.state("default/v3") is State.WAITING


def test_what_is_freed_is_kept_from_equal_and_lower_pods(cluster: Cluster) -> None:
    add(cluster, "a", 500)
    add(cluster, "b", 500)
    add(cluster, "c", 1000, priority=20)
    add(cluster, "vip", 1000, priority=10)
    assert len(cluster.evictions) == 2
    cluster.delete("default/a")
    add(cluster, "equal", 400, priority=10)
    add(cluster, "lower", 400)
    assert cluster.placed() == {"b": "n1", "c": "n1"}
    cluster.delete("default/b")
    cluster.settle()
    assert cluster.placed() == {"c": "n1", "vip": "n1"}


def test_a_more_important_pod_takes_what_is_kept(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    add(cluster, "vip", 800, priority=10)
    add(cluster, "king", 800, priority=40)
    assert cluster.evictions == ["default/a"]
    assert cluster.pods["default/king"].status.nominated_node_name == "n1"
    assert not cluster.pods["default/vip"].status.nominated_node_name
    cluster.kubelets()
    cluster.settle()
    assert cluster.placed() == {"b": "n1", "king": "n1"}


def test_a_more_important_pod_that_fits_at_once_is_bound_at_once(cluster: Cluster) -> None:
    add(cluster, "a", 500)
    add(cluster, "b", 500)
    add(cluster, "c", 1000, priority=50)
    add(cluster, "vip", 1000, priority=10)
    cluster.delete("default/a")
    add(cluster, "king", 500, priority=40)
    assert cluster.placed() == {"b": "n1", "c": "n1", "king": "n1"}
    assert not cluster.pods["default/vip"].status.nominated_node_name


def test_a_nominated_pod_goes_elsewhere_if_there_is_room_sooner(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    add(cluster, "vip", 800, priority=10)
    cluster.add_node(volcano_node("n2"))
    cluster.settle()
    assert cluster.placed()["vip"] == "n2"
    cluster.kubelets()
    add(cluster, "c", 900)
    assert cluster.placed()["c"] == "n1"


def test_the_nomination_ends_with_its_node(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900)
    add(cluster, "vip", 800, priority=10)
    cluster.core.handle(NodeGone("n1"))
    instructions = cluster.cycle()
    assert only(Nominate, instructions) == [Nominate("default/vip", "uid-vip", "")]
    assert cluster.core.state("default/vip") is State.WAITING


def test_a_nominated_pod_that_is_deleted_gives_its_place_up(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    add(cluster, "vip", 800, priority=10)
    cluster.delete("default/vip")
    cluster.kubelets()
    add(cluster, "c", 900)
    assert cluster.placed() == {"b": "n1", "c": "n1"}


def test_a_pod_that_others_bind_meanwhile_is_booked_where_it_is(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    add(cluster, "vip", 800, priority=10)
    cluster.add_node(volcano_node("n2", mib=500))
    cluster.settle()
    known = cluster.pods["default/vip"]
    cluster.pods["default/vip"] = msgspec.structs.replace(
        known, spec=msgspec.structs.replace(known.spec, node_name="n2")
    )
    cluster.core.handle(PodSeen(cluster.pods["default/vip"]))
    assert cluster.core.snapshot.bookings["default/vip"].placement.node == "n2"
    cluster.kubelets()
    add(cluster, "c", 900)
    assert cluster.placed()["c"] == "n1"


def test_nobody_is_evicted_twice_by_a_new_scheduler(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900)
    add(cluster, "vip", 800, priority=10)
    assert len(cluster.evictions) == 1
    cluster.restart()
    cluster.settle()
    assert len(cluster.evictions) == 1
    assert cluster.core.state("default/vip") is State.NOMINATED
    add(cluster, "equal", 800, priority=10)
    assert len(cluster.evictions) == 2, "the other card"
    cluster.kubelets()
    cluster.settle()
    assert sorted(cluster.placed()) == ["equal", "vip"]


def test_a_new_scheduler_finishes_an_eviction_that_was_only_marked(cluster: Cluster) -> None:
    add(cluster, "a", 900, metadata={"labels": {"x": "a"}})
    add(cluster, "b", 900)
    cluster.mark("default/b")
    cluster.create(pod("vip", {MEMORY: 800}, priority=10))
    cluster.restart()
    cluster.settle()
    assert cluster.evictions == ["default/b"]


def test_a_new_scheduler_keeps_the_place_before_others_are_decided_on(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    add(cluster, "vip", 800, priority=10)
    cluster.create(pod("a-rival", {MEMORY: 800}, priority=10))
    cluster.delete("default/a")
    cluster.restart()
    cluster.unseen.sort(key=lambda event: isinstance(event, PodSeen) and event.pod.name == "vip")
    cluster.settle()
    assert cluster.placed() == {"b": "n1", "vip": "n1"}


def test_pods_that_leave_anyway_spare_others(cluster: Cluster) -> None:
    add(cluster, "a", 900, priority=5)
    add(cluster, "b", 900, priority=1)
    cluster.terminate("default/a")
    add(cluster, "vip", 800, priority=10)
    assert not cluster.evictions
    assert cluster.reports["default/vip"] == "waits on node n1 for 1 pod to leave: default/a"
    cluster.kubelets()
    cluster.settle()
    assert cluster.placed() == {"b": "n1", "vip": "n1"}


def test_a_victim_that_cannot_be_evicted_is_not_waited_for(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    cluster.create(pod("vip", {MEMORY: 800}, priority=10))
    cluster.see()
    (evict,) = only(Evict, cluster.cycle())
    cluster.core.handle(EvictFailed(evict.key, evict.uid))
    assert only(Nominate, cluster.cycle()) == [Nominate("default/vip", "uid-vip", "")]
    wakes = cluster.core.wakes_at()
    assert wakes is not None
    assert wakes > cluster.now
    cluster.now = wakes
    assert only(Evict, cluster.cycle()), "tried again after the pause"


def test_a_budget_protects_its_pods_as_long_as_others_can_go(cluster: Cluster) -> None:
    content = {
        "metadata": {"name": "two", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.core.handle(BudgetSeen(msgspec.convert(content, Budget)))
    add(cluster, "a", 900, priority=1, metadata={"labels": {"app": "web"}})
    add(cluster, "b", 900, priority=5)
    add(cluster, "vip", 800, priority=10)
    assert cluster.evictions == ["default/b"]
    add(cluster, "second", 800, priority=10)
    assert cluster.evictions == ["default/b", "default/a"]


def test_a_node_that_others_nominated_comes_first(cluster: Cluster) -> None:
    cluster.add_node(volcano_node("n2"))
    cluster.settle()
    add(cluster, "a", 300, status={"nominatedNodeName": "n2"})
    assert cluster.placed() == {"a": "n2"}


def test_room_for_a_waiting_pod_is_sought_again_when_a_more_important_one_leaves(cluster: Cluster) -> None:
    add(cluster, "a", 500)
    add(cluster, "b", 500, priority=50)
    add(cluster, "c", 1000, priority=50)
    add(cluster, "vip", 800, priority=10)
    assert not cluster.evictions
    cluster.delete("default/b")
    cluster.settle()
    assert cluster.evictions == ["default/a"]


def test_a_pod_on_its_way_to_a_node_can_be_a_victim(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.create(pod(name, {MEMORY: 900}))
    cluster.see()
    binds = only(Bind, cluster.cycle())
    cluster.create(pod("vip", {MEMORY: 800}, priority=10))
    cluster.see()
    instructions = cluster.cycle()
    assert len(only(Evict, instructions)) == 1
    for each in (*binds, *instructions):
        cluster.carry_out(each)
    cluster.settle()
    cluster.kubelets()
    cluster.settle()
    assert len(cluster.placed()) == 2
    assert "vip" in cluster.placed()


def test_a_nominated_pod_that_asks_for_something_else_begins_anew(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    add(cluster, "vip", 800, priority=10)
    cluster.create(pod("vip", {MEMORY: 50}, priority=10))
    cluster.settle()
    assert cluster.placed()["vip"] == "n1"
    cluster.kubelets()
    add(cluster, "c", 900)
    assert cluster.placed() == {"b": "n1", "vip": "n1", "c": "n1"}


def test_a_nominated_pod_keeps_its_place_while_its_status_changes(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=50)
    add(cluster, "vip", 800, priority=10)
    for _ in range(3):
        cluster.core.handle(PodSeen(cluster.pods["default/vip"]))
    assert not cluster.cycle()
    assert cluster.core.state("default/vip") is State.NOMINATED
    assert cluster.core.snapshot.bookings["default/vip"].placement.node == "n1"


def test_a_place_that_another_scheduler_promises_is_kept(cluster: Cluster) -> None:
    add(cluster, "a", 900)
    add(cluster, "b", 900, priority=10)
    add(cluster, "waits", 800, priority=10, preemptionPolicy="Never")
    cluster.terminate("default/a")
    cluster.carry_out(Nominate("default/waits", "uid-waits", "n1"))
    cluster.settle()
    assert cluster.core.state("default/waits") is State.NOMINATED
    add(cluster, "rival", 800, priority=10)
    cluster.kubelets()
    cluster.settle()
    assert cluster.placed() == {"b": "n1", "waits": "n1"}
