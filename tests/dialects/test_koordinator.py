"""Koordinator's GPU share: the page's pod works unchanged, and what is written is what its agents and users expect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import isolation
from subak.dialects.config import Koordinator as Settings
from subak.dialects.interpreter import Interpreter
from subak.dialects.koordinator import Koordinator, owns_whole_cards
from subak.dialects.koordinator_names import ALLOCATED, BIND_TIME, METAX_ALLOCATED, MINORS
from subak.dialects.koordinator_rules import KoordinatorRules
from subak.model import manifest
from subak.model.device import Device
from subak.model.manifest import Role
from subak.model.mount import Mount, Purpose
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share, charges
from subak.model.reason import Refusal
from subak.model.request import BINPACK, LEAST_ALLOCATED, MOST_ALLOCATED, SPREAD, Pick
from subak.policy.held import held
from tests.dialects.koordinator_manifests import (
    DIALECT,
    GI,
    KI,
    MI,
    N8_MEMORY,
    SHORT,
    annotated,
    device,
    gpu,
    n8,
    pod,
    stocked,
)

NOW = 1593764466550835304
ISOLATION = "koordinator.sh/gpu-isolation-provider"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
HAMI_CORE = {ISOLATION: "HAMi-core"}

PAGE = """
apiVersion: v1
kind: Pod
metadata:
  name: pod-example
  namespace: default
  labels:
    koordinator.sh/gpu-isolation-provider: hami-core
spec:
  schedulerName: koord-scheduler
  containers:
  - command:
    - sleep
    - 365d
    image: busybox
    imagePullPolicy: IfNotPresent
    name: curlimage
    resources:
      limits:
        cpu: 40m
        memory: 40Mi
        koordinator.sh/gpu.shared: 1
        koordinator.sh/gpu-core: 50
        koordinator.sh/gpu-memory-ratio: 50
      requests:
        cpu: 40m
        memory: 40Mi
        koordinator.sh/gpu.shared: 1
        koordinator.sh/gpu-core: 50
        koordinator.sh/gpu-memory-ratio: 50
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  restartPolicy: Always
"""


def placed(asking: manifest.Pod, node: Node, *indices: int) -> Placement:
    """The pod's GPU claim on the cards with these indices, other claims on the first devices of their family."""
    grants = []
    for claim in DIALECT.ask(asking).claims:
        cards = [each for each in node.devices if each.family in claim.families]
        chosen = [each for each in cards if each.index in indices] if cards[0].kind == "gpu" else cards[: claim.count]
        assert len(chosen) == claim.count
        shares = tuple(Share(c.id, c.index, claim.memory_on(c), claim.cores, claim.extras) for c in chosen)
        grants.append(Grant(DIALECT.name, claim.containers, claim.role, shares, slotted=False))
    return Placement(node.name, tuple(grants))


def bound(asking: manifest.Pod, node: Node, *indices: int) -> manifest.Pod:
    return annotated(asking, DIALECT.write(asking, placed(asking, node, *indices), node, NOW))


def entries(asking: manifest.Pod, node: Node, *indices: int) -> list[Any]:
    content = json.loads(bound(asking, node, *indices).annotations[ALLOCATED])
    assert isinstance(content["gpu"], list)
    return content["gpu"]


def grant(text: str, asking: manifest.Pod, node: Node) -> Grant:
    (only,) = DIALECT.read(annotated(asking, {ALLOCATED: text}), node)
    return only


def test_the_page_s_pod_is_recorded_as_the_page_shows() -> None:
    asking = msgspec.convert(yaml.safe_load(PAGE), manifest.Pod)
    node = stocked(device(gpu(0, "23040Mi"), gpu(1, "23040Mi"), name="p40"))
    assert DIALECT.speaks(asking)
    assert DIALECT.admit(asking).limits == {}
    (claim,) = DIALECT.ask(asking).claims
    assert (claim.count, claim.cores, claim.memory_percent) == (1, 50, 50)
    assert claim.rules == KoordinatorRules("hami-core")
    record = bound(asking, node, 1).annotations[ALLOCATED]
    assert record == (
        '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"11520Mi",'
        '"koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-1"}]}'
    )


@pytest.mark.parametrize(
    "request_",
    [
        "gpu=50",
        "mem=1Gi",
        "dashed=1 ratio=50",
        "rdma=100",
        "fpga=1",
        "amd=1",
        "dcu=1",
        "ncore=1",
        "kubernetes.io/gpu=50",
    ],
)
def test_it_speaks_for_its_names_whoever_schedules(request_: str) -> None:
    assert DIALECT.speaks(pod("", request_, scheduler=""))


def test_whole_nvidia_cards_are_hamis_unless_the_pod_says_koordinator() -> None:
    plain = pod("nv=1", scheduler="")
    assert not DIALECT.speaks(plain)
    assert DIALECT.ask(plain).claims == ()
    for ours in (
        pod("nv=1"),
        pod("nv=1", "core=50 ratio=50", scheduler=""),
        pod("nv=1", labels=HAMI_CORE, scheduler=""),
        pod("nv=1", annotations={HINT: "{}"}, scheduler=""),
    ):
        assert DIALECT.speaks(ours)
        assert owns_whole_cards(ours)
    assert not owns_whole_cards(pod("core=50 ratio=50"))
    assert not owns_whole_cards(pod("nv=1 nvidia.com/gpumem=3000")), "HAMi's: Koordinator would forget the memory"
    assert not DIALECT.speaks(pod("nv=1", labels={"koordinator.sh/qosClass": "LS"}, scheduler="")), "no word about GPUs"


def test_isolation_is_wanted_in_any_case_and_only_for_a_part() -> None:
    wanted = {
        text: DIALECT.ask(pod(text, labels=HAMI_CORE)).claims[0].rules.node_key
        for text in ("core=50 ratio=50", "mem=16Gi", "ratio=100", "gpu=100", "rdma=50")
    }
    assert wanted == {
        "core=50 ratio=50": "hami-core",
        "mem=16Gi": "hami-core",
        "ratio=100": "",
        "gpu=100": "",
        "rdma=50": "",
    }


def test_the_strategy_orders_cards_and_nodes() -> None:
    for strategy in (LEAST_ALLOCATED, MOST_ALLOCATED):
        ask = Koordinator(Settings(scoring_strategy=strategy)).ask(pod("core=50 ratio=50 rdma=100"))
        assert ask.node_policy == strategy
        assert [claim.policy.order for claim in ask.claims] == [(strategy,), (strategy,)]
        assert [claim.policy.pick for claim in ask.claims] == [Pick.TREE, Pick.IN_ORDER]
    with pytest.raises(ValueError, match="scoringStrategy is 'Balanced': use LeastAllocated or MostAllocated"):
        Koordinator(Settings(scoring_strategy="Balanced"))


def test_hamis_policies_may_be_asked_for() -> None:
    chosen = {"hami.io/gpu-scheduler-policy": "binpack", "hami.io/node-scheduler-policy": "spread"}
    ask = DIALECT.ask(pod("core=50 ratio=50", annotations=chosen))
    assert ask.node_policy == SPREAD
    assert (ask.claims[0].policy.order, ask.claims[0].policy.pick) == ((BINPACK,), Pick.IN_ORDER)
    with pytest.raises(Refusal, match="'tight' is no policy"):
        DIALECT.admit(pod("core=50 ratio=50", annotations={"hami.io/gpu-scheduler-policy": "tight"}))


def test_cards_cut_by_mig_are_not_taken() -> None:
    (claim,) = DIALECT.ask(pod("core=50 ratio=50")).claims
    assert [claim.selection.admits_mode(mode) for mode in ("", "hami-core", "mig", "mps")] == [True, True, False, False]


def hinted(hint: str, request: str = "gpu=200") -> str:
    (claim, *_) = DIALECT.ask(pod(request, annotations={HINT: hint})).claims
    return claim.policy.scope


def test_a_required_scope_is_carried_to_the_policy() -> None:
    for scope in ("PCIe", "NUMANode", "Node"):
        assert hinted(f'{{"gpu":{{"requiredTopologyScope":"{scope}"}}}}') == scope
    assert hinted('{"gpu":null}') == hinted("{}") == ""


def test_one_card_is_always_within_one_device_and_two_never_are() -> None:
    hint = '{"gpu":{"requiredTopologyScope":"Device"}}'
    assert hinted(hint, "gpu=100") == ""
    with pytest.raises(Refusal, match="2 cards cannot lie within one Device"):
        hinted(hint)


def test_a_scope_outlives_hamis_card_policy() -> None:
    wanted = {HINT: '{"gpu":{"requiredTopologyScope":"PCIe"}}', "hami.io/gpu-scheduler-policy": "binpack"}
    (claim,) = DIALECT.ask(pod("gpu=200", annotations=wanted)).claims
    assert (claim.policy.order, claim.policy.pick, claim.policy.scope) == ((BINPACK,), Pick.TREE, "PCIe")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("device-allocate-hint", '{"gpu":{"vfSelector":{}}}', "gpu.vfSelector .* is not supported yet"),
        ("device-allocate-hint", '{"gpu":{"allocateStrategy":"ApplyForAll"}}', "gpu.allocateStrategy .* not supported"),
        ("device-allocate-hint", '{"gpu":{"exclusivePolicy":"PCIeLevel"}}', "gpu.exclusivePolicy .* not supported yet"),
        (
            "device-allocate-hint",
            '{"rdma":{"allocateStrategy":"ApplyForAll","exclusivePolicy":"DeviceLevel"}}',
            "rdma.exclusivePolicy .* not supported yet: only DeviceLevel of rdma or fpga with RequestsAsCount is",
        ),
        (
            "device-allocate-hint",
            '{"gpu":{"requiredTopologyScope":"Rack"}}',
            "'Rack': use PCIe, NUMANode, Node, Device",
        ),
        ("device-allocate-hint", "PCIe", "^invalid DeviceAllocateHint annotation, err: "),
        ("device-allocate-hint", '{"gpu":"PCIe"}', "^invalid DeviceAllocateHint annotation, err: "),
        ("device-allocate-hint", '{"rdma":{"requiredTopologyScope":"PCIe"}}', "rdma.requiredTopologyScope .* only gpu"),
        ("device-allocate-hint", '{"rdma":{"allocateStrategy":"Some"}}', "'Some': use ApplyForAll or RequestsAsCount"),
        ("device-allocate-hint", '{"rdma":{"exclusivePolicy":"Rack"}}', "exclusivePolicy is 'Rack': use DeviceLevel"),
        ("device-allocate-hint", '{"rdma":{"speed":1}}', "unknown field `speed`"),
        ("device-allocate-hint", '{"npu":{}}', "'npu' .* is no kind of device: use gpu, rdma, fpga"),
        (
            "device-allocate-hint",
            '{"rdma":{"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}}',
            "^invalid Selector of DeviceHint, deviceType: rdma, err: selector: 'Near' is not a valid label selector",
        ),
        (
            "device-allocate-hint",
            '{"rdma":{"vfSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}}',
            "err: vfSelector: In of a needs values",
        ),
        ("device-joint-allocate", '{"deviceTypes":["gpu"],"requiredScope":"SameNode"}', "'SameNode': use SamePCIe"),
        (
            "device-joint-allocate",
            '{"deviceTypes":["rdma","gpu"],"requiredScope":"SamePCIe"}',
            "put gpu first in deviceTypes",
        ),
        ("device-joint-allocate", "gpu", "^invalid DeviceJointAllocate annotation, err: "),
        ("gpu-partition-spec", '{"allocatePolicy":"Any"}', "'Any': use Restricted or BestEffort"),
        ("gpu-partition-spec", "", "^invalid GPUPartitionSpec annotation, err: "),
    ],
)
def test_hints_that_we_cannot_honour_are_refused(key: str, value: str, message: str) -> None:
    key = f"scheduling.koordinator.sh/{key}"
    for request in ("gpu=200", "rdma=100"):
        with pytest.raises(Refusal, match=message) as refused:
            DIALECT.admit(pod(request, annotations={key: value}))
        assert refused.value.field == f"metadata.annotations[{key}]"


@pytest.mark.parametrize(
    ("request_", "total", "memory", "ratio"),
    [
        ("core=50 ratio=50", 32 * GI, "16Gi", "50"),
        ("core=50 mem=16Gi", 32 * GI, "16Gi", "50"),
        ("core=50 ratio=50", 23040 * MI, "11520Mi", "50"),
        ("ratio=50", N8_MEMORY, "41600608Ki", "50"),
        ("mem=3Gi", 24 * GI, "3Gi", "12"),
        ("mem=1Gi", 2000 * GI, "1Gi", "0"),
        ("mem=29Gi", 100 * GI, "29Gi", "28"),  # 0.29 * 100 is 28.999... in floating point
        ("ratio=33", 1000, "330", "33"),
        ("ratio=33", 1001, "330", "33"),  # 330 bytes are 32 percent, but 33 were asked for
        ("ratio=100", 16 * GI, "16Gi", "100"),
        ("mem=16Gi", 16 * GI, "16Gi", "100"),
    ],
)
def test_memory_and_ratio_are_both_written(request_: str, total: int, memory: str, ratio: str) -> None:
    (entry,) = entries(pod(request_), stocked(device(gpu(0, total))), 0)
    assert entry["resources"][SHORT["mem"]] == memory
    assert entry["resources"][SHORT["ratio"]] == ratio
    assert (SHORT["core"] in entry["resources"]) == ("core" in request_)


def test_gpus_and_rdma_are_recorded_in_koordinators_order() -> None:
    nic = {"type": "rdma", "id": "0000:1f:00.0", "minor": 1, "health": True, "resources": {SHORT["rdma"]: "100"}}
    ids = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d", "GPU-befd76c3-8a36-7b8a-179c-eae75aa7d9f2"
    node = stocked(device(nic, *({**gpu(i), "id": id} for i, id in enumerate(ids))))
    written = bound(pod("nv=2 rdma=100"), node, 0, 1).annotations
    whole = (
        '{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"16Gi","koordinator.sh/gpu-memory-ratio":"100"}'
    )
    assert written == {
        ALLOCATED: f'{{"gpu":[{{"minor":0,"resources":{whole},"id":"{ids[0]}"}},'
        f'{{"minor":1,"resources":{whole},"id":"{ids[1]}"}}],'
        '"rdma":[{"minor":1,"resources":{"koordinator.sh/rdma":"100"},"id":"0000:1f:00.0"}]}',
        BIND_TIME: str(NOW),
        MINORS: "0,1",
    }
    assert written.keys() <= DIALECT.owned


def test_an_id_of_ours_is_not_written() -> None:
    node = stocked(device({**gpu(3), "id": ""}))
    (entry,) = entries(pod("gpu=50"), node, 3)
    assert "id" not in entry
    assert entry["minor"] == 3


def test_the_minor_is_the_drivers_number_where_it_differs() -> None:
    node = Node("n1", (Device("GPU-a", 0, "nvidia", memory_bytes=16 * GI, minor=7),))
    assert bound(pod("gpu=50"), node, 0).annotations[MINORS] == "7"


def test_ascend_amounts_are_recorded() -> None:
    card = Device("NPU-0", 0, "huawei", memory_bytes=24 * GI, cores=8, extras=(("huawei.com/npu-cpu", 7),))
    (entry,) = entries(pod("shared=1 ncore=4 ncpu=3 mem=12Gi"), Node("n1", (card,)), 0)
    assert list(entry["resources"].items()) == [
        ("huawei.com/npu-core", "4"),
        ("huawei.com/npu-cpu", "3"),
        ("koordinator.sh/gpu-memory", "12Gi"),
        ("koordinator.sh/gpu-memory-ratio", "50"),
    ]


def test_metax_s_agent_gets_its_own_record() -> None:
    node = stocked(device(gpu(0), gpu(1), labels={"node.koordinator.sh/gpu-vendor": "metax"}))
    written = bound(pod("shared=2 core=10 mem=2Gi"), node, 0, 1).annotations
    assert written[METAX_ALLOCATED] == (
        '[[{"uuid":"GPU-0","compute":5,"vRam":1024},{"uuid":"GPU-1","compute":5,"vRam":1024}]]'
    )


HALF = Share("GPU-0", 0, 8 * GI, 50)


@pytest.mark.parametrize(
    "text",
    [
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"8Gi",'
        '"koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-0"}]}',
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":50,"koordinator.sh/gpu-memory":8589934592,'
        '"koordinator.sh/gpu-memory-ratio":50}}]}',
        '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "50",'
        ' "koordinator.sh/gpu-memory-ratio": "50"}}]}',
        '{"gpu":[{"minor":0,"resources":{"kubernetes.io/gpu-core":"50",'
        '"kubernetes.io/gpu-memory-ratio":"50"}}],"rdma":null}',
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"8Gi"},'
        '"extension":{"later":1}}]}',
    ],
)
def test_records_of_all_ages_are_read(text: str) -> None:
    node = stocked(device(gpu(0)))
    assert grant(text, pod("", "gpu=50"), node) == Grant("koordinator", (1,), Role.APP, (HALF,), slotted=False)


CORES_ONLY = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50"}}]}'


@pytest.mark.parametrize(
    ("asked", "memory"),
    [("core=50 ratio=50", 8 * GI), ("core=50 mem=3Gi", 3 * GI), ("", 16 * GI), ("core=50", 16 * GI)],
)
@pytest.mark.parametrize("told", ["", ',"koordinator.sh/gpu-memory":"0"'])
def test_memory_that_a_record_does_not_tell_is_what_the_pod_asks_for_or_the_whole_card(
    asked: str, memory: int, told: str
) -> None:
    text = CORES_ONLY.replace('"50"', f'"50"{told}')
    assert grant(text, pod(asked), stocked(device(gpu(0)))).shares == (Share("GPU-0", 0, memory, 50),)


def test_a_record_of_cores_only_limits_memory_to_what_was_asked_for() -> None:
    """A limit of 0 would be none at all."""
    node = stocked(device(gpu(0)))
    asked = annotated(pod("core=50 ratio=50", labels=HAMI_CORE), {ALLOCATED: CORES_ONLY})
    (given,) = DIALECT.read(asked, node)
    assert DIALECT.inject(asked, given, 0, node).env["CUDA_DEVICE_MEMORY_LIMIT"] == str(8 * GI)


def test_what_a_record_says_is_charged_to_the_card() -> None:
    text = (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"60","koordinator.sh/gpu-memory":"8Gi",'
        '"koordinator.sh/gpu-memory-ratio":"50"}}]}'
    )
    taken = charges([grant(text, pod("core=60 ratio=50"), stocked(device(gpu(0))))])
    assert (taken["GPU-0"].cores, taken["GPU-0"].memory_bytes) == (60, 8 * GI)


def test_a_card_that_was_replaced_is_not_charged_for_its_predecessor() -> None:
    text = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory":"8Gi"},"id":"GPU-gone"}]}'
    assert grant(text, pod("mem=8Gi"), stocked(device(gpu(0)))).shares[0].id == "GPU-gone"
    nameless = stocked(device({**gpu(0), "id": ""}))
    assert grant(text, pod("mem=8Gi"), nameless).shares[0].id == "n1-nvidia-0"


def test_a_record_without_a_request_serves_all_containers() -> None:
    text = '{"gpu":[{"minor":0},{"minor":1}]}'
    assert grant(text, pod("", ""), stocked(device(gpu(0), gpu(1)))).containers == (0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "gpu",
        "[]",
        '{"gpu":{}}',
        '{"gpu":[{"resources":null}]}',
        '{"gpu":[{"minor":0,"resources":{"a":"b"}}]}',
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory":"-8Gi"}}]}',
    ],
)
def test_a_malformed_record_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        DIALECT.read(annotated(pod("gpu=50"), {ALLOCATED: text}), stocked(device(gpu(0))))


def test_a_pod_without_record_holds_nothing() -> None:
    assert DIALECT.read(pod("gpu=50"), stocked(device(gpu(0)))) == ()


@given(
    memory=st.integers(100, 2**41),
    named=st.booleans(),
    huawei=st.booleans(),
    containers=st.integers(1, 3),
    data=st.data(),
)
def test_reading_what_was_written_restores_the_placement(
    memory: int, named: bool, huawei: bool, containers: int, data: st.DataObject
) -> None:
    whole, percent = st.integers(1, 4), st.integers(1, 100)
    amount = st.integers(containers, memory)
    requests = st.one_of(
        whole.map(lambda n: f"gpu={100 * n}"),
        st.tuples(percent, percent).map(lambda p: f"core={p[0]} ratio={p[1]}"),
        st.tuples(whole, amount).map(lambda p: f"shared={p[0]} mem={p[0] * p[1]}"),
        amount.map(lambda m: f"mem={m} rdma=100"),
    )
    if huawei:
        memory = max(memory, 12 * GI)
        cuts = ["ncore=1 ncpu=1 ndvpp=12 mem=3Gi", "ncore=2 ncpu=1 ndvpp=25 mem=6Gi", "ncore=4 ncpu=3 mem=12Gi"]
        requests = st.sampled_from([f"shared=1 {cut}" for cut in cuts])
    asking = pod(*[""] * (containers - 1), data.draw(requests))
    family = "huawei" if huawei else "nvidia"
    extras = (("huawei.com/npu-cpu", 7), ("huawei.com/npu-dvpp", 100)) if huawei else ()
    cards = [
        Device(f"U-{i}" if named else f"n1-{family}-{i}", i, family, memory_bytes=memory, extras=extras)
        for i in range(4)
    ]
    node = Node("n1", (*cards, Device("0000:1f:00.0", 1, "rdma", kind="rdma", minor=1)))
    count = DIALECT.ask(asking).claims[0].count
    placement = placed(asking, node, *range(4 - count, 4))
    record = DIALECT.write(asking, placement, node, NOW)
    assert DIALECT.read(annotated(asking, record), node) == placement.grants


def injected(
    asking: manifest.Pod, node: Node, *indices: int, position: int = 0
) -> tuple[Mapping[str, str], list[Mount]]:
    (given,) = DIALECT.read(bound(asking, node, *indices), node)
    injection = DIALECT.inject(asking, given, position, node)
    return injection.variables(asking.containers[position].variables), injection.mounts


def test_the_container_sees_its_cards_by_uuid() -> None:
    env, mounts = injected(pod("nv=2"), stocked(device(gpu(0), gpu(1))), 0, 1)
    assert env == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    assert mounts == []


def test_cards_without_uuid_are_seen_by_number() -> None:
    node = stocked(device({**gpu(0), "id": ""}, {**gpu(1), "id": ""}))
    given = grant('{"gpu": [{"minor": 0},{"minor": 1}]}', pod("nv=2"), node)
    assert DIALECT.inject(pod("nv=2"), given, 0, node).env == {"NVIDIA_VISIBLE_DEVICES": "0,1"}


@pytest.mark.parametrize("label", ["HAMi-core", "hami-core"])
def test_a_share_is_enforced_where_the_pod_wants_it(label: str) -> None:
    node = stocked(device({**gpu(1, 32 * GI), "id": ""}))
    env, mounts = injected(pod("core=50 ratio=50", labels={ISOLATION: label}), node, 1)
    assert env == {
        "NVIDIA_VISIBLE_DEVICES": "1",
        "CUDA_DEVICE_MEMORY_LIMIT": "17179869184",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "17179869184",
        "CUDA_DEVICE_SM_LIMIT": "50",
        "CUDA_DEVICE_SM_LIMIT_0": "50",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/pod-uid_c0.cache",
        "LD_PRELOAD": "/usr/local/vgpu/libvgpu.so",
    }
    assert mounts == [
        Mount("/usr/local/vgpu", "/usr/local/vgpu/containers/pod-uid_c0", purpose=Purpose.ACCOUNT),
        Mount(isolation.LIBRARY, f"{isolation.HOST_DIRECTORY}/libsubak.so", read_only=True, purpose=Purpose.LIBRARY),
        Mount("/tmp/vgpulock", "/tmp/vgpulock", purpose=Purpose.TURNS),
    ]


def test_without_the_label_nothing_is_enforced() -> None:
    env, mounts = injected(pod("core=50 ratio=50"), stocked(device(gpu(0))), 0)
    assert (list(env), mounts) == (["NVIDIA_VISIBLE_DEVICES"], [])


def test_a_whole_card_needs_no_limit_but_half_its_cores_do() -> None:
    node = stocked(device(gpu(0)))
    for whole in ("ratio=100", "gpu=100", "mem=16Gi"):
        env, mounts = injected(pod(whole, labels=HAMI_CORE), node, 0)
        assert (list(env), mounts) == (["NVIDIA_VISIBLE_DEVICES"], [])
    env, _ = injected(pod("shared=1 core=50 ratio=100", labels=HAMI_CORE), node, 0)
    assert (env["CUDA_DEVICE_SM_LIMIT"], env["CUDA_DEVICE_MEMORY_LIMIT"]) == ("50", str(16 * GI))


def test_cores_that_nobody_asked_for_are_not_limited() -> None:
    env, _ = injected(pod("ratio=25", labels=HAMI_CORE), stocked(device(gpu(0))), 0)
    assert env["CUDA_DEVICE_MEMORY_LIMIT"] == str(4 * GI)
    assert not any(name.startswith("CUDA_DEVICE_SM_LIMIT") for name in env)


def test_unequal_cards_have_limits_of_their_own() -> None:
    node = stocked(device(gpu(0, 20 * GI), gpu(1, 40 * GI)))
    env, _ = injected(pod("shared=2 ratio=100", labels=HAMI_CORE), node, 0, 1)
    assert env["CUDA_DEVICE_MEMORY_LIMIT"] == env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "10737418240"
    assert env["CUDA_DEVICE_MEMORY_LIMIT_1"] == "21474836480"


def test_the_users_own_preload_stays() -> None:
    asking = pod("ratio=25", labels=HAMI_CORE)
    env = [manifest.EnvVar(name="LD_PRELOAD", value="/opt/mine.so")]
    (container,) = asking.spec.containers
    spec = msgspec.structs.replace(asking.spec, containers=[msgspec.structs.replace(container, env=env)])
    got, _ = injected(msgspec.structs.replace(asking, spec=spec), stocked(device(gpu(0))), 0)
    assert got["LD_PRELOAD"] == "/usr/local/vgpu/libvgpu.so:/opt/mine.so"


def test_devices_that_are_not_nvidia_get_nothing_from_us() -> None:
    metax = stocked(device(gpu(0), labels={"node.koordinator.sh/gpu-vendor": "metax"}))
    assert injected(pod("core=50 ratio=50", labels=HAMI_CORE), metax, 0) == ({}, [])
    fpga = {"type": "fpga", "minor": 0, "health": True, "resources": {SHORT["fpga"]: "100"}}
    given = grant('{"fpga": [{"minor": 0}]}', pod("fpga=100"), stocked(device(fpga)))
    assert DIALECT.inject(pod("fpga=100"), given, 0, stocked(device(fpga))).env == {}


def test_a_card_that_the_node_does_not_have_stops_the_container() -> None:
    node = stocked(device(gpu(0)))
    lost = Grant("koordinator", (0,), Role.APP, (msgspec.structs.replace(HALF, id="GPU-gone"),))
    with pytest.raises(ValueError, match="node n1 has no card GPU-gone"):
        DIALECT.inject(pod("gpu=50"), lost, 0, node)


def test_all_containers_that_ask_are_served() -> None:
    asking = pod("core=20 ratio=20", "", "core=30 ratio=30", init=["ratio=10"], labels=HAMI_CORE)
    node = Node("n8", n8())
    (given,) = DIALECT.read(bound(asking, node, 7), node)
    assert given.containers == (0, 1, 3)
    assert given.shares == (Share("GPU-7", 7, 41600608 * KI, 50),)


@pytest.mark.parametrize("family", ["nvidia", "metax"])
def test_a_card_is_read_back_as_itself_where_another_vendors_has_the_same_number(family: str) -> None:
    """No source names the cards, so that only their numbers are known, and both vendors count from 0."""
    cards = tuple(Device(f"n1-{vendor}-0", 0, vendor, memory_bytes=16 << 30, minor=0) for vendor in ("nvidia", "metax"))
    home = Node("n1", cards, offers=frozenset({"koordinator"}))
    interpreter = Interpreter()
    content = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"koordinator.sh/gpu-memory": "4Gi"}}}]},
    }
    pod = interpreter.admit(msgspec.convert(content, manifest.Pod))
    (claim,) = interpreter.request(pod).claims
    share = Share(f"n1-{family}-0", 0, 4 << 30, claim.cores)
    placed = Placement("n1", (Grant("koordinator", claim.containers, claim.role, (share,), slotted=claim.slotted),))
    written = interpreter.annotations(pod, placed, home, 0)
    bound = msgspec.structs.replace(pod, metadata=manifest.Metadata(name="p", annotations=written))
    assert interpreter.placement(bound, home) == placed
    old = json.loads(written[ALLOCATED])
    del old["gpu"][0]["id"]  # as a record of Koordinator's own: it could be either
    annotations = {ALLOCATED: json.dumps(old)}
    bound = msgspec.structs.replace(pod, metadata=manifest.Metadata(name="p", annotations=annotations))
    shares = held(interpreter, bound, home).placement.grants[0].shares
    assert sorted(each.id for each in shares) == ["n1-metax-0", "n1-nvidia-0"]
