"""Koordinator's finer requests, through admission, ledger, placement and record: hints, virtual functions, partitions,
joint allocation, templates.  No function is given twice, no device carries more than it has, and every promise holds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.config import Config
from subak.dialects.interpreter import Interpreter
from subak.dialects.koordinator_names import ALLOCATED, HINT, JOINT, MODEL, PARTITION, PARTITION_POLICY, PARTITIONS
from subak.dialects.koordinator_names import VENDOR as VENDOR_LABEL
from subak.dialects.koordinator_rules import KoordinatorRules
from subak.model import manifest
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Function, Grant, Placement, Share
from subak.model.reason import Refusal
from subak.policy.explain import explain
from subak.policy.place import place
from subak.snapshot.cluster import Overcommitted, Snapshot
from tests.dialects.koordinator_manifests import SHORT, annotated, full, gpu, pod, reread, seen
from tests.support.fuzz import examples

SPEAKS = Interpreter()
NOW = 1_700_000_000_000_000_000


def nic(minor: int, root: str = "", vfs: int = 0, kind: str = "rdma", **labels: str) -> dict[str, Any]:
    """An RDMA or FPGA device with so many virtual functions; every other one is of the other group."""
    bus = f"0000:{minor + (16 if kind == 'fpga' else 0):02x}:00"
    functions = [{"minor": i, "busID": f"{bus}.{i + 2}"} for i in range(vfs)]
    groups = [{"labels": {"speed": "fast" if odd else "slow"}, "vfs": functions[odd::2]} for odd in (0, 1)]
    return {
        **{"type": kind, "id": f"{bus}.0", "minor": minor, "health": True, "resources": full(f"{kind}=100")},
        **{"labels": labels, "vfGroups": [group for group in groups if group["vfs"]]},
        **({"topology": {"nodeID": 0, "pcieID": root}} if root else {}),
    }


def at(root: int | str, numa: int = 0) -> dict[str, Any]:
    return {"topology": {"nodeID": numa, "pcieID": str(root)}}


def ascend(minor: int) -> dict[str, Any]:
    return {**gpu(minor), "resources": full("ncore=8 ncpu=7 ndvpp=100 ratio=100 mem=24Gi")}


def node(
    *devices: Mapping[str, Any],
    name: str = "n1",
    labels: Mapping[str, str] | None = None,
    table: Mapping[str, Any] | None = None,
) -> Node:
    """A node whose Device object lists these devices and has these labels and this table."""
    annotations = {} if table is None else {PARTITIONS: json.dumps(table)}
    content = {"metadata": {"name": name, "labels": labels or {}, "annotations": annotations}}
    described = msgspec.convert({**content, "spec": {"devices": list(devices)}}, manifest.Device)
    digest, warnings = SPEAKS.node(seen(name=name), described)
    assert not warnings
    return digest


def asking(request: str, hint: Any = None, joint: Any = None, partition: Any = None) -> manifest.Pod:
    wanted = {HINT: hint, JOINT: joint, PARTITION: partition}
    annotations = {key: json.dumps(value) for key, value in wanted.items() if value is not None}
    return SPEAKS.admit(pod(request, annotations=annotations))


def put(snapshot: Snapshot, asked: manifest.Pod, key: str) -> Placement:
    """Place a pod and book it; its record reads back as what it is."""
    placement = place(snapshot, SPEAKS.request(asked))
    assert placement is not None
    snapshot.assume(key, placement)
    assert reading(asked, placement, snapshot) == placement
    return placement


def reading(asked: manifest.Pod, placement: Placement, snapshot: Snapshot) -> Placement:
    """What a restarted controller reads of the pod."""
    home = snapshot.node(placement.node)
    assert home is not None
    return SPEAKS.placement(annotated(asked, SPEAKS.annotations(asked, placement, home, NOW)), home)


def minors(placement: Placement, grant: int = 0) -> list[int]:
    return [share.index for share in placement.grants[grant].shares]


def both(placement: Placement) -> tuple[list[int], list[int]]:
    """The GPUs and the network cards."""
    return minors(placement, 0), minors(placement, 1)


def functions(placement: Placement, grant: int = 0) -> list[str]:
    return [each.bus for share in placement.grants[grant].shares for each in share.functions]


def why(snapshot: Snapshot, asked: manifest.Pod) -> str:
    request = SPEAKS.request(asked)
    assert place(snapshot, request) is None
    return str(explain(snapshot, request))


# Virtual functions


def test_each_pod_gets_the_lowest_function_that_is_free() -> None:
    snapshot = Snapshot([node(nic(1, vfs=2))])
    wanted = asking("rdma=1", {"rdma": {"vfSelector": {}}})
    assert functions(put(snapshot, wanted, "a")) == ["0000:01:00.2"]
    assert functions(put(snapshot, wanted, "b")) == ["0000:01:00.3"]
    assert "no virtual function free on 1 of 1 cards (CardVirtualFunctionsExhausted)" in why(snapshot, wanted)
    snapshot.forget("a")
    assert functions(put(snapshot, wanted, "c")) == ["0000:01:00.2"]


def test_a_selector_chooses_the_group_of_functions() -> None:
    snapshot = Snapshot([node(nic(1, vfs=4))])
    wanted = asking("rdma=1", {"rdma": {"vfSelector": {"matchLabels": {"speed": "fast"}}}})
    assert functions(put(snapshot, wanted, "a")) == ["0000:01:00.3"]
    assert functions(put(snapshot, wanted, "b")) == ["0000:01:00.5"]


def test_without_a_selector_no_function_is_taken() -> None:
    assert functions(put(Snapshot([node(nic(1, vfs=2))]), asking("rdma=1", {"rdma": {}}), "a")) == []


def test_the_ledger_refuses_a_function_that_is_taken() -> None:
    snapshot = Snapshot([node(nic(1, vfs=2))])
    taken = Share("0000:01:00.0", 1, 0, 1, functions=(Function("0000:01:00.2"),))
    placement = Placement("n1", (Grant("koordinator", (0,), manifest.Role.APP, (taken,)),))
    snapshot.assume("a", placement)
    with pytest.raises(Overcommitted, match="virtual function 0000:01:00.2 of card 0000:01:00.0 is not free"):
        snapshot.assume("b", placement)


def test_a_function_without_a_number_is_read_with_the_number_0() -> None:
    vfs = [{"busID": "a"}, {"minor": -1, "busID": "b"}]
    record = {"rdma": [{"minor": 1, "resources": full("rdma=1"), "extension": {"vfs": vfs}}]}
    held = SPEAKS.placement(annotated(pod("rdma=1"), {ALLOCATED: json.dumps(record)}), node(nic(1)))
    assert held.grants[0].shares[0].functions == (Function("a", 0), Function("b", -1))


def test_the_device_object_is_written_as_it_was_read() -> None:
    table = {"2": [{"minors": [0, 1], "gpuLinkType": "NVLink", "ringBusBandwidth": "200Gi", "allocationScore": 3}]}
    known = node(gpu(0), gpu(1), nic(1, "0", 5, kind="rdma"), labels={PARTITION_POLICY: "Honor"}, table=table)
    again, warnings = SPEAKS.node(seen(name="n1"), reread(known))
    assert not warnings
    assert [each.functions for each in again.devices] == [each.functions for each in known.devices]
    assert [each.partitions for each in again.devices] == [each.partitions for each in known.devices]


# How many devices, and which


def test_every_device_that_matches_is_taken_or_none() -> None:
    wanted = asking("rdma=60", {"rdma": {"allocateStrategy": "ApplyForAll"}})
    snapshot = Snapshot([node(nic(1), nic(2), nic(3))])
    assert minors(put(snapshot, wanted, "a")) == [1, 2, 3]
    assert place(snapshot, SPEAKS.request(wanted)) is None
    broken = Snapshot([node(nic(1), {**nic(2), "health": False})])
    assert place(broken, SPEAKS.request(wanted)) is None, "a broken device is not passed over"


def test_an_amount_above_one_device_says_the_number_itself() -> None:
    for strategy in ("ApplyForAll", "RequestsAsCount"):
        snapshot = Snapshot([node(nic(1), nic(2), nic(3))])
        placement = put(snapshot, asking("rdma=200", {"rdma": {"allocateStrategy": strategy}}), "a")
        assert [(share.index, share.cores) for share in placement.grants[0].shares] == [(1, 100), (2, 100)]


def test_devices_of_other_pods_are_not_shared_at_device_level() -> None:
    snapshot = Snapshot([node(nic(1), nic(2), nic(3))])
    put(snapshot, asking("rdma=1"), "a")
    level = {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"}}
    assert minors(put(snapshot, asking("rdma=2", level), "b")) == [2, 3]
    assert place(snapshot, SPEAKS.request(asking("rdma=1", level))) is None


def test_a_selector_chooses_gpus_by_their_labels() -> None:
    snapshot = Snapshot([node({**gpu(0), "labels": {"pool": "a"}}, {**gpu(1), "labels": {"pool": "b"}}, gpu(2))])
    assert minors(put(snapshot, asking("gpu=100", {"gpu": {"selector": {"matchLabels": {"pool": "b"}}}}), "a")) == [1]
    lines = [{"key": "pool", "operator": "NotIn", "values": ["a"]}]
    assert minors(put(snapshot, asking("gpu=100", {"gpu": {"selector": {"matchExpressions": lines}}}), "b")) == [2]
    assert "(CardTypeMismatch)" in why(
        snapshot, asking("gpu=50", {"gpu": {"selector": {"matchLabels": {"pool": "c"}}}})
    )


# Joint allocation


TOGETHER = {"deviceTypes": ["gpu", "rdma"]}
SAME = {**TOGETHER, "requiredScope": "SamePCIe"}


def two_roots(vfs: Sequence[int] = (2, 2)) -> Node:
    cards = [{**gpu(i), **at(i // 2)} for i in range(4)]
    return node(*cards, nic(1, "0", vfs[0]), nic(2, "1", vfs[1]))


def test_a_network_card_is_chosen_beside_the_gpu() -> None:
    snapshot = Snapshot([two_roots()])
    put(snapshot, asking("gpu=200"), "whole root")
    assert minors(put(snapshot, asking("gpu=100 rdma=1", joint=TOGETHER), "a"), 1) == [2]
    assert minors(put(snapshot, asking("rdma=1"), "b"), 0) == [1], "on its own, the least used one"


def test_gpus_move_to_a_root_that_has_a_network_card_left() -> None:
    snapshot = Snapshot([two_roots((1, 1))])
    wanted = asking("gpu=100 rdma=1", {"rdma": {"vfSelector": {}}}, SAME)
    assert both(put(snapshot, wanted, "a")) == ([0], [1])
    assert both(put(snapshot, wanted, "b")) == ([2], [2]), "card 1 has no function left beside it"
    assert "all together do not (CardPcieRootMismatch)" in why(
        Snapshot([node({**gpu(0), **at(0)}, nic(1, "1", 1))]), wanted
    )


def test_a_scope_and_the_same_root_hold_together() -> None:
    snapshot = Snapshot([two_roots((0, 1))])
    hint = {"gpu": {"requiredTopologyScope": "PCIe"}, "rdma": {"vfSelector": {}}}
    assert both(put(snapshot, asking("gpu=200 rdma=1", hint, SAME), "a")) == ([2, 3], [2])


def test_an_unknown_root_is_not_the_same_root() -> None:
    snapshot = Snapshot([node(gpu(0), nic(1))])
    assert place(snapshot, SPEAKS.request(asking("gpu=100 rdma=1", joint=SAME))) is None
    assert minors(put(snapshot, asking("gpu=100 rdma=1", joint=TOGETHER), "a"), 1) == [1]


def test_kinds_that_are_not_asked_for_or_taken_everywhere_do_not_count() -> None:
    snapshot = Snapshot([two_roots()])
    assert len(put(snapshot, asking("gpu=100", joint=SAME), "a").grants) == 1
    everywhere = asking("gpu=100 rdma=1", {"rdma": {"allocateStrategy": "ApplyForAll"}}, SAME)
    assert minors(put(snapshot, everywhere, "b"), 1) == [1, 2]


def test_gpus_are_not_put_beside_others() -> None:
    snapshot = Snapshot([two_roots()])
    placement = put(snapshot, asking("gpu=100 rdma=1", joint={"deviceTypes": ["rdma", "gpu"]}), "a")
    assert both(placement) == ([0], [1])


# Partitions


PAIRS = {"2": [{"minors": [0, 1], "allocationScore": 1}, {"minors": [2, 3], "allocationScore": 1}]}


def test_a_table_that_is_honoured_leaves_no_other_choice() -> None:
    snapshot = Snapshot([node(*(gpu(i) for i in range(4)), labels={PARTITION_POLICY: "Honor"}, table=PAIRS)])
    put(snapshot, asking("core=10 ratio=10"), "part of card 0")
    assert "CardPartitionMissing" in why(snapshot, asking("gpu=100"))
    assert minors(put(snapshot, asking("gpu=200"), "a")) == [2, 3]


def test_cards_that_are_free_but_make_no_free_partition_are_told_so() -> None:
    cards = [{**gpu(i), "labels": {"card": str(i)}} for i in range(4)]
    snapshot = Snapshot([node(*cards, labels={PARTITION_POLICY: "Honor"}, table=PAIRS)])
    for card in ("0", "2"):
        put(snapshot, asking("core=10 ratio=10", {"gpu": {"selector": {"matchLabels": {"card": card}}}}), card)
    assert "no partition wholly free, 2 cards asked (CardPartitionNotFree)" in why(snapshot, asking("gpu=200"))


def test_hamis_card_policy_does_not_break_a_table() -> None:
    snapshot = Snapshot([node(*(gpu(i) for i in range(4)), labels={PARTITION_POLICY: "Honor"}, table=PAIRS)])
    put(snapshot, asking("core=10 ratio=10"), "part of card 0")
    annotations = {"hami.io/gpu-scheduler-policy": "binpack"}
    assert minors(put(snapshot, SPEAKS.admit(pod("gpu=200", annotations=annotations)), "a")) == [2, 3]


def test_a_table_that_is_preferred_is_left_when_it_has_nothing() -> None:
    snapshot = Snapshot([node(*(gpu(i) for i in range(4)), table=PAIRS)])
    put(snapshot, asking("core=10 ratio=10"), "part of card 0")
    assert minors(put(snapshot, asking("gpu=200"), "a")) == [2, 3]
    assert "CardPartitionMissing" in why(snapshot, asking("gpu=100", partition={}))
    assert minors(put(snapshot, asking("gpu=100"), "b")) == [1], "no partition of one card"


def test_a_part_of_a_card_does_not_mind_the_table() -> None:
    snapshot = Snapshot([node(gpu(0), gpu(1), labels={PARTITION_POLICY: "Honor"}, table={})])
    put(snapshot, asking("core=10 ratio=10"), "a")
    with pytest.raises(Refusal, match="gpu-partition-spec is for whole GPUs"):
        asking("core=10 ratio=10", partition={})


def test_a_table_that_cannot_be_read_stops_whole_cards() -> None:
    content = {"metadata": {"name": "n1", "annotations": {PARTITIONS: "[]"}}, "spec": {"devices": [gpu(0)]}}
    digest, warnings = SPEAKS.node(seen(name="n1"), msgspec.convert(content, manifest.Device))
    assert "its partitions are left out" in warnings[0]
    assert place(Snapshot([digest]), SPEAKS.request(asking("gpu=100"))) is None


def test_the_label_of_the_node_counts_for_the_table_of_eight() -> None:
    described = {"metadata": {"name": "n1", "labels": {MODEL: "H20"}}, "spec": {"devices": [gpu(i) for i in range(8)]}}
    digest, _ = SPEAKS.node(
        seen(name="n1", labels={PARTITION_POLICY: "Honor"}), msgspec.convert(described, manifest.Device)
    )
    assert "CardPartitionMissing" in why(Snapshot([digest]), asking("gpu=300"))
    assert minors(put(Snapshot([digest]), asking("gpu=400"), "a")) == [0, 1, 2, 3]


# Templates and vendors


def test_a_part_of_an_ascend_card_names_its_template() -> None:
    home = node(ascend(0), labels={VENDOR_LABEL: "huawei", MODEL: "Ascend-310P"})
    asked = asking("shared=1 ncore=2 ncpu=1 ndvpp=25 mem=6Gi")
    placement = put(Snapshot([home]), asked, "a")
    assert placement.grants[0].shares[0].template == "vir02_1c"
    written = SPEAKS.annotations(asked, placement, home, NOW)
    assert json.loads(written[ALLOCATED])["gpu"][0]["extension"] == {"gpuSharedResourceTemplate": "vir02_1c"}
    assert written["huawei.com/npu-core"] == "0-vir02_1c"


@pytest.mark.parametrize("model", ["Ascend-310P", "Ascend-310P3-300I-DUO"])
@pytest.mark.parametrize("part", ["ratio=50", "mem=6Gi", "shared=1 ratio=50"])
def test_a_part_of_an_ascend_card_that_is_no_template_is_not_given(model: str, part: str) -> None:
    """Its agent would be told the whole card, for one pod after the other."""
    home = node(ascend(0), labels={VENDOR_LABEL: "huawei", MODEL: model})
    assert "no matched GPU shared resource template on 1 of 1 cards" in why(Snapshot([home]), asking(part))
    assert minors(put(Snapshot([home]), asking("ratio=100"), "a")) == [0]


def test_the_model_whose_agent_gives_whole_cards_has_no_templates() -> None:
    model = "Ascend-310P3-300I-DUO"
    cuts = {f"huawei-{model}": {"half": {"koordinator.sh/gpu-memory": "12Gi", "huawei.com/npu-core": 4}}}
    config = Config.of({"koordinator": {"gpuSharedResourceTemplates": cuts}})
    (claim,) = Interpreter(config).request(pod("shared=1 ncore=4 ncpu=4 mem=12Gi")).claims
    assert claim.rules == KoordinatorRules(templated=frozenset({"huawei"}))


def test_templates_come_from_the_configuration() -> None:
    cut = {"koordinator.sh/gpu-memory": "8Gi", "huawei.com/npu-core": 5, "huawei.com/npu-cpu": "2"}
    config = Config.of({"koordinator": {"gpuSharedResourceTemplates": {"huawei-Ascend-910B": {"vir05": cut}}}})
    (claim,) = Interpreter(config).request(pod("shared=1 ncore=5 ncpu=2 mem=8Gi")).claims
    assert claim.rules == KoordinatorRules("", frozenset({"huawei"}), (("Ascend-910B", "vir05"),))
    (unmatched,) = Interpreter(config).request(pod("shared=1 ncore=1 ncpu=1 ndvpp=12 mem=3Gi")).claims
    assert unmatched.rules == KoordinatorRules(templated=frozenset({"huawei"}))


def test_a_template_that_cannot_be_read_is_named() -> None:
    config = Config.of({"koordinator": {"gpuSharedResourceTemplates": {"huawei-X": {"v": {"a": "much"}}}}})
    with pytest.raises(ValueError, match=r"koordinator.gpuSharedResourceTemplates.huawei-X.v: a: 'much' is not"):
        Interpreter(config)


@pytest.mark.parametrize(("request_", "served"), [("core=5 mem=1Gi", True), ("mem=1Gi", False), ("gpu=200", False)])
def test_cambricon_cards_go_to_whom_their_agent_can_serve(request_: str, served: bool) -> None:
    snapshot = Snapshot([node(gpu(0), gpu(1), labels={VENDOR_LABEL: "cambricon"})])
    placement = place(snapshot, SPEAKS.request(asking(request_)))
    assert (placement is not None) == served


@pytest.mark.parametrize("key", ["predicate-time", "huawei.com/npu-core", "CAMBRICON_DSMLU_PROFILE"])
def test_users_may_not_write_the_vendors_records(key: str) -> None:
    with pytest.raises(Refusal, match="records an allocation"):
        SPEAKS.admit(pod("gpu=50", annotations={key: "0"}))


# Everything at once


LINES: list[dict[str, Any]] = [
    {"key": "pool", "operator": "Exists"},
    {"key": "pool", "operator": "NotIn", "values": ["a"]},
]
SELECTORS = st.sampled_from([{}, *({"matchExpressions": [line]} for line in LINES)])
FUNCTIONS = st.sampled_from([{}, {"matchLabels": {"speed": "fast"}}])


def often(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Half of the time the usual, else one of the others."""
    return st.booleans().flatmap(lambda unusual: st.sampled_from(others) if unusual else st.just(usual))


POOLS = often({}, {"pool": "a"}, {"pool": "b"})
MODELS = {"nvidia": "H100", "huawei": "Ascend-310P", "cambricon": "MLU", "metax": "C500"}
ROWS = st.sets(st.integers(0, 5), min_size=1, max_size=4).map(sorted)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Pairs and singles, and some random sets."""
    sets = [
        [0, 1],
        [2, 3],
        [4, 5],
        *draw(st.sampled_from([[], [[0], [1], [2], [3]]])),
        *draw(st.lists(ROWS, max_size=3)),
    ]
    rows: list[dict[str, Any]] = [{"minors": each, "allocationScore": draw(st.integers(0, 2))} for each in sets]
    return {str(size): [row for row in rows if len(row["minors"]) == size] for size in range(1, 5)}


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """A node with GPUs of one vendor, network cards and FPGAs under some PCIe roots, and perhaps a table."""
    kind, roots = draw(often("nvidia", "huawei", "cambricon", "metax")), draw(often(2, 0, 1, 3))
    make = ascend if kind == "huawei" else gpu
    cards = [
        {**make(i), "id": f"{name}-{i}", "labels": draw(POOLS), **(at(i % roots, i % roots // 2) if roots else {})}
        for i in range(draw(often(6, 1, 2, 8)))
    ]
    others = [
        {
            **nic(
                i, str(i % roots) if roots else "", draw(st.integers(0, 4)), kind=draw(often("rdma", "rdma", "fpga"))
            ),
            "labels": draw(POOLS),
            "health": draw(st.integers(0, 19)) > 0,
        }
        for i in range(draw(st.integers(1, 6)))
    ]
    labels = {VENDOR_LABEL: kind, MODEL: MODELS[kind], PARTITION_POLICY: draw(often("Prefer", "Honor"))}
    table = draw(tables()) if draw(st.booleans()) else None
    if table is None and len(cards) < 8:
        labels[PARTITION_POLICY] = "Prefer"
    return node(*cards, *others, name=name, labels=labels, table=table)


@st.composite
def hints(draw: st.DrawFn) -> dict[str, Any]:
    """What a pod may say of each kind of device."""
    hint: dict[str, Any] = {}
    if draw(st.booleans()):
        scope = draw(often("", "PCIe", "NUMANode"))
        hint["gpu"] = {"requiredTopologyScope": scope} if scope else {"selector": draw(SELECTORS)}
    for kind in ("rdma", "fpga"):
        strategy = draw(often("", "ApplyForAll", "RequestsAsCount"))
        wanted: dict[str, Any] = {"allocateStrategy": strategy}
        wanted |= {"vfSelector": draw(FUNCTIONS)} if draw(st.booleans()) else {}
        wanted |= {"selector": draw(SELECTORS)} if draw(st.booleans()) else {}
        if strategy == "RequestsAsCount" and draw(st.booleans()):
            wanted["exclusivePolicy"] = "DeviceLevel"
        hint[kind] = wanted
    return hint


@st.composite
def pods(draw: st.DrawFn) -> manifest.Pod:
    """A pod that asks for some of it, with annotations that may make no sense together."""
    whole = draw(st.sampled_from(["gpu=100", "gpu=200", "gpu=300"]))
    parts = ["core=30 ratio=30", "core=5 mem=2Gi", "mem=3Gi", "", "ncore=16 ratio=200"]
    cuts = ["shared=1 ncore=1 ncpu=1 ndvpp=12 mem=3Gi", "shared=1 ncore=4 ncpu=3 mem=12Gi"]
    request = draw(often(whole, *parts, *cuts))
    request += draw(often("", " rdma=1", " rdma=40", " rdma=3", " rdma=200"))
    request += draw(st.sampled_from(["", "", "", " fpga=10"]))
    annotations = {HINT: json.dumps(draw(hints()))} if draw(st.booleans()) else {}
    if "rdma" in request and draw(st.booleans()):
        kinds = draw(often(["gpu", "rdma"], ["gpu", "rdma", "fpga"], ["rdma", "gpu"]))
        annotations[JOINT] = json.dumps({"deviceTypes": kinds, "requiredScope": draw(often("", "SamePCIe"))})
    if request.startswith("gpu") and draw(st.integers(0, 3)) == 0:
        annotations[PARTITION] = json.dumps({"allocatePolicy": draw(often("BestEffort", "Restricted"))})
    return pod(request, annotations=annotations)


def assert_sound(homes: Mapping[str, Node], running: Mapping[str, tuple[manifest.Pod, Placement]]) -> None:
    """No device carries more than it has, and no virtual function is given twice: counted from the placements."""
    taken: Counter[tuple[str, str, str]] = Counter()
    for _, placement in running.values():
        for share in (share for grant in placement.grants for share in grant.shares):
            amounts = {"slots": 1, "memory": share.memory_bytes, "cores": share.cores, **dict(share.extras)}
            taken.update({(placement.node, share.id, name): amount for name, amount in amounts.items()})
            taken.update((placement.node, "function", each.bus) for each in share.functions)
    for (name, id, what), amount in taken.items():
        device = homes[name].device(id)
        if device is None:
            assert (id, amount) == ("function", 1)
            continue
        has = {"slots": device.slots, "memory": device.memory_bytes, "cores": device.cores, **dict(device.extras)}
        assert amount <= has[what]


def assert_kept(asked: manifest.Pod, placement: Placement, home: Node) -> None:
    """Every promise of the annotations holds."""
    by_kind: dict[str, list[tuple[Share, Device]]] = {}
    for share in (share for grant in placement.grants for share in grant.shares):
        device = home.device(share.id)
        assert device is not None
        assert device.healthy
        by_kind.setdefault(device.kind, []).append((share, device))
    hint = json.loads(asked.annotations.get(HINT, "{}"))
    for kind, held in by_kind.items():
        mine = hint.get(kind, {})
        assert len({device.id for _, device in held}) == len(held)
        assert all(len(share.functions) == ("vfSelector" in mine) for share, _ in held)
        lines = mine.get("selector", {}).get("matchExpressions", ())
        admitted = [device for device in home.devices if device.kind == kind and matches(lines, device.labels)]
        assert {device.id for _, device in held} <= {device.id for device in admitted}
        if mine.get("allocateStrategy") == "ApplyForAll" and f"{SHORT[kind]}" in str(asked) and held[0][0].cores < 100:
            assert len(held) == len(admitted)
    assert_together(asked, by_kind, hint)


def assert_together(asked: manifest.Pod, by_kind: dict[str, list[tuple[Share, Device]]], hint: Any) -> None:
    cards = [device for _, device in by_kind.get("gpu", ())]
    scope = hint.get("gpu", {}).get("requiredTopologyScope", "")
    if cards and scope:
        assert len({device.pcie if scope == "PCIe" else device.numa for device in cards}) == 1
    joint = json.loads(asked.annotations.get(JOINT, "{}"))
    for kind in joint.get("deviceTypes", ()):
        everywhere = hint.get(kind, {}).get("allocateStrategy") == "ApplyForAll"
        if joint.get("requiredScope") and cards and kind in by_kind and not everywhere:
            roots = {device.pcie for _, device in by_kind[kind]}
            assert roots == {device.pcie for device in cards}
    table = cards[0].partitions if cards else None
    whole = all(share.memory_bytes == device.memory_bytes for share, device in by_kind.get("gpu", ()))
    if cards and whole and (PARTITION in asked.annotations or (table is not None and table.honor)):
        assert table is not None
        assert {device.minor for device in cards} in [set(each.minors) for each in table.partitions]


def matches(lines: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    """The two lines that the world knows."""
    return all("pool" in labels if line["operator"] == "Exists" else labels.get("pool") != "a" for line in lines)


def ledger(snapshot: Snapshot) -> dict[str, object]:
    return {
        pool.nodes[at].name: (pool.state[..., at].tolist(), pool.taken[:, at].tolist(), pool.tenants[at])
        for pool in snapshot.pools
        for at in pool
    }


THOROUGH = examples(quick=12, ci=300)

Stream = list[tuple[manifest.Pod, int]]
"""Pods in the order in which they come; with a low number a running one ends before."""


def live(homes: Sequence[Node], stream: Stream) -> None:
    """Place the pods one after the other, and look at everything after each of them."""
    by_name = {home.name: home for home in homes}
    snapshot = Snapshot(homes)
    running: dict[str, tuple[manifest.Pod, Placement]] = {}
    for number, (asked, leaving) in enumerate(stream):
        if leaving < 2 and running:
            gone = sorted(running)[leaving % len(running)]
            snapshot.forget(gone)
            del running[gone]
        try:
            complete = SPEAKS.admit(asked)
        except Refusal:
            continue
        request = SPEAKS.request(complete)
        placement = place(snapshot, request)
        if placement is None:
            assert not explain(snapshot, request).fitting, "the columns struck out a node that takes the pod"
            continue
        snapshot.assume(str(number), placement)
        running[str(number)] = complete, placement
        assert reading(complete, placement, snapshot) == placement
        assert_kept(complete, placement, by_name[placement.node])
        assert_sound(by_name, running)
    restarted = Snapshot(homes)
    for key, (complete, placement) in running.items():
        restarted.restore(key, reading(complete, placement, snapshot))
    assert ledger(restarted) == ledger(snapshot)


@THOROUGH
@given(homes=st.tuples(nodes("n1"), nodes("n2")), stream=st.lists(st.tuples(pods(), st.integers(0, 9)), max_size=20))
def test_no_promise_is_broken_and_a_restart_knows_everything(homes: tuple[Node, ...], stream: Stream) -> None:
    live(homes, stream)


CROWD = [
    asking(request, {"rdma": {"vfSelector": selector, "allocateStrategy": strategy}}, joint)
    for request, joint in (("rdma=2", None), ("core=10 ratio=10 rdma=2", TOGETHER), ("core=10 ratio=10 rdma=1", SAME))
    for selector in ({}, {"matchLabels": {"speed": "fast"}})
    for strategy in ("", "ApplyForAll", "RequestsAsCount")
]


@THOROUGH
@given(
    vfs=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    stream=st.lists(st.tuples(st.sampled_from(CROWD), st.integers(0, 9)), min_size=6, max_size=25),
)
def test_no_virtual_function_is_given_twice_in_a_crowd(vfs: list[int], stream: Stream) -> None:
    cards = [{**gpu(i), **at(i % 2)} for i in range(4)]
    live([node(*cards, *(nic(i, str(i % 2), count) for i, count in enumerate(vfs)))], stream)
