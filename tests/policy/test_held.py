"""What a bound pod holds follows from the pod and its node alone; when in doubt it holds more, never less."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import MIB
from subak.model.node import Node
from subak.policy.held import Holding, held

INTERPRETER = Interpreter()
ALLOCATED = "hami.io/vgpu-devices-allocated"
MTHREADS = {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32, "mthreads.com/sgpu-core": 4}


def node(cards: int = 2, mthreads: bool = False, **more: Any) -> Node:
    """A node with cards of 16,000 MiB, and perhaps a Moore Threads card of 32 GiB."""
    register = [
        {"id": f"GPU-{i}", "index": i, "count": 10, "devmem": 16_000, "devcore": 100, "type": "NVIDIA-A100"}
        | {"health": True, **more}
        for i in range(cards)
    ]
    capacity = {"nvidia.com/gpu": 20, "volcano.sh/gpu-memory": 16_000 * cards, "volcano.sh/gpu-number": cards}
    if mthreads:
        capacity |= {"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": 64, "mthreads.com/vgpu": 1}
    content = {
        "metadata": {"name": "n1", "annotations": {"hami.io/node-nvidia-register": json.dumps(register)}},
        "status": {"capacity": capacity},
    }
    digest, warnings = INTERPRETER.node(msgspec.convert(content, manifest.Node))
    assert not warnings
    return digest


def holding(limits: dict[str, Any], record: dict[str, str], on: Node | None = None) -> Holding:
    content = {
        "metadata": {"name": "p", "annotations": record},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return held(INTERPRETER, msgspec.convert(content, manifest.Pod), on or node())


def amounts(found: Holding) -> dict[str, tuple[int, int]]:
    """MiB and cores by card."""
    return {
        share.id: (share.memory_bytes // MIB, share.cores) for grant in found.placement.grants for share in grant.shares
    }


HAMI = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4_000, "nvidia.com/gpucores": 30}


def test_a_record_that_says_what_was_asked_for_is_believed() -> None:
    found = holding(HAMI, {ALLOCATED: "GPU-1,NVIDIA,4000,30:;"})
    assert (amounts(found), found.known, found.warnings) == ({"GPU-1": (4_000, 30)}, True, ())


@pytest.mark.parametrize("record", ["GPU-1,NVIDIA,1,0:;", "GPU-1,NVIDIA,1,30:;", "GPU-1,NVIDIA,4000,0:;"])
def test_a_record_never_counts_for_less_than_the_pod_asks_for(record: str) -> None:
    assert amounts(holding(HAMI, {ALLOCATED: record})) == {"GPU-1": (4_000, 30)}


def test_a_record_of_more_counts_for_more() -> None:
    assert amounts(holding(HAMI, {ALLOCATED: "GPU-1,NVIDIA,9000,50:;"})) == {"GPU-1": (9_000, 50)}


@pytest.mark.parametrize("record", [{}, {ALLOCATED: "nonsense"}, {ALLOCATED: ";"}, {ALLOCATED: ""}])
def test_a_pod_without_a_readable_record_counts_in_full_on_every_card_that_it_may_hold(record: dict[str, str]) -> None:
    found = holding(HAMI, record)
    assert amounts(found) == {"GPU-0": (4_000, 30), "GPU-1": (4_000, 30)}
    assert not found.known
    assert found.warnings[-1].endswith("it holds; counted on each that it may hold: GPU-0, GPU-1")
    assert sum(len(grant.shares) for grant in found.counted.grants) == 1, "a quota counts as many as it asked for"


def test_a_card_that_the_node_does_not_have_may_be_any_of_its_cards_by_another_name() -> None:
    found = holding(HAMI, {ALLOCATED: "GPU-gone,NVIDIA,9000,30:;"})
    assert amounts(found) == {"GPU-0": (9_000, 30), "GPU-1": (9_000, 30)}


def test_of_two_cards_one_of_which_is_told_the_other_may_be_any() -> None:
    found = holding({**HAMI, "nvidia.com/gpu": 2}, {ALLOCATED: "GPU-2,NVIDIA,4000,30:;"}, node(4))
    assert list(amounts(found)) == ["GPU-2", "GPU-0", "GPU-1", "GPU-3"]


def test_a_card_that_the_user_does_not_admit_is_none_that_the_pod_may_hold() -> None:
    found = holding(HAMI, {"nvidia.com/nouse-gpuuuid": "GPU-0"})
    assert list(amounts(found)) == ["GPU-1"]


def test_a_pod_of_two_vendors_with_one_record_holds_the_other_vendors_card_too() -> None:
    found = holding({**HAMI, **MTHREADS}, {ALLOCATED: "GPU-1,NVIDIA,4000,30:;"}, node(mthreads=True))
    assert amounts(found) == {"GPU-1": (4_000, 30), "n1-mthreads-0": (16_384, 4)}


def test_a_whole_card_is_as_large_as_it_is_now() -> None:
    whole = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 100}
    record = {ALLOCATED: "GPU-1,NVIDIA,16000,0:;"}
    assert amounts(holding(whole, record)) == {"GPU-1": (16_000, 0)}
    assert amounts(holding(whole, record, node(devmem=24_000))) == {"GPU-1": (24_000, 0)}
    assert amounts(holding({"volcano.sh/gpu-number": 1}, {"volcano.sh/gpu-index": "1"}, node(devmem=24_000))) == {
        "GPU-1": (24_000, 100)
    }


def test_a_pod_that_cannot_mean_anything_holds_what_its_record_says() -> None:
    found = holding({"nvidia.com/gpu": "1.5"}, {ALLOCATED: "GPU-1,NVIDIA,4000,30:;"})
    assert amounts(found) == {"GPU-1": (4_000, 30)}
    assert "what it asks for is unknown" in found.warnings[0]
