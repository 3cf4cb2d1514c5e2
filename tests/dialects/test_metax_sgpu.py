"""Pods and nodes of HAMi's documents for shared MetaX cards, and the cases of its own test tables."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Ask, Injection, Sighting, Source, hami
from subak.dialects.amounts import asked
from subak.dialects.config import Metax
from subak.dialects.metax_rules import Shared
from subak.dialects.metax_sgpu import (
    ALLOCATED,
    APP_CLASS,
    PREDICATE_TIME,
    QOS,
    QOS_POLICIES,
    REGISTER,
    TO_ALLOCATE,
    TOPOLOGY_AWARE,
    VENDOR_ALLOCATED,
    MetaxSgpu,
    registered,
    topology_aware,
)
from subak.dialects.stock import one_stock
from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import Claim, Pick

GIB = 1024 * MIB
SGPU = MetaxSgpu(Metax())
DOCUMENT = """
apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod1
spec:
  containers:
    - name: ubuntu-container
      image: ubuntu:22.04
      imagePullPolicy: IfNotPresent
      command: ["sleep","infinity"]
      resources:
        limits:
          metax-tech.com/sgpu: 1 # requesting 1 GPU
          metax-tech.com/vcore: 60 # each GPU use 60% of total compute cores
          metax-tech.com/vmemory: 4 # each GPU require 4 GiB device memory
"""
CARD = {
    "uuid": "GPU-123",
    "model": "sgpu",
    "totalDevCount": 16,
    "totalCompute": 100,
    "bdf": "0000:44:00.0",
    "totalVRam": 32768,
    "numa": 1,
    "healthy": True,
    "qosPolicy": "fixed-share",
}


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> manifest.Pod:
    """A pod whose containers have these limits, by the last part of the resource's name."""
    return msgspec.convert(
        {
            "metadata": {"name": "p", "annotations": annotations or {}},
            "spec": {
                "containers": [
                    {
                        "name": f"c{i}",
                        "resources": {"limits": {f"metax-tech.com/{name}": text for name, text in limits.items()}},
                    }
                    for i, limits in enumerate(containers)
                ],
                **spec,
            },
        },
        manifest.Pod,
    )


def only_claim(pod: manifest.Pod) -> Claim:
    (claim,) = SGPU.ask(pod).claims
    return claim


def node_object(register: object, **allocatable: str) -> manifest.Node:
    text = register if isinstance(register, str) else json.dumps(register)
    return msgspec.convert(
        {
            "metadata": {"name": "n1", "annotations": {REGISTER: text}},
            "status": {"allocatable": {f"metax-tech.com/{name}": text for name, text in allocatable.items()}},
        },
        manifest.Node,
    )


def test_the_documents_pod_asks_for_60_percent_of_the_cores_and_4_gib_of_one_card() -> None:
    claim = only_claim(msgspec.convert(yaml.safe_load(DOCUMENT), manifest.Pod))
    assert (claim.count, claim.cores, claim.memory_bytes, claim.memory_percent) == (1, 60, 4 * GIB, 0)
    assert claim.families == {"metax"}
    assert (claim.rules, claim.policy.pick) == (Shared("best-effort"), Pick.IN_ORDER)


@pytest.mark.parametrize(
    ("limits", "mib", "percent", "cores"),
    [
        ({"sgpu": "1"}, 0, 100, 100),
        ({"sgpu": "1", "vmemory": "16"}, 16384, 0, 100),
        ({"sgpu": "1", "vcore": "60", "vmemory": "1024Mi"}, 1024, 0, 60),
        ({"sgpu": "1", "vcore": "60", "vmemory": "1Gi"}, 1024, 0, 60),
        ({"sgpu": "1", "vmemory": "16G"}, 15258, 0, 100),
        ({"sgpu": "1", "vmemory": "16e9"}, 15258, 0, 100),
        ({"sgpu": "1", "vmemory": 4}, 4096, 0, 100),
        ({"sgpu": "1", "vmemory": "0"}, 0, 100, 100),
        ({"sgpu": "1", "vcore": "0"}, 0, 100, 0),
    ],
)
def test_amounts_mean_what_they_mean_in_hami(limits: dict[str, Any], mib: int, percent: int, cores: int) -> None:
    assert SGPU.amounts(asked(pod(limits))[0]) == {
        "count": 1,
        "memory_bytes": mib * MIB,
        "percent": percent,
        "cores": cores,
    }


@pytest.mark.parametrize("text", ["1000", "1k", "1e3", 1000])
def test_a_thousand_gib_stay_that_much_however_the_api_server_writes_them(text: str | int) -> None:
    assert only_claim(pod({"sgpu": "1", "vmemory": text})).memory_bytes == 1000 * GIB


@pytest.mark.parametrize("text", ["2100001", "2100001k", "4Pi", "100Ki", "1M", "0.5", "500m", "-1", "much"])
def test_memory_that_cannot_be_meant_is_refused_and_never_becomes_the_whole_card(text: str) -> None:
    with pytest.raises(Refusal, match="vmemory") as refusal:
        SGPU.admit(pod({"sgpu": "1", "vmemory": text}))
    assert refusal.value.field == "spec.containers[0].resources.limits[metax-tech.com/vmemory]"
    assert refusal.value.value == text


def test_amounts_may_stand_in_requests_alone() -> None:
    container = {"name": "c", "resources": {"requests": {"metax-tech.com/sgpu": "1", "metax-tech.com/vmemory": "2"}}}
    asking = msgspec.convert({"spec": {"containers": [container]}}, manifest.Pod)
    assert only_claim(asking).memory_bytes == 2 * GIB


def test_more_than_100_percent_of_the_cores_is_refused() -> None:
    with pytest.raises(Refusal, match="metax-tech.com/vcore is 160, but a card has 100: give at most 100"):
        SGPU.admit(pod({"sgpu": "1", "vcore": "160"}))
    # Admitted by others it fits nowhere, as in HAMi.
    assert SGPU.ask(pod({"sgpu": "1", "vcore": "160"})).claims[0].cores == 160


@pytest.mark.parametrize("part", [{"vcore": "60"}, {"vmemory": "2048Mi"}])
def test_a_part_of_no_card_is_refused(part: dict[str, str]) -> None:
    with pytest.raises(
        Refusal, match="metax-tech.com/sgpu is 0 although a part of a card is asked for: give 1 or more"
    ):
        SGPU.admit(pod({"sgpu": "0", **part}))


@pytest.mark.parametrize("part", ["vcore", "vmemory"])
def test_a_part_without_a_number_of_cards_is_refused_with_the_remedy(part: str) -> None:
    with pytest.raises(Refusal, match=f"{part} asks for a part .* add metax-tech.com/sgpu: 1"):
        SGPU.admit(pod({part: "10"}))


def test_no_cards_at_all_are_no_claim() -> None:
    asking = pod({"sgpu": "0"}, annotations={QOS: "whatever"})
    assert SGPU.speaks(asking)
    assert SGPU.admit(asking).annotations == {}
    assert SGPU.ask(asking).claims == ()
    assert not SGPU.speaks(pod({"gpu": "1"}))


def test_admission_fills_in_the_default_qos_policy_and_nothing_else() -> None:
    patch = SGPU.admit(pod({"sgpu": "1"}))
    assert (patch.annotations, patch.limits, patch.env) == ({QOS: "best-effort"}, {}, {})
    assert SGPU.admit(pod({"sgpu": "1"}, annotations={QOS: "burst-share"})).annotations == {}


@pytest.mark.parametrize(
    ("count", "annotations", "message"),
    [
        (
            "1",
            {QOS: "best-effortx"},
            "metax-tech.com/sgpu-qos-policy must be set one of [best-effort, fixed-share, burst-share]",
        ),
        ("2", {APP_CLASS: "online"}, "app-class pod must request single device"),
        ("1", {APP_CLASS: "oNLine"}, "metax-tech.com/sgpu-app-class must be set one of [online, offline]"),
    ],
)
def test_admission_refuses_in_hamis_words(count: str, annotations: dict[str, str], message: str) -> None:
    for step in (SGPU.admit, SGPU.ask):
        with pytest.raises(Refusal) as refusal:
            step(pod({"sgpu": count}, annotations=annotations))
        assert refusal.value.message == message


def test_the_qos_policy_of_an_online_pod_is_neither_checked_nor_filled_in() -> None:
    for more in ({}, {QOS: "best-effortx"}):
        asking = pod({"sgpu": "1", "vmemory": "4"}, annotations={APP_CLASS: "online", **more})
        assert SGPU.admit(asking).annotations == {}
        claim = only_claim(asking)
        assert (claim.rules, claim.cores, claim.policy.pick) == (Shared(None, "online"), 0, Pick.RULES)


def test_an_unknown_policy_word_is_refused() -> None:
    with pytest.raises(Refusal, match="'tight' is no policy"):
        SGPU.admit(pod({"sgpu": "1"}, annotations={hami.NODE_POLICY: "tight"}))


@pytest.mark.parametrize(
    ("vcore", "app_class", "zones"),
    [("100", None, True), ("99", None, False), ("100", "offline", False)],
)
def test_link_zones_choose_the_cards_that_are_taken_whole(vcore: str, app_class: str | None, zones: bool) -> None:
    annotations = {hami.CARD_POLICY: "topology-aware", **({APP_CLASS: app_class} if app_class else {})}
    claim = only_claim(pod({"sgpu": "1", "vcore": vcore}, annotations=annotations))
    assert claim.rules == Shared("best-effort", app_class or "", zones)
    assert claim.policy.pick == (Pick.RULES if zones else Pick.IN_ORDER)


def test_a_user_may_name_and_exclude_cards() -> None:
    lists = {"metax-tech.com/use-gpuuuid": "GPU-1, GPU-2", "metax-tech.com/nouse-gpuuuid": "GPU-2"}
    selection = only_claim(pod({"sgpu": "1"}, annotations=lists)).selection
    assert [id for id in ("GPU-1", "GPU-2", "GPU-3") if selection.admits_id(id)] == ["GPU-1"]


@pytest.mark.parametrize(
    ("wish", "default", "cores", "expected"),
    [
        ("true", False, [99, 100], True),
        ("true", False, [99], False),
        ("false", True, [100], False),
        (None, True, [100], True),
        (None, False, [100], False),
        ("perhaps", True, [100], True),
    ],
)
def test_link_zones_decide_between_nodes_where_wished_and_a_card_is_taken_whole(
    wish: str | None, default: bool, cores: list[int], expected: bool
) -> None:
    assert topology_aware(wish, default, cores) is expected


def test_the_wish_for_topology_comes_from_the_pod_or_else_from_the_configuration() -> None:
    aware = MetaxSgpu(Metax(sgpu_topology_aware=True))
    assert zones_decide(aware.ask(pod({"sgpu": "4"})))
    assert not zones_decide(aware.ask(pod({"sgpu": "4"}, annotations={TOPOLOGY_AWARE: "false"})))
    assert zones_decide(SGPU.ask(pod({"sgpu": "4"}, annotations={TOPOLOGY_AWARE: "true"})))


def zones_decide(ask: Ask) -> bool:
    return ask.claims[0].rules.scores_cards


def test_a_register_lists_cards_in_order() -> None:
    (card,) = registered(json.dumps([CARD]))
    assert card == Sighting(
        "metax",
        0,
        "GPU-123",
        memory_bytes=32768 * MIB,
        cores=100,
        slots=16,
        numa=1,
        mode="sgpu",
        healthy=True,
        qos="fixed-share",
    )
    second = {**CARD, "uuid": "GPU-456", "linkZone": 2}
    assert [(each.index, each.zone or 0) for each in registered(json.dumps([CARD, second]))] == [
        (0, 0),
        (1, 2),
    ]


def test_a_registered_node_offers_its_cards() -> None:
    sight = SGPU.sight(node_object([CARD]), None)
    assert (sight.offered, sight.source, sight.warnings) == (True, Source.REGISTER, ())
    devices, warnings = one_stock("n1", [sight])
    assert warnings == []
    assert devices == (
        Device(
            "GPU-123", 0, "metax", memory_bytes=32 * GIB, slots=16, numa=1, mode="sgpu", qos="fixed-share", cores=100
        ),
    )
    assert SGPU.publish(Node("n1", devices)).allocatable == {"metax-tech.com/sgpu": "16"}
    assert SGPU.publish(Node("n1", (Device("n1-metax-0", 0, "metax", slots=1),))).allocatable == {}


@pytest.mark.parametrize("text", ["", "cards", "{}", '[{"model":"sgpu"}]', '[{"uuid":"G","totalVRam":"much"}]', "null"])
def test_a_malformed_register_becomes_a_warning(text: str) -> None:
    sight = SGPU.sight(node_object(text, sgpu="16"), None)
    assert (sight.offered, sight.sightings) == (True, ())
    (warning,) = sight.warnings
    assert warning.startswith("node n1: annotation metax-tech.com/node-gpu-devices: ")


def test_a_node_without_cards_offers_none() -> None:
    assert not SGPU.sight(node_object([]), None).offered
    assert not SGPU.sight(manifest.Node(), None).offered


def test_the_placement_is_written_for_hami_and_for_the_vendors_plugin() -> None:
    asking = pod({}, {"sgpu": "2", "vcore": "60", "vmemory": "4"}, {"sgpu": "1"}, annotations={APP_CLASS: "offline"})
    online = Share("GPU-3", 2, 8 * GIB, 0)
    placement = Placement(
        "n1",
        (
            Grant(SGPU.name, (1,), Role.APP, (Share("GPU-1", 0, 4 * GIB, 60), Share("GPU-2", 1, 4 * GIB, 60))),
            Grant(SGPU.name, (2,), Role.APP, (online,)),
            Grant("hami-nvidia", (0,), Role.APP, (Share("GPU-N", 0, GIB, 1),)),
        ),
    )
    text = ";GPU-1,Metax-SGPU,4096,60:GPU-2,Metax-SGPU,4096,60:;GPU-3,Metax-SGPU,8192,0:;"
    assert SGPU.write(asking, placement, Node("n1"), 1_700_000_000_123_456_789) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1700000000",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1700000000",
        TO_ALLOCATE: text,
        ALLOCATED: text,
        VENDOR_ALLOCATED: '[[],[{"uuid":"GPU-1","compute":60,"vRam":4096},{"uuid":"GPU-2","compute":60,"vRam":4096}],'
        '[{"uuid":"GPU-3","vRam":8192}]]',
        PREDICATE_TIME: "1700000000123456789",
    }
    assert SGPU.write(asking, placement, Node("n1"), 0).keys() <= SGPU.owned


@given(data=st.data())
def test_what_is_written_is_read_back_the_same(data: st.DataObject) -> None:
    devices = tuple(Device(f"GPU-{i}", i, "metax", memory_bytes=64 * GIB, slots=16) for i in range(4))
    node = Node("n1", devices)
    annotations = data.draw(
        st.sampled_from([{APP_CLASS: "online"}, {APP_CLASS: "offline"}, {}] + [{QOS: word} for word in QOS_POLICIES])
    )
    counts = data.draw(st.lists(st.integers(0, 1 if APP_CLASS in annotations else 4), min_size=1, max_size=4))
    early = data.draw(st.integers(0, len(counts) - 1))
    limits = [{"sgpu": str(count), "vcore": "30", "vmemory": "2048Mi"} if count else {} for count in counts]
    late = pod(*limits[early:], annotations=annotations)
    first = pod(*limits[:early]).spec.containers
    asking = msgspec.structs.replace(late, spec=msgspec.structs.replace(late.spec, init_containers=first))
    grants = tuple(
        Grant(
            SGPU.name,
            claim.containers,
            claim.role,
            tuple(Share(each.id, each.index, claim.memory_on(each), claim.cores) for each in devices[: claim.count]),
            claim.rules.tag,
        )
        for claim in SGPU.ask(asking).claims
    )
    written = {**asking.annotations, **SGPU.write(asking, Placement("n1", grants), node, 1)}
    bound = msgspec.structs.replace(asking, metadata=msgspec.structs.replace(asking.metadata, annotations=written))
    assert SGPU.read(bound, node) == grants


def test_a_malformed_allocation_is_an_error() -> None:
    with pytest.raises(ValueError, match="need UUID,Type,MiB,Cores"):
        SGPU.read(pod({"sgpu": "1"}, annotations={ALLOCATED: "GPU-1,Metax-SGPU:;"}), Node("n1"))


def test_a_pod_that_was_not_placed_by_hami_holds_nothing_in_this_dialect() -> None:
    for limits in ({"sgpu": "1"}, {"vcore": "10"}, {"sgpu": "1", "vmemory": "100Ki"}):
        assert SGPU.read(pod(limits), Node("n1")) == ()


def test_the_vendors_plugin_does_the_rest_under_hamis_lock() -> None:
    grant = Grant(SGPU.name, (0,), Role.APP, (Share("GPU-1", 0, GIB, 10),))
    assert SGPU.inject(pod({"sgpu": "1"}), grant, 0, Node("n1")) == Injection()
    assert SGPU.agent.lock == "hami.io/mutex.lock"
