"""Nodes without NRI take only pods that are ready for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from subak.dialects import mark
from subak.model import manifest
from subak.model.device import MIG
from subak.model.variables import SLOT
from subak.policy.by_variables import WAY, ByVariables
from subak.policy.decider import Decider
from tests.support.machines import INTERPRETER, machine
from tests.support.slotted import described, stored, written

HALF: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}}}


def told(pod: manifest.Pod, way: str) -> str:
    """What a node of this way says to the pod."""
    decider = Decider(INTERPRETER)
    decider.snapshot.put([described(machine("shared", taints=[]), way)])
    return str(decider.explain(pod))


def unprepared(content: dict[str, Any]) -> manifest.Pod:
    """The pod as it is without our webhook."""
    return INTERPRETER.admit(msgspec.convert(content, manifest.Pod))


def test_a_pod_that_admission_has_prepared_goes_anywhere() -> None:
    for way in (mark.PLUGIN, mark.NRI, ""):
        assert told(stored(written(HALF)), way) == "1 of 1 nodes fit"


def test_a_pod_that_was_created_without_admission_waits_and_is_told_why() -> None:
    pod = unprepared(written(HALF))
    assert told(pod, mark.PLUGIN) == (
        "0 of 1 nodes fit: 1 node: no NRI: the pod has no subak.io/slot and no variables; "
        "create it again while Subak's webhook is up (NodeWithoutNRI)"
    )
    assert told(pod, mark.NRI) == told(pod, "") == "1 of 1 nodes fit"


def test_a_slot_alone_is_not_enough() -> None:
    limits = {**HALF["resources"]["limits"], "subak.io/slot": "1"}
    assert "NodeWithoutNRI" in told(unprepared(written({"resources": {"limits": limits}})), mark.PLUGIN)


def test_every_container_with_cards_must_be_ready() -> None:
    pod = stored(written(HALF))
    both = msgspec.structs.replace(
        pod.spec, containers=[*pod.spec.containers, *unprepared(written(HALF, name="other")).spec.containers]
    )
    assert "NodeWithoutNRI" in told(msgspec.structs.replace(pod, spec=both), mark.PLUGIN)


def test_a_pod_without_cards_needs_no_slot() -> None:
    assert told(unprepared(written({})), mark.PLUGIN) == "1 of 1 nodes fit"


def test_init_containers_get_no_cards_there_but_sidecars_do() -> None:
    early = {"name": "early", **HALF}
    for container, fits in (early, False), ({**early, "restartPolicy": "Always"}, True):
        content = written({})
        content["spec"]["initContainers"] = [container]
        assert ("init containers get no cards there" not in told(stored(content), mark.PLUGIN)) == fits
        assert told(stored(content), mark.NRI) == "1 of 1 nodes fit"


def test_slots_count_where_there_are_any_and_nowhere_else() -> None:
    pod = stored(written(HALF))
    decider = Decider(INTERPRETER)
    node = described(machine("shared", taints=[]))
    decider.snapshot.put([replace(node, allocatable={**node.allocatable, SLOT: 0})])
    assert "at most 0 subak.io/slot free, 1 asked" in str(decider.explain(pod))


def test_variables_must_not_hide_instances_that_a_vendors_agent_names() -> None:
    for way, fits in (("", False), (mark.NRI, True)):
        node = described(machine("shared", taints=[]), way)
        cut = replace(node, devices=tuple(msgspec.structs.replace(each, mode=MIG) for each in node.devices))
        refusal = ByVariables().refuse(cut, Decider(INTERPRETER).request(stored(written(HALF))))
        assert (refusal is None) == fits
        assert ByVariables().refuse(cut, Decider(INTERPRETER).request(unprepared(written(HALF)))) is None


def test_the_word_for_such_nodes_is_that_of_the_mark() -> None:
    assert WAY == mark.PLUGIN
