"""Slots and variables that admission gives new pods."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subak.admission.slots import slotted
from subak.model import manifest, variables
from tests.support.machines import INTERPRETER

Json = dict[str, Any]
HALF = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}


def container(name: str, limits: dict[str, str] | None = None, *env: Json) -> Json:
    resources = {"limits": dict(limits), "requests": dict(limits)} if limits else {}
    return {"name": name, "image": "none", "resources": resources, **({"env": list(env)} if env else {})}


def pod(*containers: Json, **spec: Any) -> Json:
    return {"metadata": {"name": "p", "namespace": "team"}, "spec": {"containers": list(containers), **spec}}


def references(container: Json) -> dict[str, str]:
    return variables.referred(msgspec.convert(container, manifest.Container))


def test_a_container_that_asks_for_cards_gets_one_slot_and_its_variables() -> None:
    (main,) = slotted(INTERPRETER, pod(container("c", HALF)))["spec"]["containers"]
    assert main["resources"] == {kind: {**HALF, "subak.io/slot": "1"} for kind in ("limits", "requests")}
    field = {"apiVersion": "v1", "fieldPath": "metadata.annotations['subak.io/env.0.NVIDIA_VISIBLE_DEVICES']"}
    assert main["env"][0] == {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": field}}


def test_a_pod_that_gets_no_variables_stays_as_it_is() -> None:
    for limits in (None, {"cpu": "1"}, {"metax-tech.com/gpu": "1"}):
        sent = pod(container("c", limits))
        assert slotted(INTERPRETER, sent) is sent


def test_other_containers_of_the_pod_see_no_cards() -> None:
    all_of_them = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    early = [container("early", None, all_of_them)]
    done = slotted(INTERPRETER, pod(container("c", HALF), container("other"), initContainers=early))
    for each in (done["spec"]["initContainers"][0], done["spec"]["containers"][1]):
        assert each["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        assert each["resources"] == {}


def test_what_the_user_sets_otherwise_is_kept() -> None:
    mine = {"name": "CUDA_TASK_PRIORITY", "value": "0"}, {"name": "MY", "value": "own"}
    sent = pod(container("c", {**HALF, "nvidia.com/priority": "0"}, *mine))
    (main,) = slotted(INTERPRETER, sent)["spec"]["containers"]
    assert [each for each in main["env"] if each in mine] == list(mine)
    assert "CUDA_TASK_PRIORITY" not in references(main)


def test_a_container_that_another_webhook_puts_in_front_gets_a_number_of_its_own() -> None:
    once = slotted(INTERPRETER, pod(container("c", HALF)))
    containers = [container("injected", HALF), *once["spec"]["containers"]]
    again = slotted(INTERPRETER, {**once, "spec": {**once["spec"], "containers": containers}})
    injected, main = again["spec"]["containers"]
    assert main == once["spec"]["containers"][0]
    assert {key.split(".")[2] for key in references(injected).values()} == {"1"}


AMOUNTS = st.sampled_from(
    [None, HALF, {"volcano.sh/gpu-memory": "1024"}, {"cpu": "1"}, {**HALF, "nvidia.com/gpu": "4"}]
)
ENV = st.lists(
    st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT_0", "HOME"]).map(
        lambda name: {"name": name, "value": "x"}
    )
)


@given(st.lists(st.tuples(AMOUNTS, ENV), min_size=1, max_size=4), st.integers(0, 3), st.data())
def test_done_again_it_changes_nothing_and_no_two_containers_share_an_annotation(
    asks: list[tuple[dict[str, str] | None, list[Json]]], early: int, data: st.DataObject
) -> None:
    made = [container(f"c{n}", limits, *env) for n, (limits, env) in enumerate(asks)]
    once = slotted(INTERPRETER, pod(*made[early:] or [container("last")], initContainers=made[:early]))
    assert slotted(INTERPRETER, once) == once
    containers = data.draw(st.permutations(once["spec"]["containers"]))
    moved = [container("new", HALF), *containers]
    again = slotted(INTERPRETER, {**once, "spec": {**once["spec"], "containers": moved}})
    keys = [key for each in again["spec"]["containers"] for key in references(each).values()]
    assert len(keys) == len(set(keys))
    for each in again["spec"]["containers"]:
        names = [variable["name"] for variable in each.get("env", ())]
        assert not {name for name in references(each) if names.count(name) > 1}
