"""Koordinator's Device objects: read as they are, written so that they read the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Sight, Source
from subak.dialects.config import Nvidia as NvidiaNames
from subak.dialects.koordinator_device import device_object, node_labels
from subak.dialects.nvidia import REGISTER, Nvidia
from subak.dialects.stock import one_stock
from subak.model import manifest
from subak.model.device import FPGA, RDMA, Device
from subak.model.node import Node
from tests.dialects.koordinator_manifests import (
    DIALECT,
    GI,
    KI,
    MI,
    SHORT,
    device,
    full,
    gpu,
    n8,
    reread,
    seen,
    stocked,
)
from tinykube.quantity import Quantity

VENDOR = "node.koordinator.sh/gpu-vendor"
MODEL = "node.koordinator.sh/gpu-model"
P40 = {VENDOR: "nvidia", MODEL: "Tesla-P40", "node.koordinator.sh/gpu-driver-version": "535.104.05"}


def sight(found: manifest.Device | None, node: manifest.Node | None = None) -> Sight:
    return DIALECT.sight(node or seen(), found)


def capacity(node: Node) -> dict[str, int]:
    return {name: Quantity.parse(text).integer() for name, text in DIALECT.publish(node).allocatable.items()}


def ascend(minor: int, memory: int, **fields: Any) -> dict[str, Any]:
    resources = {**full("ncore=20 ncpu=20 ndvpp=100 ratio=100"), SHORT["mem"]: memory}
    return {**gpu(minor, **fields), "resources": resources}


def test_a_card_is_read_with_all_its_facts() -> None:
    topology = {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:3a", "busID": "0000:3b:00.0"}
    card = gpu(1, "23040Mi", labels={"rack": "a"}, topology=topology)
    (read,) = stocked(device(card, labels=P40)).devices
    assert read == Device(
        id="GPU-1",
        index=1,
        family="nvidia",
        model="Tesla-P40",
        memory_bytes=23040 * MI,
        cores=100,
        slots=100,
        minor=1,
        numa=1,
        pcie="pci0000:3a",
        labels={"rack": "a"},
    )


@pytest.mark.parametrize(
    ("vendor", "family"),
    [("", "nvidia"), ("nvidia", "nvidia"), ("baidu", "kunlun"), ("kunlun", "kunlun"), ("Metax", "metax")],
)
def test_the_vendor_label_names_the_family(vendor: str, family: str) -> None:
    (read,) = stocked(device(gpu(0), labels={VENDOR: vendor})).devices
    assert read.family == family


def test_a_card_without_id_gets_one_of_ours() -> None:
    (read,) = stocked(device({**gpu(3), "id": ""})).devices
    assert (read.id, read.index) == ("n1-nvidia-3", 3)


def test_sick_cards_and_cards_without_resources_are_unhealthy() -> None:
    cards = stocked(device(gpu(0), {**gpu(1), "health": False}, {**gpu(2), "resources": None})).devices
    assert [card.healthy for card in cards] == [True, False, False]


def test_ascend_cards_count_their_own_cores() -> None:
    (read,) = stocked(device(ascend(0, 8000), labels={VENDOR: "huawei"})).devices
    assert read.cores == 20
    assert read.extras == (("huawei.com/npu-cpu", 20), ("huawei.com/npu-dvpp", 100))


def test_rdma_and_fpga_are_devices_of_their_own() -> None:
    nic = {"type": "rdma", "id": "0000:1f:00.0", "minor": 1, "health": True, "resources": full("rdma=100")}
    node = stocked(device(gpu(0), nic, {**nic, "type": "fpga", "id": "f", "resources": full("fpga=100")}))
    assert [(each.family, each.kind, each.cores) for each in node.devices] == [
        ("fpga", FPGA, 100),
        ("nvidia", "gpu", 100),
        ("rdma", RDMA, 100),
    ]
    assert capacity(node)[SHORT["rdma"]] == 100


def test_old_resource_names_are_understood() -> None:
    card = {**gpu(0), "resources": {"kubernetes.io/gpu-core": 100, "kubernetes.io/gpu-memory": "16Gi"}}
    assert stocked(device(card)).devices[0].memory_bytes == 16 * GI


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ({"resources": {SHORT["mem"]: "much"}}, "not a quantity"),
        ({"resources": {SHORT["mem"]: "-16Gi"}}, "negative"),
        ({"resources": {SHORT["mem"]: "0.5"}}, "not a whole number"),
        ({"resources": {SHORT["core"]: "100"}}, "gpu-memory is missing"),
        ({"type": "xpu"}, "must be gpu, rdma or fpga"),
        ({"labels": {VENDOR: "acme"}}, "vendor 'acme' is unknown"),
    ],
)
def test_what_cannot_be_read_becomes_a_warning_and_the_card_is_left_out(broken: dict[str, Any], what: str) -> None:
    found = sight(device(gpu(0), {**gpu(1), **broken}))
    assert [each.index for each in found.sightings] == [0]
    (warning,) = found.warnings
    assert warning.startswith("Device n1: ")
    assert what in warning
    assert warning.endswith("the card is left out")


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["gpu", "rdma", "fpga", ""]),
                "minor": st.integers(-1, 9),
                "health": st.booleans(),
                "resources": st.none()
                | st.dictionaries(
                    st.sampled_from(sorted(SHORT.values())), st.integers(-5, 10**12) | st.text(max_size=4)
                ),
                "labels": st.none() | st.dictionaries(st.sampled_from([VENDOR, MODEL]), st.text(max_size=5)),
                "topology": st.none() | st.just({"nodeID": -1, "pcieID": "", "busID": ""}),
            }
        ),
        max_size=4,
    )
)
def test_no_device_object_breaks_sight(cards: list[dict[str, Any]]) -> None:
    found = sight(device(*cards))
    assert len(found.sightings) + len(found.warnings) == len(cards)
    one_stock("n1", [found])


def test_a_node_offers_the_dialect_by_its_device_object_or_its_resources() -> None:
    assert sight(device(gpu(0))).offered
    assert not sight(device()).offered
    assert not sight(None).offered
    assert not sight(None, seen({"nvidia.com/gpu": 8})).offered
    assert not sight(None, seen({SHORT["core"]: 0})).offered
    for name in (SHORT["gpu"], SHORT["core"], "kubernetes.io/gpu-memory-ratio"):
        assert sight(None, seen({name: "100"})).offered


def test_without_a_device_object_the_resources_tell_how_many_cards_there_are() -> None:
    found = sight(None, seen({**full("core=200 ratio=200"), SHORT["mem"]: "32Gi"}, labels=P40))
    assert found.source is Source.CAPACITY
    devices, _ = one_stock("n1", [found])
    assert [(each.id, each.memory_bytes, each.model) for each in devices] == [
        ("n1-nvidia-0", 16 * GI, "Tesla-P40"),
        ("n1-nvidia-1", 16 * GI, "Tesla-P40"),
    ]
    assert not sight(None, seen(full("core=200 ratio=200"))).sightings, "of unknown size, so that nothing can be booked"


def test_an_unknown_vendor_on_the_node_is_a_warning() -> None:
    found = sight(None, seen({**full("core=100"), SHORT["mem"]: "32Gi"}, labels={VENDOR: "acme"}))
    assert not found.sightings
    assert "acme" in found.warnings[0]


def test_the_device_object_enriches_the_cards_of_hamis_register() -> None:
    hami = Nvidia(NvidiaNames())
    register = '[{"id":"GPU-0","index":0,"count":10,"devmem":16384,"devcore":100,"type":"P40","health":true}]'
    node = seen({"nvidia.com/gpu": 10})
    node = manifest.Node(metadata=manifest.Metadata(name="n1", annotations={REGISTER: register}), status=node.status)
    card = gpu(0, 16 * GI + 512 * KI, topology={"nodeID": 0, "pcieID": "pci0000:3a", "busID": ""})
    sights = [hami.sight(node, None), DIALECT.sight(node, device({**card, "minor": 7}))]
    ((merged,), warnings) = one_stock("n1", sights)
    assert not warnings
    assert (merged.index, merged.minor, merged.pcie, merged.slots) == (0, 7, "pci0000:3a", 10)


def test_a_node_publishes_the_sums_of_its_healthy_cards() -> None:
    cards = gpu(0, 8000), gpu(1, 10000)
    assert capacity(stocked(device(*cards))) == {
        SHORT["gpu"]: 200,
        SHORT["core"]: 200,
        SHORT["mem"]: 18000,
        SHORT["ratio"]: 200,
        SHORT["shared"]: 200,
    }
    assert capacity(stocked(device(cards[0], {**cards[1], "health": False}))) == {
        SHORT["gpu"]: 100,
        SHORT["core"]: 100,
        SHORT["mem"]: 8000,
        SHORT["ratio"]: 100,
        SHORT["shared"]: 100,
    }


def test_ascend_nodes_publish_their_own_names_and_no_gpu() -> None:
    node = stocked(device(ascend(0, 8000), ascend(1, 10000), labels={VENDOR: "huawei"}))
    assert capacity(node) == {
        SHORT["ncore"]: 40,
        SHORT["ncpu"]: 40,
        SHORT["ndvpp"]: 200,
        SHORT["mem"]: 18000,
        SHORT["ratio"]: 200,
        SHORT["shared"]: 200,
    }


def test_a_node_without_healthy_cards_publishes_nothing() -> None:
    assert DIALECT.publish(Node("n1")).allocatable == {}
    assert DIALECT.publish(stocked(device({**gpu(0), "health": False}))).allocatable == {}


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA-NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla P40", "Tesla-P40"),
        ("GeForce RTX 2080 Ti", "GeForce-RTX-2080-Ti"),
    ],
)
def test_the_model_label_is_the_model_without_the_vendor(model: str, label: str) -> None:
    assert node_labels(Node("n1", (Device("a", 0, "nvidia", model),))) == {VENDOR: "nvidia", MODEL: label}


def test_cards_of_two_models_have_no_common_model_label() -> None:
    node = Node("n1", (Device("a", 0, "nvidia", "P40"), Device("b", 1, "nvidia", "T4")), labels=P40)
    assert node_labels(node) == {VENDOR: "nvidia", "node.koordinator.sh/gpu-driver-version": "535.104.05"}
    assert node_labels(Node("n1", labels=P40)) == {}


def test_the_device_object_has_koordinators_schema() -> None:
    node = stocked(device(gpu(0, "23040Mi", topology={"nodeID": 0, "pcieID": "pci0000:3a", "busID": ""}), labels=P40))
    assert device_object(node) == {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {
            "name": "n1",
            "labels": {VENDOR: "nvidia", MODEL: "Tesla-P40"},
        },
        "spec": {
            "devices": [
                {
                    "type": "gpu",
                    "labels": {VENDOR: "nvidia", MODEL: "Tesla-P40"},
                    "id": "GPU-0",
                    "minor": 0,
                    "health": True,
                    "resources": {SHORT["core"]: "100", SHORT["mem"]: "23040Mi", SHORT["ratio"]: "100"},
                    "topology": {"socketID": -1, "nodeID": 0, "pcieID": "pci0000:3a"},
                }
            ]
        },
    }


@given(
    st.lists(
        st.builds(
            Device,
            id=st.just(""),
            index=st.just(0),
            family=st.sampled_from(["nvidia", "metax", "huawei", "kunlun"]),
            model=st.sampled_from(["", "Tesla-P40", "A100-SXM4-80GB"]),
            memory_bytes=st.integers(1, 2**40),
            cores=st.integers(1, 100),
            numa=st.integers(0, 3),
            pcie=st.sampled_from(["pci0000:3a", "pci0000:5d"]),
            healthy=st.booleans(),
            extras=st.sampled_from([(), (("huawei.com/npu-cpu", 7), ("huawei.com/npu-dvpp", 100))]),
        ),
        max_size=5,
    )
)
def test_what_we_write_about_a_node_reads_the_same(cards: list[Device]) -> None:
    """Also on a node with cards of several vendors, which one label for all could not describe."""
    numbered = [msgspec.structs.replace(card, id=f"U-{i}", index=i, minor=i) for i, card in enumerate(cards)]
    again = [msgspec.structs.replace(each, labels={}) for each in stocked(reread(Node("n1", tuple(numbered)))).devices]
    assert again == sorted(numbered, key=lambda each: each.family)


def test_a_lost_card_stays_lost_when_written_and_read() -> None:
    node = stocked(device(gpu(0), {**gpu(1), "resources": None}))
    assert [each.healthy for each in stocked(reread(node)).devices] == [True, False]


def test_n8_is_read_as_it_is_written() -> None:
    assert [(each.numa, each.pcie) for each in stocked(reread(Node("n8", n8()))).devices] == [
        (i // 4, str(i // 2)) for i in range(8)
    ]
