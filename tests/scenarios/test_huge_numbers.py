"""Absurdly large numbers from any source never stop the other pods: the ledger adds in 64 bits and stays exact."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.reason import Refusal
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot

HUGE = 10**30

INTERPRETER = Interpreter()


def node(name: str, capacity: dict[str, Any], annotations: dict[str, str] | None = None) -> tuple[Node, list[str]]:
    content = {"metadata": {"name": name, "annotations": annotations}, "status": {"capacity": capacity}}
    return INTERPRETER.node(msgspec.convert(content, manifest.Node))


def pod(limits: dict[str, Any], annotations: dict[str, str] | None = None) -> manifest.Pod:
    content = {
        "metadata": {"name": "pod", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return msgspec.convert(content, manifest.Pod)


def card(**facts: Any) -> dict[str, str]:
    whole = {"id": "GPU-0", "count": 10, "devmem": 1000, "devcore": 100, "type": "NVIDIA-T4", "health": True}
    return {"hami.io/node-nvidia-register": json.dumps([{**whole, **facts}])}


@pytest.mark.parametrize(
    ("capacity", "annotations"),
    [
        ({}, card(devmem=HUGE)),
        ({}, card(count=HUGE)),
        ({}, card(devcore=HUGE)),
        ({}, card(devmem=-1)),
        ({"mthreads.com/sgpu-core": 16 * HUGE, "mthreads.com/sgpu-memory": HUGE}, {}),
        ({"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": HUGE}, {}),
        ({"iluvatar.ai/vcuda-core": 100 * HUGE, "iluvatar.ai/vcuda-memory": HUGE}, {}),
        ({"metax-tech.com/gpu": HUGE}, {}),
        (
            {"metax-tech.com/gpu": 2 * HUGE},
            {"metax-tech.com/gpu.topology.zones": json.dumps([{"type": "DirectLink", "capacity": HUGE}])},
        ),
        ({"volcano.sh/gpu-number": HUGE, "volcano.sh/gpu-memory": HUGE}, {}),
        ({"koordinator.sh/gpu-core": HUGE, "koordinator.sh/gpu-memory": HUGE}, {}),
    ],
)
def test_a_node_with_an_impossible_card_is_told_of_and_the_others_are_used(
    capacity: dict[str, Any], annotations: dict[str, str]
) -> None:
    odd, warnings = node("a-odd", capacity, annotations)
    assert warnings
    assert not odd.devices
    good, _ = node("good", {"volcano.sh/gpu-number": 2, "volcano.sh/gpu-memory": 2000})
    found = place(Snapshot([odd, good]), INTERPRETER.request(pod({"volcano.sh/gpu-memory": 1000})))
    assert found is not None
    assert found.node == "good"


def test_a_node_may_claim_any_amount_of_cpu_and_memory() -> None:
    large, _ = node("large", {"cpu": HUGE, "memory": str(HUGE), "volcano.sh/gpu-number": 1, "volcano.sh/gpu-memory": 9})
    request = INTERPRETER.request(pod({"cpu": 1, "volcano.sh/gpu-memory": 9}))
    assert place(Snapshot([large]), request) is not None


@pytest.mark.parametrize(
    "limits",
    [
        {"cpu": HUGE},
        {"memory": str(HUGE)},
        {"example.com/thing": HUGE},
        {"nvidia.com/gpu": HUGE},
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": HUGE},
        {"volcano.sh/gpu-number": HUGE},
        {"volcano.sh/vgpu-number": HUGE},
        {"koordinator.sh/gpu": 100 * HUGE},
        {"koordinator.sh/gpu-memory": str(HUGE)},
        {"koordinator.sh/rdma": 100 * HUGE},
        {"iluvatar.ai/vgpu": HUGE},
        {"mthreads.com/vgpu": HUGE},
        {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": HUGE},
        {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": str(HUGE)},
        {"metax-tech.com/gpu": HUGE},
    ],
)
def test_a_pod_that_asks_for_the_impossible_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        INTERPRETER.admit(pod(limits))
    assert refused.value.field.startswith("spec.containers[0].resources")


@pytest.mark.parametrize(
    ("limits", "record"),
    [
        ({"nvidia.com/gpu": 1}, {"hami.io/vgpu-devices-allocated": f"GPU-0,NVIDIA,{HUGE},10:;"}),
        ({"nvidia.com/gpu": 1}, {"hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,-5,10:;"}),
        ({"volcano.sh/vgpu-number": 1}, {"volcano.sh/vgpu-ids-new": f"GPU-0,NVIDIA,10,{HUGE}:;"}),
        (
            {"koordinator.sh/gpu": 100},
            {
                "scheduling.koordinator.sh/device-allocated": json.dumps(
                    {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-memory": HUGE}}]}
                )
            },
        ),
    ],
)
def test_a_record_that_cannot_be_true_is_malformed(limits: dict[str, Any], record: dict[str, str]) -> None:
    home, _ = node("home", {}, card())
    with pytest.raises(ValueError, match=r"."):
        INTERPRETER.placement(pod(limits, record), home)
