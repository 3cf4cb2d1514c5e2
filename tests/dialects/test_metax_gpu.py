"""Pods and nodes of HAMi's document for whole MetaX cards."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Injection, Source
from subak.dialects.config import Metax
from subak.dialects.metax_gpu import ALLOCATED, TO_ALLOCATE, MetaxGpu, Wires, wired
from subak.dialects.metax_links import LOSSES, SCORES
from subak.dialects.metax_rules import Whole
from subak.dialects.metax_sgpu import REGISTER, MetaxSgpu
from subak.dialects.stock import one_stock
from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import SPREAD, Pick, Selection

GPU = MetaxGpu(Metax())
COUNT = "metax-tech.com/gpu"
TOPOLOGY = "metax-tech.com/gpu.topology"
# As in the document, save that its annotation line is no valid YAML.
DOCUMENT = """
apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod1
  annotations:
    hami.io/node-scheduler-policy: "spread" # the scheduler will try to find the best topology for this task.
spec:
  containers:
    - name: ubuntu-container
      image: cr.metax-tech.com/public-ai-release/c500/colossalai:2.24.0.5-py38-ubuntu20.04-amd64
      imagePullPolicy: IfNotPresent
      command: ["sleep","infinity"]
      resources:
        limits:
          metax-tech.com/gpu: 1 # requesting 1 vGPUs
"""
TWO_GROUPS = {1: {0, 1, 2, 3}, 2: {4, 5, 6, 7}}


def pod(*counts: object, init: tuple[object, ...] = (), **annotations: str) -> manifest.Pod:
    def containers(counts: tuple[object, ...], prefix: str) -> list[dict[str, Any]]:
        return [
            {"name": f"{prefix}{i}", "resources": {"limits": {} if count is None else {COUNT: count}}}
            for i, count in enumerate(counts)
        ]

    return msgspec.convert(
        {
            "metadata": {"name": "p", "annotations": annotations},
            "spec": {"containers": containers(counts, "c"), "initContainers": containers(init, "i")},
        },
        manifest.Pod,
    )


def node_object(capacity: object, allocatable: object = None, **annotations: str) -> manifest.Node:
    return msgspec.convert(
        {
            "metadata": {"name": "test", "annotations": annotations},
            "status": {
                "capacity": {COUNT: capacity},
                "allocatable": {COUNT: capacity if allocatable is None else allocatable},
            },
        },
        manifest.Node,
    )


def with_zones(zones: object, capacity: str = "8") -> manifest.Node:
    return node_object(capacity, **{f"{TOPOLOGY}.zones": zones if isinstance(zones, str) else json.dumps(zones)})


def test_the_documents_pod_asks_for_one_whole_card_chosen_by_its_links() -> None:
    asking = msgspec.convert(yaml.safe_load(DOCUMENT), manifest.Pod)
    assert GPU.speaks(asking)
    assert GPU.admit(asking).annotations == {}
    ask = GPU.ask(asking)
    (claim,) = ask.claims
    assert (claim.count, claim.memory_percent, claim.cores, claim.idle) == (1, 100, 100, True)
    assert (claim.policy.pick, claim.rules, ask.node_policy) == (Pick.RULES, Whole(), SPREAD)
    assert claim.selection == Selection()


def test_each_container_may_ask_for_cards_of_its_own() -> None:
    ask = GPU.ask(pod("2", None, "1", "0"))
    assert [(claim.containers, claim.count) for claim in ask.claims] == [((0,), 2), ((2,), 1)]


@pytest.mark.parametrize("count", ["0.5", "500m", 1.5, "-1", "one"])
def test_a_part_of_a_card_is_refused_with_the_way_to_share_one(count: object) -> None:
    with pytest.raises(Refusal, match="to share a card, ask for metax-tech.com/sgpu") as refusal:
        GPU.admit(pod(count))
    assert refusal.value.field == "spec.containers[0].resources.limits[metax-tech.com/gpu]"


def test_cards_come_from_the_capacity() -> None:
    sight = GPU.sight(node_object("1"), None)
    assert (sight.offered, sight.source, sight.tables, sight.warnings) == (True, Source.CAPACITY, {}, ())
    devices, warnings = one_stock("test", [sight])
    assert devices == (Device("test-metax-0", 0, "metax", memory_bytes=65536 * MIB, cores=100, slots=1),)
    assert warnings == []
    assert GPU.publish(Node("test", devices)).allocatable == {COUNT: "1"}


def test_a_node_without_metax_cards_offers_none() -> None:
    sight = GPU.sight(manifest.Node(), None)
    assert (sight.offered, sight.sightings, sight.tables) == (False, (), {})
    assert GPU.publish(Node("n")).allocatable == {}


def test_as_many_cards_are_healthy_as_are_allocatable() -> None:
    devices, _ = one_stock("test", [GPU.sight(node_object("4", "3"), None)])
    assert [each.healthy for each in devices] == [True, True, True, False]


def test_a_node_switched_to_sharing_keeps_its_cards_healthy_but_offers_no_whole_ones() -> None:
    cards = [{"uuid": f"GPU-{i}", "totalVRam": 65536, "totalDevCount": 16, "healthy": True} for i in range(2)]
    node = node_object("2", "0", **{REGISTER: json.dumps(cards)})
    sight = GPU.sight(node, None)
    devices, warnings = one_stock("test", [MetaxSgpu(Metax()).sight(node, None), sight])
    assert not sight.offered
    assert [(each.id, each.slots, each.healthy) for each in devices] == [("GPU-0", 16, True), ("GPU-1", 16, True)]
    assert warnings == []


def group(number: int, **cards: object) -> dict[str, object]:
    return {"name": f"gpu-group-{number}", "type": "DirectLink", "topologyLinkWeight": 60, **cards}


def resource(count: str) -> dict[str, str]:
    return {"name": COUNT, "capacity": count, "allocatable": count, "available": "0"}


@pytest.mark.parametrize(
    "zones",
    [
        [group(0, capacity=[0, 1, 2, 3], available=[3]), group(1, capacity=[4, 5, 6, 7])],
        [group(0, capacity=["0", "1", "2", "3"]), group(1, allocatable=["4", "5", "6", "7"])],
        {"zones": [group(0, capacity=["GPU-a", "GPU-b", "GPU-c", "GPU-d"]), group(1, capacity=[4, 5, 6, 7])]},
        {"zones": [group(0, resources=[resource("4")]), group(1, resources=[resource("4")])]},
        {"gpu-group-0": {"type": "directLink", "capacity": 4}, "gpu-group-1": {"type": "DirectLink", "capacity": "4"}},
    ],
)
def test_cards_of_one_direct_link_group_are_in_one_zone(zones: object) -> None:
    sight = GPU.sight(with_zones(zones), None)
    assert sight.warnings == ()
    found: dict[int, set[int | None]] = {}
    for each in sight.sightings:
        found.setdefault(each.zone or 0, set()).add(each.index)
    assert found == TWO_GROUPS


def test_groups_behind_one_pcie_switch_are_told_apart_from_linked_ones() -> None:
    text = json.dumps(
        [
            {"name": "switch-0", "type": "PCIeSwitch", "capacity": 4},
            group(0, capacity=[0, 1]),
            {"name": "socket-0", "type": "Numa", "capacity": 4},
        ]
    )
    assert wired(text, COUNT) == {
        0: Wires(zone=1, pcie="switch-0"),
        1: Wires(zone=1, pcie="switch-0"),
        2: Wires(pcie="switch-0"),
        3: Wires(pcie="switch-0"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "zones",
        "4",
        "[1]",
        '{"zones":4}',
        '{"a":4}',
        '[{"type":"DirectLink"}]',
        '[{"type":"DirectLink","capacity":"x"}]',
    ],
)
def test_malformed_zones_become_a_warning(text: str) -> None:
    sight = GPU.sight(with_zones(text), None)
    assert len(sight.sightings) == 8
    assert all(each.zone is None for each in sight.sightings)
    (warning,) = sight.warnings
    assert warning.startswith("node test: annotation metax-tech.com/gpu.topology.zones: ")


def test_a_zone_of_cards_that_the_node_does_not_have_becomes_a_warning() -> None:
    sight = GPU.sight(with_zones([group(0, capacity=[1, 2])], capacity="2"), None)
    assert [each.zone for each in sight.sightings] == [None, 1]
    (warning,) = sight.warnings
    assert "speaks of card 2, but the node has 2 cards" in warning


def test_the_vendors_tables_are_kept() -> None:
    tables = {f"{TOPOLOGY}.scores": '{"1":0,"2":110}', f"{TOPOLOGY}.losses": '{"1":370,"2":520}'}
    sight = GPU.sight(node_object("2", **tables), None)
    assert sight.tables == {SCORES: {1: 0, 2: 110}, LOSSES: {1: 370, 2: 520}}


@pytest.mark.parametrize("text", ["", "cpu:123,gpu:321", "[]", '{"one":1}', '{"1":"much"}'])
def test_malformed_tables_become_warnings(text: str) -> None:
    sight = GPU.sight(node_object("2", **{f"{TOPOLOGY}.scores": text, f"{TOPOLOGY}.losses": '{"1":5}'}), None)
    assert sight.tables == {LOSSES: {1: 5}}
    (warning,) = sight.warnings
    assert warning.startswith("node test: annotation metax-tech.com/gpu.topology.scores: ")


def test_the_placement_is_written_as_hami_writes_it() -> None:
    shares = tuple(Share(f"node1-metax-{i}", i, 65536 * MIB, 100) for i in (6, 7))
    placement = Placement("node1", (Grant(GPU.name, (0,), Role.APP, shares),))
    text = "node1-metax-6,Metax-GPU,65536,100:node1-metax-7,Metax-GPU,65536,100:;"
    written = GPU.write(pod("2"), placement, Node("node1"), 1_700_000_000_123_456_789)
    assert (written[TO_ALLOCATE], written[ALLOCATED], written["hami.io/vgpu-time"]) == (text, text, "1700000000")
    assert written.keys() <= GPU.owned


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=3), init=st.lists(st.integers(0, 3), max_size=2))
def test_what_is_written_is_read_back_the_same(counts: list[int], init: list[int]) -> None:
    node = Node("n", tuple(Device(f"n-metax-{i}", i, "metax", memory_bytes=65536 * MIB, slots=1) for i in range(9)))
    asking = pod(*map(str, counts), init=tuple(map(str, init)))
    free = iter(node.devices * 2)
    grants = tuple(
        Grant(
            GPU.name,
            claim.containers,
            claim.role,
            tuple(Share((card := next(free)).id, card.index, card.memory_bytes, 100) for _ in range(claim.count)),
        )
        for claim in GPU.ask(asking).claims
    )
    written = GPU.write(asking, Placement("n", grants), node, 1)
    bound = pod(*map(str, counts), init=tuple(map(str, init)), **written)
    assert GPU.read(bound, node) == grants


def test_the_vendors_plugin_does_the_rest() -> None:
    assert GPU.inject(pod("1"), Grant(GPU.name, (0,), Role.APP, ()), 0, Node("n")) == Injection()
    assert (GPU.agent.lock, GPU.agent.handshake) == ("", "")
