"""Variables by way of annotations: what admission writes, what the Binding says, and what kubelet makes of both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import downward, mark
from subak.model import manifest, variables
from subak.model.manifest import Container, EnvSource, EnvVar, FieldRef
from subak.model.reason import Refusal
from subak.policy.place import place
from subak.policy.registry import shaped
from subak.snapshot.cluster import Snapshot
from tests.support.machines import INTERPRETER, machine
from tests.support.slotted import bound, described, resolved, stored, written
from tinykube.status import ApiError

HAMI = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "10"}
SHARED = {"volcano.sh/gpu-memory": "1024"}
KOORDINATOR = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
ISOLATED = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
ASKS: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("volcano", HAMI, {}),
    ("volcano", SHARED, {}),
    ("koordinator", KOORDINATOR, ISOLATED),
    ("koordinator", KOORDINATOR, {}),
]


def asking(limits: dict[str, str]) -> dict[str, Any]:
    return {"resources": {"limits": limits, "requests": dict(limits)}}


@pytest.mark.parametrize(("profile", "limits", "labels"), ASKS, ids=lambda each: str(each)[:40])
@pytest.mark.parametrize("way", [mark.PLUGIN, ""])
def test_kubelet_gives_what_the_agent_would(
    profile: str, limits: dict[str, str], labels: dict[str, str], way: str
) -> None:
    node = described(machine(profile, taints=[]), way)
    pod = bound(stored(written(asking(limits), {}, labels=labels)), node)
    placement = INTERPRETER.placement(pod, node)
    mine, none = INTERPRETER.injections(pod, placement, node)
    assert mine.env
    assert resolved(pod, 0, dict.fromkeys(mine.env, "by the plugin")).items() >= mine.env.items()
    assert downward.mismatch(pod, 0, mine.env) == ""
    assert none.env == {}
    assert resolved(pod, 1) == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_container_sees_no_card_before_its_pod_is_bound() -> None:
    pod = stored(written({**asking(HAMI), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}))
    assert resolved(pod, 0)["NVIDIA_VISIBLE_DEVICES"] == ""
    assert [each.name for each in pod.containers[0].env or ()].count("NVIDIA_VISIBLE_DEVICES") == 1


def test_each_container_refers_to_its_own() -> None:
    node = described(machine("volcano", taints=[]))
    small, large = ({**HAMI, "nvidia.com/gpu": "1", "nvidia.com/gpumem": each} for each in ("1000", "2000"))
    pod = bound(stored(written(asking(small), {}, asking(large))), node)
    limits = [resolved(pod, position).get("CUDA_DEVICE_MEMORY_LIMIT_0") for position in range(3)]
    assert limits == ["1000m", None, "2000m"]


def test_what_the_pod_says_itself_is_compared_too() -> None:
    node = described(machine("volcano", taints=[]))
    pod = bound(stored(written(asking(HAMI))), node)
    assert "PRIORITY must be '0', but its own environment says nothing" in downward.mismatch(pod, 0, {"PRIORITY": "0"})
    own = msgspec.structs.replace(pod.containers[0], env=[EnvVar(name="PRIORITY", value="0")])
    spec = msgspec.structs.replace(pod.spec, containers=[own])
    assert downward.mismatch(msgspec.structs.replace(pod, spec=spec), 0, {"PRIORITY": "0"}) == ""


AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/gpu": st.integers(1, 4).map(str),
        "nvidia.com/gpumem": st.integers(1, 8000).map(str),
        "nvidia.com/gpumem-percentage": st.integers(1, 100).map(str),
        "nvidia.com/gpucores": st.integers(0, 100).map(str),
        "nvidia.com/priority": st.integers(0, 1).map(str),
        "volcano.sh/gpu-memory": st.integers(1, 8000).map(str),
        "volcano.sh/vgpu-number": st.integers(1, 4).map(str),
        "volcano.sh/vgpu-memory": st.integers(1, 8000).map(str),
        "koordinator.sh/gpu": st.sampled_from(["50", "100", "200"]),
        "koordinator.sh/gpu-core": st.sampled_from(["0", "30", "100", "200"]),
        "koordinator.sh/gpu-memory-ratio": st.sampled_from(["30", "100", "200"]),
    },
)
NODES = [described(machine(profile, taints=[])) for profile in ("volcano", "koordinator", "shared")]


@given(st.lists(AMOUNTS, min_size=1, max_size=3), st.booleans())
def test_whatever_a_container_gets_was_foreseen_at_admission(asks: list[dict[str, str]], isolated: bool) -> None:
    """A variable that admission did not foresee would be missing on a node without NRI."""
    try:
        pod = stored(written(*map(asking, asks), labels=ISOLATED if isolated else {}))
    except ApiError:  # admission refuses most of these
        return
    for node in NODES:
        snapshot = Snapshot([node])
        request = shaped(snapshot, INTERPRETER.request(pod), pod)
        placement = place(snapshot, request)
        if placement is None:
            continue
        placed = bound(pod, node, snapshot)
        for position, injection in enumerate(INTERPRETER.injections(placed, placement, node)):
            assert downward.mismatch(placed, position, injection.env) == ""
            assert bool(injection.env) == variables.slotted(placed.containers[position])


KEYS = st.text(st.sampled_from("ABC_019"), min_size=1, max_size=70)


@given(st.integers(0, 99), KEYS)
def test_a_reference_reads_back(number: int, name: str) -> None:
    key = variables.key(number, name)
    reference = EnvSource(field_ref=FieldRef(field_path=variables.path(key)))
    container = Container(name="c", env=[EnvVar(name="X", value_from=reference)])
    assert variables.referred(container) == {"X": key}
    assert variables.numbers(container) == {number}
    assert variables.fits(number, name) == (len(key.removeprefix("subak.io/")) <= 63)


@given(st.text())
def test_any_other_field_is_none_of_ours(path: str) -> None:
    container = Container(name="c", env=[EnvVar(name="X", value_from=EnvSource(field_ref=FieldRef(field_path=path)))])
    assert not variables.referred(container) or path.startswith("metadata.annotations['subak.io/env.")


def test_a_pod_without_references_gets_no_annotations_for_them() -> None:
    node = described(machine("volcano", taints=[]), mark.NRI)
    content = written(asking(HAMI))
    pod = INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
    placement = place(Snapshot([node]), INTERPRETER.request(pod))
    assert placement is not None
    assert not any(key.startswith(variables.STEM) for key in INTERPRETER.annotations(pod, placement, node, 0))


def test_what_cannot_mean_anything_is_refused_before() -> None:
    with pytest.raises(Refusal):
        INTERPRETER.variables(msgspec.convert(written(asking({"nvidia.com/gpu": "no"})), manifest.Pod))
