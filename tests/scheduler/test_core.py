"""Stories of pods and nodes, then the two invariants under random faults."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.card import CardState
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, DeviceSeen, NodeGone, NodeSeen, PodSeen, QuotasSeen, Report, Warn
from subak.scheduler.record import State
from subak.scheduler.waiting import FIRST_PAUSE
from tests.support.fuzz import histories
from tests.support.scheduler import Cluster, pod, volcano_node

MEMORY = "volcano.sh/gpu-memory"


@pytest.fixture
def cluster() -> Cluster:
    """One node with one card of 1,000 MiB."""
    made = Cluster()
    made.add_node(volcano_node("n1"))
    return made


def test_a_pod_is_bound_with_node_and_annotations_at_once(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.see()
    (bind,) = cluster.cycle()
    assert isinstance(bind, Bind)
    assert (bind.key, bind.uid, bind.node) == ("default/a", "uid-a", "n1")
    assert bind.annotations["volcano.sh/gpu-index"] == "0"


def test_two_pods_share_one_card_and_the_third_is_told_why_it_waits(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        cluster.create(pod(name, {MEMORY: 400}))
    cluster.settle()
    assert cluster.placed() == {"a": "n1", "b": "n1"}
    assert "largest free slice 200 MiB, 400 MiB asked" in cluster.reports["default/c"]


def test_what_is_freed_goes_to_who_waits_at_once(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 700}))
    cluster.settle()
    cluster.create(pod("b", {MEMORY: 700}))
    cluster.settle()
    cluster.finish("default/a")
    cluster.see()
    (bind,) = [each for each in cluster.cycle() if isinstance(each, Bind)]
    assert bind.key == "default/b"


def test_the_more_important_pod_comes_first_then_the_older(cluster: Cluster) -> None:
    for name, priority in (("old", 0), ("young", 0), ("vip", 10)):
        cluster.create(pod(name, {MEMORY: 500}, priority=priority))
    cluster.settle()
    assert set(cluster.placed()) == {"vip", "old"}


def test_waiting_pods_of_one_shape_are_tried_one_after_the_other(cluster: Cluster) -> None:
    cluster.create(pod("big", {MEMORY: 1000}))
    cluster.settle()
    for i in range(5):
        cluster.create(pod(f"p{i}", {MEMORY: 300}))
    cluster.settle()
    cluster.delete("default/big")
    cluster.settle()
    assert sorted(cluster.placed()) == ["p0", "p1", "p2"]


def test_a_refused_binding_gives_the_card_back_and_the_pod_comes_again_later(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 1000}))
    cluster.see()
    (bind,) = cluster.cycle()
    cluster.carry_out(bind, refuse=True)
    assert not cluster.core.snapshot.bookings
    assert cluster.cycle() == []
    wake = cluster.core.wakes_at()
    assert wake == pytest.approx(cluster.now + FIRST_PAUSE)
    cluster.settle()
    assert cluster.placed() == {"a": "n1"}


def test_a_pod_on_its_way_is_not_decided_twice(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.see()
    (bind,) = cluster.cycle()
    cluster.core.handle(PodSeen(cluster.pods["default/a"]))  # old news: not bound yet
    assert cluster.cycle() == []
    cluster.carry_out(bind)
    cluster.core.handle(PodSeen(pod("a", {MEMORY: 600})))  # older still
    cluster.settle()
    assert cluster.bindings == {"uid-a": ["n1"]}


def test_a_new_pod_of_the_same_name_is_another_pod(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.settle()
    cluster.pods.clear()
    cluster.create(pod("a", {MEMORY: 900}, uid="second"))
    cluster.settle()
    assert cluster.bindings == {"uid-a": ["n1"], "second": ["n1"]}
    (booking,) = cluster.core.snapshot.bookings.values()
    assert booking.placement.grants[0].shares[0].memory_bytes == 900 << 20


def test_news_about_the_status_disturb_nothing(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.create(pod("b", {MEMORY: 600}))
    cluster.settle()
    log = len(cluster.core.snapshot.pools[0].log)
    for name in ("a", "b"):
        known = cluster.pods[f"default/{name}"]
        cluster.core.handle(PodSeen(msgspec.structs.replace(known, status=manifest.PodStatus(phase="Running"))))
    cluster.core.handle(NodeSeen(cluster.nodes["n1"]))
    assert cluster.cycle() == []
    assert len(cluster.core.snapshot.pools[0].log) == log


def test_a_larger_node_takes_who_waited(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 5000}))
    cluster.settle()
    assert cluster.placed() == {}
    cluster.add_node(volcano_node("n2", mib=8000))
    cluster.settle()
    assert cluster.placed() == {"a": "n2"}


def test_a_pod_waits_while_it_has_gates_and_goes_when_they_are_gone(cluster: Cluster) -> None:
    gated = pod("a", {MEMORY: 100}, schedulingGates=[{"name": "quota"}])
    cluster.create(gated)
    cluster.settle()
    assert cluster.placed() == {}
    assert cluster.reports == {}
    cluster.create(pod("a", {MEMORY: 100}))
    cluster.settle()
    assert cluster.placed() == {"a": "n1"}


def test_a_pod_that_cannot_mean_anything_is_told_so_and_does_not_stop_others(cluster: Cluster) -> None:
    cluster.create(pod("bad", {MEMORY: "1.5"}))
    cluster.create(pod("good", {MEMORY: 10}))
    cluster.settle()
    assert "not a whole number" in cluster.reports["default/bad"]
    assert cluster.placed() == {"good": "n1"}


def test_pods_of_other_schedulers_are_counted_but_not_placed() -> None:
    cluster = Cluster(core=Core(serves=lambda each: each.spec.scheduler_name == "volcano"))
    cluster.add_node(volcano_node("n1"))
    cluster.create(pod("other", {MEMORY: 100}))
    cluster.create(pod("theirs", {MEMORY: 700}, nodeName="n1", metadata={"annotations": {"volcano.sh/gpu-index": "0"}}))
    cluster.create(pod("ours", {MEMORY: 700}, schedulerName="volcano"))
    cluster.settle()
    assert cluster.placed() == {"theirs": "n1"}
    assert "largest free slice 300 MiB" in cluster.reports["default/ours"]


def test_pods_seen_before_their_node_are_counted_when_it_comes() -> None:
    cluster = Cluster()
    record = {"annotations": {"volcano.sh/gpu-index": "0"}}
    cluster.create(pod("early", {MEMORY: 800}, nodeName="n1", metadata=record))
    cluster.create(pod("late", {MEMORY: 300}))
    cluster.settle()
    cluster.add_node(volcano_node("n1"))
    cluster.settle()
    assert cluster.placed() == {"early": "n1"}


def test_a_card_that_gets_its_name_later_still_carries_its_tenants() -> None:
    """The node is first known by Volcano's count, then by HAMi's register: the same card under another id."""
    cluster = Cluster()
    cluster.add_node(volcano_node("n1"))
    cluster.create(pod("a", {MEMORY: 800}))
    cluster.settle()
    register = [{"id": "GPU-1", "count": 10, "devmem": 1000, "devcore": 100, "type": "NVIDIA-T4", "health": True}]
    annotations = {"hami.io/node-nvidia-register": json.dumps(register)}
    named = msgspec.structs.replace(cluster.nodes["n1"], metadata=manifest.Metadata(name="n1", annotations=annotations))
    cluster.add_node(named)
    cluster.create(pod("b", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 300}))
    cluster.settle()
    assert cluster.placed() == {"a": "n1"}
    assert "largest free slice 200 MiB" in cluster.reports["default/b"]


def test_a_card_that_gets_its_name_while_a_binding_is_on_its_way_is_not_given_twice() -> None:
    cluster = Cluster()
    cluster.add_node(volcano_node("n1"))
    cluster.create(pod("a", {MEMORY: 800}))
    cluster.see()
    (bind,) = cluster.cycle()
    register = [{"id": "GPU-1", "count": 10, "devmem": 1000, "devcore": 100, "type": "NVIDIA-T4", "health": True}]
    annotations = {"hami.io/node-nvidia-register": json.dumps(register)}
    named = msgspec.structs.replace(cluster.nodes["n1"], metadata=manifest.Metadata(name="n1", annotations=annotations))
    cluster.add_node(named)
    cluster.see()
    cluster.create(pod("b", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 300}))
    cluster.see()
    assert not [each for each in cluster.cycle() if isinstance(each, Bind)]
    cluster.carry_out(bind)
    cluster.settle()
    assert cluster.placed() == {"a": "n1"}
    (card,) = cards(cluster.core)
    assert (card.device.id, card.memory_free) == ("GPU-1", 200 << 20)


def test_a_pod_that_somebody_else_binds_elsewhere_leaves_its_room_to_others(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 800}))
    cluster.see()
    (bind,) = cluster.cycle()
    cluster.create(pod("b", {MEMORY: 800}))
    cluster.see()
    assert [type(each) for each in cluster.cycle()] == [Report]
    cluster.create(pod("a", {MEMORY: 800}, nodeName="a-node-that-is-not-known-yet"))
    cluster.see()
    cluster.carry_out(bind)  # too late
    cluster.settle()
    assert cluster.placed() == {"a": "a-node-that-is-not-known-yet", "b": "n1"}


def test_two_pods_without_a_record_count_the_same_whichever_comes_first() -> None:
    seen = []
    for order in (("a", "b"), ("b", "a")):
        cluster = Cluster()
        cluster.add_node(volcano_node("n1", cards=2))
        for name in order:
            cluster.create(pod(name, {MEMORY: 900 if name == "a" else 300}, nodeName="n1"))
        cluster.settle()
        seen.append([card.memory_free for card in cards(cluster.core)])
    assert seen == [[-200 << 20] * 2] * 2


def test_a_record_that_appears_late_is_believed(cluster: Cluster) -> None:
    cluster.add_node(volcano_node("n1", cards=2))
    cluster.create(pod("a", {MEMORY: 900}, nodeName="n1"))
    cluster.settle()
    assert [card.memory_free for card in cards(cluster.core)] == [100 << 20] * 2
    cluster.create(pod("b", {MEMORY: 900}))
    cluster.settle()
    assert "b" not in cluster.placed()
    cluster.create(pod("a", {MEMORY: 900}, nodeName="n1", metadata={"annotations": {"volcano.sh/gpu-index": "1"}}))
    cluster.settle()
    assert cluster.placed() == {"a": "n1", "b": "n1"}


def test_a_device_object_and_its_node_may_come_in_any_order() -> None:
    cluster = Cluster()
    content: dict[str, Any] = {
        "metadata": {"name": "n1"},
        "spec": {
            "devices": [
                {
                    **{"type": "gpu", "id": "GPU-1", "minor": 0, "health": True},
                    "resources": {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": "16Gi"},
                }
            ]
        },
    }
    cluster.core.handle(DeviceSeen(msgspec.convert(content, manifest.Device)))
    cluster.create(pod("a", {"koordinator.sh/gpu": 50}))
    cluster.settle()
    assert cluster.placed() == {}
    cluster.add_node(msgspec.convert({"metadata": {"name": "n1"}}, manifest.Node))
    cluster.settle()
    assert cluster.placed() == {"a": "n1"}


def test_a_quota_holds_a_namespace_back_until_it_grows(cluster: Cluster) -> None:
    def quota(limit: int) -> QuotasSeen:
        content = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {f"limits.{MEMORY}": limit}}}
        return QuotasSeen("default", (msgspec.convert(content, manifest.ResourceQuota),))

    cluster.core.handle(quota(500))
    cluster.create(pod("a", {MEMORY: 400}))
    cluster.create(pod("b", {MEMORY: 400}))
    cluster.settle()
    assert cluster.placed() == {"a": "n1"}
    assert "allows 500 MiB, 400 used, 400 asked" in cluster.reports["default/b"]
    cluster.core.handle(quota(900))
    cluster.settle()
    assert sorted(cluster.placed()) == ["a", "b"]


def test_an_unreadable_node_is_told_of_once(cluster: Cluster) -> None:
    annotations = {"hami.io/node-nvidia-register": "nonsense"}
    odd = msgspec.convert({"metadata": {"name": "odd", "annotations": annotations}}, manifest.Node)
    cluster.core.handle(NodeSeen(odd))
    cluster.core.handle(NodeSeen(odd))
    assert len([each for each in cluster.cycle() if isinstance(each, Warn)]) == 1


def test_the_same_reason_is_told_once(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 5000}))
    cluster.see()
    assert [type(each) for each in cluster.cycle()] == [Report]
    cluster.add_node(volcano_node("n2", mib=10))
    cluster.delete("default/a")
    cluster.create(pod("a", {MEMORY: 5000}, uid="again"))
    cluster.see()
    assert [type(each) for each in cluster.cycle()] == [Report]
    cluster.core.handle(NodeGone("n2"))
    assert cluster.cycle() == []


def cards(core: Core) -> list[CardState]:
    return [card for node in core.snapshot for card in core.snapshot.cards(node.name)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "create", "delete", "finish", "see", "cycle", "refuse", "lose", "repeat", "restart"]
        ),
        st.integers(0, 20),
    ),
    max_size=40,
)


@histories()
@given(steps=STEPS)
def test_no_card_is_overcommitted_and_no_pod_lost_or_placed_twice(steps: list[tuple[str, int]]) -> None:
    cluster = Cluster()
    for i in range(2):
        cluster.add_node(volcano_node(f"n{i}", cards=2))
    cluster.see()
    sizes = (100, 250, 400, 1000)
    made = 0
    for step, number in steps:
        keys = sorted(cluster.pods)
        if step == "create":
            made += 1
            limits = {"volcano.sh/gpu-number": 1} if number % 5 == 0 else {MEMORY: sizes[number % 4]}
            fresh = pod(
                f"p{number % 6}-{made}", limits, uid=f"uid-{made}", priority=number % 3, preemptionPolicy="Never"
            )
            cluster.create(fresh)
        elif step in ("delete", "finish") and keys:
            getattr(cluster, step)(keys[number % len(keys)])
        elif step == "see":
            cluster.see(number)
        elif step == "repeat" and keys:  # the watch repeats what it said
            known = cluster.pods[keys[number % len(keys)]]
            if known.spec.node_name or cluster.core.state(known.key) is not State.ASSUMED:
                cluster.core.handle(PodSeen(known))
        elif step == "restart":
            cluster.restart()
            cluster.see()
        elif step in ("cycle", "refuse", "lose"):
            for i, instruction in enumerate(cluster.cycle()):
                if step == "lose" and i == number:  # the core dies before it is carried out
                    cluster.restart()
                    cluster.see()
                    break
                cluster.carry_out(instruction, refuse=step == "refuse" and i % 3 == number % 3)
        for card in cards(cluster.core):
            assert card.memory_free >= 0
            assert card.cores_free >= 0
    cluster.settle()
    assert all(len(nodes) == 1 for nodes in cluster.bindings.values())
    held = {key for key, each in cluster.pods.items() if each.spec.node_name and not each.finished}
    assert set(cluster.core.snapshot.bookings) == held
    waiting = {key for key, each in cluster.pods.items() if not each.spec.node_name and not each.finished}
    assert len(cluster.core) == len(waiting)
    restarted = Core()
    for node in cluster.nodes.values():
        restarted.handle(NodeSeen(node))
    for each in cluster.pods.values():
        if each.spec.node_name:
            restarted.handle(PodSeen(each))
    assert [(c.used, c.memory_free) for c in cards(restarted)] == [(c.used, c.memory_free) for c in cards(cluster.core)]
    for key in waiting:  # whoever waits has reason to: it fits nowhere
        restarted.handle(PodSeen(cluster.pods[key]))
        assert not [each for each in restarted.cycle(0.0) if isinstance(each, Bind)]
