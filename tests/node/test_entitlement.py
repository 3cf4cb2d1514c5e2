"""A record is honoured only as far as the pod's request."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.node.arbiter import Arbiter
from subak.node.entitlement import entitled
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.node.test_arbiter import HALF, bound
from tests.support.descriptions import limits, nodes
from tests.support.fuzz import examples
from tests.support.machines import INTERPRETER, machine

A10 = machine("shared", taints=[])
NODE = A10.digest(INTERPRETER)[0]
RECORD = "hami.io/vgpu-devices-allocated"


def recorded(text: str, limits: dict[str, str] | None = None) -> list[dict[str, str]]:
    """The variables of the containers of a pod with this record, where CARD stands for the node's card."""
    pod = bound(A10, "p", limits or HALF)
    annotations = {**pod.annotations, RECORD: text.replace("CARD", A10.devices[0].id)}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return [each.env for each in Arbiter(A10, INTERPRETER).admit(msgspec.structs.replace(pod, metadata=metadata))]


def test_more_memory_and_cores_than_asked_for_are_not_given() -> None:
    limits = {**HALF, "nvidia.com/gpucores": "30"}
    mine, _ = recorded("CARD,NVIDIA,20000,90:;;", limits)
    assert (mine["CUDA_DEVICE_MEMORY_LIMIT_0"], mine["CUDA_DEVICE_SM_LIMIT"]) == ("12000m", "30")
    mine, _ = recorded("CARD,NVIDIA,0,0:;;", limits)  # 0 would mean no limit at all
    assert (mine["CUDA_DEVICE_MEMORY_LIMIT_0"], mine["CUDA_DEVICE_SM_LIMIT"]) == ("12000m", "30")


def test_less_than_asked_for_is_what_the_container_gets_but_it_counts_in_full() -> None:
    arbiter = Arbiter(A10, INTERPRETER)
    pod = bound(A10, "p", HALF)
    text = f"{A10.devices[0].id},NVIDIA,10,0:;;"
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, RECORD: text})
    mine, _ = arbiter.admit(msgspec.structs.replace(pod, metadata=metadata))
    assert mine.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "10m"
    with pytest.raises(Refusal, match="which would overcommit the card"):
        arbiter.admit(bound(A10, "q", HALF))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CARD,NVIDIA,12000,0:CARD,NVIDIA,12000,0:;;", "gives container c 2 cards .*, it asks for 1"),
        ("CARD,NVIDIA,12000,0:;CARD,NVIDIA,1000,0:;", "gives container side 1 card .*, which it does not ask for"),
    ],
)
def test_a_forged_record_gives_nothing(text: str, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        recorded(text)


def test_a_record_of_another_node_gives_nothing() -> None:
    pod = bound(A10, "p", HALF)
    other = Arbiter(replace(A10, name="elsewhere"), INTERPRETER)
    with pytest.raises(Refusal, match="is of node a10, this is node elsewhere"):
        other.admit(pod)


def test_what_the_scheduler_writes_is_what_the_pod_may_have() -> None:
    for asked in (HALF, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "33"}):
        pod = bound(A10, "p", asked)
        placement = INTERPRETER.placement(pod, NODE)
        assert entitled(pod, placement, INTERPRETER.request(pod).claims, NODE) == placement
    assert entitled(pod, Placement("a10"), (), NODE) == Placement("a10")


@given(st.data())
@examples(quick=30, ci=200)
def test_whatever_the_scheduler_writes_in_any_dialect_the_node_gives_unchanged(data: st.DataObject) -> None:
    described = machine(**data.draw(nodes()))
    node, _ = described.digest(INTERPRETER)
    snapshot = Snapshot([node])
    for number in range(data.draw(st.integers(1, 8))):
        dialect = data.draw(st.sampled_from(sorted(node.offers)))
        container = {"name": "c", "resources": {"limits": data.draw(limits(dialect))}}
        pod = msgspec.convert({"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}, manifest.Pod)
        placement = place(snapshot, INTERPRETER.request(pod))
        if placement is None:
            continue
        snapshot.assume(pod.key, placement)
        written = INTERPRETER.annotations(pod, placement, node, 10**18)
        metadata = manifest.Metadata(name=pod.name, uid=pod.name, annotations=written)
        bound = msgspec.structs.replace(
            pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=described.name)
        )
        claims = INTERPRETER.request(bound).claims
        recorded = INTERPRETER.placement(bound, node)
        assert entitled(bound, recorded, claims, node) == recorded
