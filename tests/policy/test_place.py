"""The two sacred properties, and that the fast way decides as the slow one does."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import MigInstance, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import Request
from subak.policy.explain import explain
from subak.policy.on_node import on_node
from subak.policy.place import place
from subak.snapshot.cluster import Overcommitted, Snapshot
from tests.policy.reference import Reference
from tests.support.fuzz import examples
from tests.support.world import INTERPRETER, KINDS, ON_NVIDIA, make, node, pods, register

THOROUGH = examples(quick=20, ci=250)

clusters = st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=5)


def admitted(pod: manifest.Pod, name: str) -> tuple[manifest.Pod, Request] | None:
    """The pod under another name and what it asks for; None if it is refused at admission."""
    named = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name))
    try:
        complete = INTERPRETER.admit(named)
        return complete, INTERPRETER.request(complete)
    except Refusal:
        return None


def bound(pod: manifest.Pod, placement: Placement, node: Node) -> manifest.Pod:
    """The pod as the API server shows it after binding."""
    written = INTERPRETER.annotations(pod, placement, node, 1_700_000_000_000_000_000)
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **written})
    return msgspec.structs.replace(
        pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=placement.node)
    )


def ledger(snapshot: Snapshot) -> dict[str, object]:
    """Everything that the ledger holds, comparable."""
    return {
        pool.nodes[at].name: (
            pool.state[..., at].tolist(),
            pool.taken[:, at].tolist(),
            pool.usage[at].item(),
            pool.plain[:, at].tolist(),
            pool.resources[at],
            [{key: msgspec.structs.astuple(charge) for key, charge in held.items()} for held in pool.tenants[at]],
        )
        for pool in snapshot.pools
        for at in pool
    }


def assert_sound(reference: Reference) -> None:
    """No card carries more than it has, by the reference's own count."""
    for name in reference.nodes:
        for card in reference.cards(name):
            assert card.slots <= card.device.slots
            assert card.memory <= card.device.memory_bytes
            assert card.cores <= card.device.cores
            places = [place for each in card.instances for place in range(each.start, each.start + each.size)]
            assert len(places) == len(set(places))


@THOROUGH
@given(kinds=clusters, stream=st.lists(st.tuples(pods(), st.integers(0, 9)), max_size=14))
def test_fast_decides_as_slow_does_and_no_card_is_overcommitted(
    kinds: list[int], stream: list[tuple[manifest.Pod, int]]
) -> None:
    decided_alike({f"node-{i}": make(kind, f"node-{i}") for i, kind in enumerate(kinds)}, stream)


@THOROUGH
@given(cards=st.integers(1, 2), stream=st.lists(st.tuples(pods(ON_NVIDIA), st.integers(0, 9)), min_size=4, max_size=14))
def test_three_systems_share_few_cards_as_each_of_them_would(
    cards: int, stream: list[tuple[manifest.Pod, int]]
) -> None:
    """So few that slots, cores and memory run out in every order, and who is alone on a card is put to the test."""
    node = make(0, "node-0")
    decided_alike({"node-0": replace(node, devices=node.devices[:cards])}, stream)


def decided_alike(nodes: dict[str, Node], stream: list[tuple[manifest.Pod, int]]) -> None:
    """Pods come and go; fast and slow agree on each, and at the end the ledger is as empty as at the start."""
    snapshot, reference = Snapshot(nodes.values()), Reference(nodes)
    untouched = ledger(snapshot)
    running: dict[str, manifest.Pod] = {}
    for number, (pod, leaving) in enumerate(stream):
        if leaving < 2 and running:  # now and then a pod ends
            gone = sorted(running)[leaving % len(running)]
            snapshot.forget(gone)
            del reference.pods[gone], running[gone]
        ready = admitted(pod, f"pod-{number}")
        if ready is None:
            continue
        complete, request = ready
        fast, slow = place(snapshot, request), reference.place(request)
        assert fast == slow
        if fast is None:
            assert not explain(snapshot, request).fitting
            continue
        snapshot.assume(complete.key, fast, request.needs.resources)
        reference.pods[complete.key] = (fast, request.needs.resources)
        running[complete.key] = bound(complete, fast, nodes[fast.node])
        assert INTERPRETER.placement(running[complete.key], nodes[fast.node]) == fast
        assert_sound(reference)
    restarted = Snapshot(nodes.values())
    for key, pod in running.items():
        held = INTERPRETER.placement(pod, nodes[pod.spec.node_name])
        restarted.restore(key, held, INTERPRETER.request(pod).needs.resources)
    assert ledger(restarted) == ledger(snapshot)
    for key in running:
        snapshot.forget(key)
    assert ledger(snapshot) == untouched


@THOROUGH
@given(kinds=clusters, stream=st.lists(st.tuples(pods(), st.integers(0, 5)), max_size=10), data=st.data())
def test_changes_of_nodes_are_seen_at_once(
    kinds: list[int], stream: list[tuple[manifest.Pod, int]], data: st.DataObject
) -> None:
    nodes = {f"node-{i}": make(kind, f"node-{i}") for i, kind in enumerate(kinds)}
    snapshot, reference = Snapshot(nodes.values()), Reference(dict(nodes))
    for number, (pod, event) in enumerate(stream):
        name = data.draw(st.sampled_from(sorted(nodes)))
        if event == 0:
            snapshot.remove(name)
            reference.nodes.pop(name, None)
        elif event == 1:
            broken = data.draw(st.integers(0, len(nodes[name].devices) - 1))
            devices = tuple(
                msgspec.structs.replace(each, healthy=i != broken) for i, each in enumerate(nodes[name].devices)
            )
            changed = replace(nodes[name], devices=devices, unschedulable=data.draw(st.booleans()))
            snapshot.put([changed])
            reference.nodes[name] = changed
        elif event == 3:
            silent = {dialect: "agent dead" for dialect in nodes[name].offers if data.draw(st.booleans())}
            changed = replace(nodes[name], dead=silent)
            snapshot.put([changed])
            reference.nodes[name] = changed
        elif event == 2:
            snapshot.put([nodes[name]])
            reference.nodes[name] = nodes[name]
        ready = admitted(pod, f"pod-{number}")
        if ready is None:
            continue
        complete, request = ready
        fast = place(snapshot, request)
        assert fast == reference.place(request)
        if fast is not None:
            snapshot.assume(complete.key, fast, request.needs.resources)
            reference.pods[complete.key] = (fast, request.needs.resources)


def test_what_a_card_does_not_have_cannot_be_assumed() -> None:
    snapshot = Snapshot([make(0, "node-0")])
    _, request = admitted_pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9000})
    first = place(snapshot, request)
    assert first is not None
    snapshot.assume("default/a", first)
    before = ledger(snapshot)
    with pytest.raises(Overcommitted, match="default/b takes"):
        snapshot.assume("default/b", first)
    with pytest.raises(Overcommitted, match="already holds"):
        snapshot.assume("default/a", first)
    nowhere = msgspec.structs.replace(first.grants[0], shares=(Share("GPU-x", 0, 1, 1),))
    with pytest.raises(Overcommitted, match="GPU-x"):
        snapshot.assume("default/c", Placement("node-0", (nowhere,)))
    assert ledger(snapshot) == before


def test_a_pod_told_twice_is_one_pod() -> None:
    snapshot = Snapshot([make(0, "node-0")])
    _, request = admitted_pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9000})
    placement = place(snapshot, request)
    assert placement is not None
    snapshot.restore("default/a", placement)
    once = ledger(snapshot)
    snapshot.restore("default/a", placement)
    assert ledger(snapshot) == once


def test_a_node_that_comes_back_still_carries_its_pods() -> None:
    snapshot = Snapshot([make(0, "node-0"), make(0, "node-1")])
    _, request = admitted_pod({"nvidia.com/gpu": 4})
    placement = place(snapshot, request)
    assert placement is not None
    snapshot.assume("default/a", placement)
    full = ledger(snapshot)
    snapshot.remove(placement.node)
    assert placement.node not in ledger(snapshot)
    snapshot.put([make(0, placement.node)])
    assert ledger(snapshot) == full


def test_a_pod_finds_the_first_node_that_has_its_card() -> None:
    """A shape that no node could take is not struck out for good."""
    content = {
        "metadata": {"name": "pod", "annotations": {"nvidia.com/use-gputype": "T4"}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    request = INTERPRETER.request(INTERPRETER.admit(msgspec.convert(content, manifest.Pod)))
    snapshot = Snapshot([make(0, "node-0")])  # four cards, none of them a T4
    assert place(snapshot, request) is None
    snapshot.put([make(1, "node-1")])
    found = place(snapshot, request)
    assert found is not None
    assert found.node == "node-1"


def test_hamis_example_of_dynamic_mig_gets_two_instances_of_one_card() -> None:
    """As `dynamic_mig_example.yaml` says of an A100 with 40 GB; what is written reads back as the same."""
    profiles = [
        {"name": "1g.5gb", "memoryMB": 4864, "core": 14, "placements": [{"start": s, "size": 1} for s in range(7)]},
        {"name": "2g.10gb", "memoryMB": 9856, "core": 28, "placements": [{"start": s, "size": 2} for s in (0, 2, 4)]},
    ]
    cards = register("node-0", [40_960], mode="mig", migProfiles=profiles, count=10)
    home = node("node-0", {"nvidia.com/gpu": 10}, {"hami.io/node-nvidia-register": cards})
    content = {
        "metadata": {
            "name": "gpu-pod",
            "annotations": {"nvidia.com/vgpu-mode": "mig", "hami.io/gpu-scheduler-policy": "binpack"},
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 8000}}}]
        },
    }
    complete = INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
    request = INTERPRETER.request(complete)
    snapshot = Snapshot([home])
    placement = place(snapshot, request)
    assert placement is not None
    (grant,) = placement.grants
    assert [(share.id, share.mig) for share in grant.shares] == [
        ("GPU-node-0-0", MigInstance("2g.10gb", 0, 2)),
        ("GPU-node-0-0", MigInstance("2g.10gb", 2, 2)),
    ]
    running = bound(complete, placement, home)
    assert running.annotations["hami.io/vgpu-devices-allocated"] == "GPU-node-0-0,NVIDIA,9856,28:" * 2 + ";"
    assert INTERPRETER.placement(running, home) == placement
    snapshot.assume("default/a", placement)
    assert place(snapshot, request) is None, "one place is left, two are asked for"
    assert "at most 1 card fits, 2 asked" in str(explain(snapshot, request))


def test_equal_nodes_are_taken_by_name() -> None:
    snapshot = Snapshot([make(2, f"node-{i}") for i in (3, 1, 2)])
    _, request = admitted_pod({"volcano.sh/gpu-memory": 100})
    found = place(snapshot, request)
    assert found is not None
    assert found.node == "node-1"
    snapshot.put([make(2, "node-0")])
    again = place(snapshot, request)
    assert again is not None
    assert again.node == "node-0"


def test_containers_that_fit_only_together_are_placed_together() -> None:
    """The small container would take the only card that the large one fits on, were the pod placed greedily."""
    content = {
        "metadata": {"name": "pod", "annotations": {"hami.io/gpu-scheduler-policy": "spread"}},
        "spec": {
            "containers": [
                {"name": "small", "resources": {"limits": {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 8000}}},
                {"name": "large", "resources": {"limits": {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 20000}}},
            ]
        },
    }
    complete = INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
    node = make(1, "node-0")  # two cards of 8,000 and two of 24,000 MiB
    snapshot = Snapshot([node])
    found = on_node(node, snapshot.cards("node-0"), INTERPRETER.request(complete))
    assert isinstance(found, tuple)
    assert [sorted(share.index for share in grant.shares) for grant in found] == [[0, 1], [2, 3]]


def admitted_pod(limits: dict[str, object]) -> tuple[manifest.Pod, Request]:
    content = {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    ready = admitted(msgspec.convert(content, manifest.Pod), "pod")
    assert ready is not None
    return ready


def taken_by(snapshot: Snapshot, key: str, limits: dict[str, object]) -> str | None:
    """The card that a pod gets and keeps; None if it waits."""
    _, request = admitted_pod(limits)
    found = place(snapshot, request)
    assert (found is None) == (not explain(snapshot, request).fitting)
    if found is None:
        return None
    snapshot.assume(key, found)
    return found.grants[0].shares[0].id


@pytest.mark.parametrize(
    "limits",
    [
        {"volcano.sh/gpu-memory": 100},
        {"koordinator.sh/gpu-memory": "100Mi"},
        {"koordinator.sh/gpu-memory-ratio": 1},
    ],
)
def test_who_counts_no_slots_takes_none_and_needs_none(limits: dict[str, object]) -> None:
    """Four slots a card are HAMi's: forty small pods of the others share one, and HAMi's pods still find theirs."""
    node = make(0, "node-0")
    snapshot = Snapshot([replace(node, devices=node.devices[:1])])
    for number in range(20):
        assert taken_by(snapshot, f"default/first-{number}", limits) is not None
    for number in range(4):
        assert taken_by(snapshot, f"default/hami-{number}", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}) is not None
    assert taken_by(snapshot, "default/hami-4", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}) is None
    for number in range(20):
        assert taken_by(snapshot, f"default/second-{number}", limits) is not None
    (card,) = snapshot.cards("node-0")
    assert (card.used, card.slots_used) == (44, 4)


HALF: dict[str, object] = {"koordinator.sh/gpu-memory-ratio": 50}
HALF_WITH_ALL_CORES: dict[str, object] = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 50}
ALONE: dict[str, object] = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 100}
A_GIB: dict[str, object] = {"volcano.sh/gpu-memory": 1024}


def one_card() -> Snapshot:
    """A node with a single card that HAMi, Volcano and Koordinator share."""
    node = make(0, "node-0")
    return Snapshot([replace(node, devices=node.devices[:1])])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (HALF, HALF_WITH_ALL_CORES),
        (HALF_WITH_ALL_CORES, HALF),
        (HALF_WITH_ALL_CORES, A_GIB),
        (A_GIB, HALF_WITH_ALL_CORES),
    ],
)
def test_all_cores_are_only_an_amount_where_they_do_not_mean_the_card_alone(
    first: dict[str, object], second: dict[str, object]
) -> None:
    snapshot = one_card()
    assert taken_by(snapshot, "default/a", first) == taken_by(snapshot, "default/b", second) == "GPU-node-0-0"


@pytest.mark.parametrize("other", [HALF, A_GIB])
def test_who_asked_hami_for_all_cores_is_alone_whoever_comes_or_was_there(other: dict[str, object]) -> None:
    snapshot = one_card()
    assert taken_by(snapshot, "default/a", ALONE) is not None
    assert taken_by(snapshot, "default/b", other) is None
    snapshot = one_card()
    assert taken_by(snapshot, "default/a", other) is not None
    assert taken_by(snapshot, "default/b", ALONE) is None


def test_cores_that_are_all_promised_keep_only_those_off_who_count_them() -> None:
    """Two of HAMi's pods have half of the cores each: HAMi lets nobody else in, the others look at memory."""
    snapshot = one_card()
    for key in ("default/a", "default/b"):
        assert taken_by(snapshot, key, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100, "nvidia.com/gpucores": 50})
    assert taken_by(snapshot, "default/c", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}) is None
    assert taken_by(snapshot, "default/d", {**HALF, "koordinator.sh/gpu-core": 1}) is None
    assert taken_by(snapshot, "default/e", HALF) is not None
    assert taken_by(snapshot, "default/f", A_GIB) is not None


def test_koordinators_pods_on_metax_cards_take_the_sub_devices_that_there_are() -> None:
    kinds = (make(kind, "node-0") for kind in range(KINDS))
    node = next(each for each in kinds if {"koordinator", "hami-metax-sgpu"} <= each.offers)
    snapshot = Snapshot([replace(node, devices=node.devices[:1])])
    limits: dict[str, object] = {"koordinator.sh/gpu-memory": "100Mi", "metax-tech.com/sgpu": 1}
    for number in range(4):
        assert taken_by(snapshot, f"default/p{number}", limits) is not None
    assert taken_by(snapshot, "default/p4", limits) is None
    assert taken_by(snapshot, "default/p5", {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 10}) is None
