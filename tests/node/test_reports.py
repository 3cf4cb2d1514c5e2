"""The vendors' plugins: the formats in which they publish cards, and what they write on pods that they served."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from subak.dialects import Dialect
from subak.model import manifest
from subak.model.node import Node
from subak.node import reports
from subak.node.machine import Machine
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.support.machines import INTERPRETER, machine

SECOND = 10**9


def published(node: Machine) -> dict[str, str]:
    return dict(node.publish().annotations)


def test_hami_registers_nvidia_cards_without_zeros() -> None:
    node = machine(
        name="n",
        cards={"vendor": "nvidia", "model": "Tesla P4", "count": 2, "memory": "8192Mi", "numa": [[0], [1]]},
        speaks=["hami"],
    )
    first, second = (each.id for each in node.devices)
    assert json.loads(published(node)["hami.io/node-nvidia-register"]) == [
        {"id": first, "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-Tesla P4", "mode": "hami-core"}
        | {"health": True},
        {"id": second, "index": 1, "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-Tesla P4", "numa": 1}
        | {"mode": "hami-core", "health": True},
    ]


def test_hami_tells_how_cards_are_connected_only_if_they_are() -> None:
    cards = {"vendor": "nvidia", "model": "A100", "count": 2, "memory": "40Gi"}
    apart = machine(name="n", cards=cards, speaks=["hami"])
    linked = machine(name="n", cards={**cards, "links": [[0, 1]]}, speaks=["hami"])
    first, second = (each.id for each in linked.devices)
    assert "hami.io/node-nvidia-score" not in published(apart)
    assert json.loads(published(linked)["hami.io/node-nvidia-score"]) == [
        {"uuid": first, "score": {second: 150}},
        {"uuid": second, "score": {first: 150}},
    ]


def test_volcano_tells_broken_cards_by_number() -> None:
    assert published(machine("volcano", speaks=["volcano"])) == {}
    broken = machine("volcano", speaks=["volcano"], cards={"unhealthy": [5, 2]})
    assert published(broken) == {"volcano.sh/gpu-unhealthy-ids": "2,5"}


def test_volcano_registers_slices_of_cards() -> None:
    node = machine("koordinator", speaks=["volcano-vgpu"], cards={"unhealthy": [1]})
    first, second = (each.id for each in node.devices)
    assert published(node) == {
        "volcano.sh/node-vgpu-register": (
            f"{first},10,23040,NVIDIA-Tesla P40,true,hami-core:{second},10,23040,NVIDIA-Tesla P40,false,hami-core:"
        )
    }


def test_iluvatar_registers_in_seven_fields() -> None:
    node = machine("iluvatar-bi-v150")
    first, second = (each.id for each in node.devices)
    assert published(node) == {
        "hami.io/node-BI-V150-register": (
            f"{first},100,65536,100,BI-V150,0,true:{second},100,65536,100,BI-V150,1,true:"
        )
    }
    assert published(machine("iluvatar-mr-v100")) == {}


def test_metax_registers_shared_cards_with_their_link_zones() -> None:
    (text,) = published(machine("metax-sgpu")).values()
    cards = json.loads(text)
    assert [each["linkZone"] for each in cards] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert {(each["model"], each["totalDevCount"], each["totalCompute"], each["totalVRam"]) for each in cards} == {
        ("sgpu", 16, 100, 65536)
    }


def test_metax_tells_what_its_free_cards_are_worth_together() -> None:
    """The figures are those of the vendor's tables for two groups of four, all free or without cards 1 and 2."""
    node = machine("metax-gpu")
    annotations = reports.in_use(node, node.devices)
    key = "metax-tech.com/gpu.topology."
    assert json.loads(annotations[f"{key}scores"])["4"] == 660
    assert list(json.loads(annotations[f"{key}losses"]).values()) == [370, 520, 450, 160, 450, 520, 370, 0]
    used = reports.in_use(node, [each for each in node.devices if each.index not in (1, 2)])
    assert list(json.loads(used[f"{key}scores"]).values()) == [0, 110, 330, 660, 700, 850]
    assert list(json.loads(used[f"{key}losses"]).values()) == [150, 80, 390, 80, 150, 0]
    groups = json.loads(used[f"{key}zones"])
    assert [(each["type"], each["capacity"], each["available"]) for each in groups] == [
        ("DirectLink", [0, 1, 2, 3], [0, 3]),
        ("DirectLink", [4, 5, 6, 7], [4, 5, 6, 7]),
        ("PCIeSwitch", [0, 1, 2, 3], [0, 3]),
        ("PCIeSwitch", [4, 5, 6, 7], [4, 5, 6, 7]),
    ]


def bound(profile: str, limits: dict[str, Any], **metadata: Any) -> tuple[manifest.Pod, Dialect]:
    """A pod with its annotations as binding leaves them, and the dialect in which it was placed."""
    node = machine(profile)
    digest, _ = node.digest(INTERPRETER)
    content = {
        "metadata": {"name": "p", **metadata},
        "spec": {"containers": [{"name": "side"}, {"name": "c", "resources": {"limits": limits}}]},
    }
    pod = INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
    placement = place(Snapshot([digest]), INTERPRETER.request(pod))
    assert placement is not None
    annotations = {**pod.annotations, **INTERPRETER.annotations(pod, placement, digest, 1_700_000_000 * SECOND)}
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
    return pod, INTERPRETER.by_name[placement.grants[0].dialect]


HAMI = {"hami.io/bind-phase": "success"}


@pytest.mark.parametrize(
    ("profile", "limits", "written"),
    [
        (
            "koordinator",
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000},
            {**HAMI, "hami.io/vgpu-devices-to-allocate": ";;"},
        ),
        ("volcano", {"volcano.sh/gpu-memory": 1024}, {"volcano.sh/gpu-assigned": "true"}),
        ("koordinator", {"koordinator.sh/gpu": 50}, {}),
        ("moore-threads", {"mthreads.com/vgpu": 1}, HAMI),
        (
            "iluvatar-mr-v100",
            {"iluvatar.ai/vgpu": 1, "iluvatar.ai/vcuda-core": 50},
            {
                **HAMI,
                "hami.io/iluvatar-vgpu-devices-to-allocate": ";;",
                "iluvatar.ai/gpu-assigned": "true",
            },
        ),
        (
            "iluvatar-bi-v150",
            {"iluvatar.ai/BI-V150-vgpu": 1},
            {**HAMI, "hami.io/BI-V150-devices-to-allocate": ";;", "iluvatar.ai/gpu-assigned": "true"},
        ),
        ("metax-sgpu", {"metax-tech.com/sgpu": 1}, {**HAMI, "hami.io/metax-sgpu-devices-to-allocate": ";;"}),
        ("metax-gpu", {"metax-tech.com/gpu": 2}, {**HAMI, "hami.io/metax-gpu-devices-to-allocate": ";;"}),
    ],
)
def test_a_served_pod_is_marked_as_its_vendor_does(
    profile: str, limits: dict[str, Any], written: dict[str, str]
) -> None:
    pod, dialect = bound(profile, limits)
    assert reports.success(dialect, pod) == written
    assert reports.success(dialect, pod).keys() <= dialect.owned


def test_a_served_pod_still_holds_its_cards() -> None:
    pod, dialect = bound("koordinator", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000})
    annotations = {**pod.annotations, **reports.success(dialect, pod)}
    after = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
    node = Node("p40")
    assert INTERPRETER.placement(after, node) == INTERPRETER.placement(pod, node)
    assert INTERPRETER.placement(pod, node).grants


def test_a_pod_that_cannot_be_served_is_marked_where_the_vendor_has_a_mark() -> None:
    marks = {
        profile: reports.failure(bound(profile, limits)[1])
        for profile, limits in (
            ("metax-sgpu", {"metax-tech.com/sgpu": 1}),
            ("volcano", {"volcano.sh/gpu-memory": 1024}),
        )
    }
    assert marks == {"metax-sgpu": {"hami.io/bind-phase": "failed"}, "volcano": {}}
