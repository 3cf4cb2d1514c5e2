"""Node and Device objects: what is published is what is read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given

from subak.dialects import Sighting
from subak.local.hardware import objects, profiles
from subak.model import manifest
from subak.model.device import Device
from subak.node.machine import Machine
from tests.support.descriptions import nodes
from tests.support.fuzz import examples
from tests.support.machines import INTERPRETER, machine

NOW = datetime(2026, 11, 15, 8, 0, 0, 123456, UTC)
CLUSTERS = Path(__file__).parents[3] / "examples/clusters"

TOLD = {
    "hami-nvidia": {"id", "model", "slots", "numa", "mode", "healthy", "links"},
    "volcano-vgpu": {"id", "model", "slots", "mode", "healthy"},
    "volcano-share": {"healthy"},
    "koordinator": {"id", "numa", "pcie", "minor", "healthy"},
    "hami-iluvatar": set(),
    "hami-mthreads": set(),
    "hami-metax-sgpu": {"id", "slots", "numa", "mode", "healthy", "zone"},
    "hami-metax-gpu": {"pcie", "zone", "healthy"},
    **{
        f"hami-iluvatar-{model}": {"id", "model", "slots", "numa", "healthy"}
        for model in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")
    },
}
"""What a dialect has words for, besides the number of cards, their memory and their cores."""


def written(machine: Machine) -> tuple[manifest.Node, manifest.Device | None]:
    node, device = objects.node(machine, NOW), objects.device(machine, "uid")
    return (
        msgspec.convert(node, manifest.Node),
        None if device is None else msgspec.convert(device, manifest.Device),
    )


def facts(device: Device, names: set[str]) -> dict[str, Any]:
    return {name: getattr(device, name) for name in ("index", "family", "memory_bytes", "cores", *sorted(names))}


@given(nodes())
@examples(quick=30, ci=150)
def test_what_is_published_is_what_is_read(entry: dict[str, Any]) -> None:
    described = machine(**entry)
    read, warnings = INTERPRETER.node(*written(described))
    assert warnings == []
    assert read.offers == {dialect.name for dialect in described.speaks}
    told = set[str]().union(*(TOLD[name] for name in read.offers))
    assert [facts(each, told) for each in read.devices] == [facts(each, told) for each in described.devices]
    assert [each.id for each in read.devices] == [each.id for each in described.devices]
    assert [each.slots for each in read.devices] == [each.slots for each in described.devices]
    assert read.ready


@given(nodes())
@examples(quick=30, ci=150)
def test_every_dialect_reads_the_same_cards(entry: dict[str, Any]) -> None:
    described = machine(**entry)
    node, device = written(described)
    for dialect in described.speaks:
        sight = dialect.sight(node, device)
        assert sight.offered
        assert not sight.warnings
        assert len(sight.sightings) == len(described.devices)
        for position, (seen, card) in enumerate(zip(sight.sightings, described.devices, strict=True)):
            compare(seen, card, position, TOLD[dialect.name])


def compare(seen: Sighting, card: Device, position: int, told: set[str]) -> None:
    assert seen.family == card.family
    assert seen.index in (None, 0, position)  # two of the registers have no index: their order counts
    assert seen.memory_bytes == card.memory_bytes
    assert seen.cores in (None, card.cores)
    if "id" in told:
        assert seen.id == card.id
    for name in told:
        assert getattr(seen, name) in (None, getattr(card, name)), name


def test_the_volcano_node_is_the_one_that_the_document_prints() -> None:
    status = objects.node(machine("volcano"), NOW)["status"]
    printed = {
        "cpu": "4",
        "ephemeral-storage": "123722704Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "8174332Ki",
        "pods": "110",
        "volcano.sh/gpu-memory": "89424",
        "volcano.sh/gpu-number": "8",
    }
    assert status["capacity"].items() >= printed.items()
    assert status["allocatable"].items() >= printed.items()


@pytest.mark.parametrize(
    ("profile", "file", "name"),
    [
        ("volcano", "volcano", "gtx1080ti-1"),
        ("koordinator", "koordinator", "p40-1"),
        ("moore-threads", "moore-threads", "s4000-1"),
        ("iluvatar-mr-v100", "iluvatar", "mr-v100-1"),
        ("iluvatar-bi-v150", "iluvatar", "bi-v150-1"),
        ("metax-sgpu", "metax", "mxc500-sgpu-1"),
        ("metax-gpu", "metax", "mxc500-1"),
        ("shared", "shared", "shared-1"),
    ],
)
def test_a_profile_reads_like_the_node_that_was_written_by_hand(profile: str, file: str, name: str) -> None:
    documents = list(yaml.safe_load_all((CLUSTERS / f"{file}.yaml").read_text(encoding="utf-8")))
    by_hand = {each["kind"]: each for each in documents if each["metadata"]["name"] == name}
    device = msgspec.convert(by_hand["Device"], manifest.Device) if "Device" in by_hand else None
    expected, _ = INTERPRETER.node(msgspec.convert(by_hand["Node"], manifest.Node), device)
    read, warnings = INTERPRETER.node(*written(machine(profile)))
    assert warnings == []
    assert read.offers >= expected.offers
    assert read.tables == expected.tables
    for card, other in zip(read.devices, expected.devices, strict=True):
        same = ("index", "family", "memory_bytes", "cores", "zone", "healthy", "numa", "kind")
        assert {key: getattr(card, key) for key in same} == {key: getattr(other, key) for key in same}


def test_a_broken_card_counts_in_capacity_but_not_in_allocatable() -> None:
    status = objects.node(machine("shared", cards={"count": 2, "unhealthy": [1]}), NOW)["status"]
    units = {name: (status["capacity"][name], status["allocatable"][name]) for name in status["capacity"]}
    assert units["nvidia.com/gpu"] == ("20", "10")
    assert units["koordinator.sh/gpu-core"] == ("100", "100")  # koord-manager counts healthy cards only, in both
    assert units["volcano.sh/gpu-number"] == ("2", "1")
    assert units["volcano.sh/gpu-memory"] == ("46056", "23028")


def test_a_node_whose_cards_are_all_broken_has_none_left() -> None:
    status = objects.node(machine("iluvatar-bi-v150", cards={"unhealthy": [0, 1]}), NOW)["status"]
    assert status["capacity"]["iluvatar.ai/BI-V150-vgpu"] == "200"
    assert status["allocatable"]["iluvatar.ai/BI-V150-vgpu"] == "0"


def test_a_node_says_who_it_is() -> None:
    node = objects.node(machine("shared", labels={"rack": "a1"}), NOW)
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == "a10"
    assert (labels["subak.io/profile"], labels["rack"], labels["gpu"]) == ("shared", "a1", "on")
    assert labels["koordinator.sh/gpu-isolation-provider"] == "HAMi-core"
    assert (labels["node.koordinator.sh/gpu-vendor"], labels["node.koordinator.sh/gpu-model"]) == ("nvidia", "A10")
    assert node["spec"]["taints"] == [{"key": "subak.io/shared", "value": "true", "effect": "NoSchedule"}]
    assert {"type": "Hostname", "address": "a10"} in node["status"]["addresses"]
    (ready,) = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", "2026-11-15T08:00:00Z")


def test_a_lease_and_a_device_belong_to_their_node() -> None:
    lease = objects.lease("a10", "the-uid", 40, NOW)
    device = objects.device(machine("shared"), "the-uid")
    assert device is not None
    assert lease["spec"] == {
        "holderIdentity": "a10",
        "leaseDurationSeconds": 40,
        "renewTime": "2026-11-15T08:00:00.123456Z",
    }
    for owned in (lease, device):
        (owner,) = owned["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "a10", "the-uid")
    assert objects.device(machine("volcano"), "the-uid") is None


def test_only_plugins_that_answer_handshakes_write_a_sign_of_life() -> None:
    signs = {
        each.name: {
            key: text for key, text in objects.node(each, NOW)["metadata"]["annotations"].items() if "handshake" in key
        }
        for each in profiles.default(INTERPRETER)
    }
    assert {name: found for name, found in signs.items() if found} == {
        "bi-v150": {"hami.io/node-handshake-BI-V150": "Reported 2026-11-15 08:00:00"}
    }
