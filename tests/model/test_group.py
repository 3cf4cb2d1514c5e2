"""What the objects that define groups say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.batch import gangs
from subak.model.group import (
    GROUPS,
    KOORDINATOR_GROUPS,
    KUBERNETES_GROUPS,
    PLUGIN_GROUPS,
    VOLCANO_GROUPS,
    Group,
    Words,
)
from tinykube.resource import Resource

GANG = "gang.scheduling.koordinator.sh/"


def group(resource: Resource, status: Any = None, annotations: dict[str, str] | None = None, **spec: Any) -> Group:
    metadata = {"name": "train", "namespace": "team", "uid": "u", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, GROUPS[resource]).as_group()


def test_volcanos_group() -> None:
    found = group(
        VOLCANO_GROUPS,
        {"phase": "Inqueue"},
        minMember=3,
        minTaskMember={"ps": 1},
        queue="a",
        priorityClassName="high",
        minResources={"cpu": 2},
    )
    assert (found.words, found.key, found.uid) == (Words.VOLCANO, "team/train", "u")
    assert (found.min_member, found.min_roles, found.queue) == (3, {"ps": 1}, "a")
    assert (found.priority_class, found.phase, found.min_resources) == ("high", "Inqueue", {"cpu": 2})
    assert (found.refusal, found.warnings) == ("", ())


def test_a_place_in_a_network_is_refused_or_not_heeded() -> None:
    for topology in ({}, {"mode": "hard", "highestTierAllowed": 2}):
        found = group(VOLCANO_GROUPS, minMember=3, networkTopology=topology)
        assert found.refusal.startswith("PodGroup team/train: spec.networkTopology: ")
        assert "set its mode to soft" in found.refusal
    soft = group(VOLCANO_GROUPS, minMember=3, networkTopology={"mode": "soft"})
    assert soft.refusal == ""
    assert "spec.networkTopology" in soft.warnings[0]


def test_groups_within_a_group_are_refused() -> None:
    found = group(VOLCANO_GROUPS, minMember=3, subGroupPolicy=[{"name": "a"}])
    assert "spec.subGroupPolicy" in found.refusal


@pytest.mark.parametrize(
    ("resource", "words"), [(PLUGIN_GROUPS, Words.PLUGINS), (KOORDINATOR_GROUPS, Words.KOORDINATOR)]
)
def test_the_scheduler_plugins_group_and_koordinators(resource: Resource, words: str) -> None:
    found = group(resource, {"phase": "Finished"}, minMember=3, minResources={"cpu": "2"}, scheduleTimeoutSeconds=60)
    assert (found.words, found.key, found.min_member) == (words, "team/train", 3)
    assert (found.min_resources, found.timeout, found.phase) == ({"cpu": "2"}, 60.0, "Completed")
    assert group(resource, {"phase": "Pending"}, scheduleTimeoutSeconds=0).timeout is None
    assert group(resource, {"phase": "PreScheduling"}).phase == ""


def test_kubernetes_own_gang() -> None:
    found = group(
        KUBERNETES_GROUPS,
        schedulingPolicy={"gang": {"minCount": 4}},
        podGroupTemplateRef={"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        priorityClassName="high",
        disruptionMode="Pod",
    )
    assert (found.words, found.min_member, found.priority_class) == (Words.KUBERNETES, 4, "high")
    assert (found.refusal, found.phase) == ("", "")


def test_a_basic_group_places_its_pods_one_by_one() -> None:
    found = group(KUBERNETES_GROUPS, schedulingPolicy={"basic": {}})
    assert (found.min_member, found.refusal) == (1, "")


def test_a_group_that_has_its_places_was_whole_once() -> None:
    conditions = [{"type": "PodGroupScheduled", "status": "True"}]
    assert group(KUBERNETES_GROUPS, {"conditions": conditions}, schedulingPolicy={"basic": {}}).phase == "Running"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedulingPolicy": {}}, "spec.schedulingPolicy"),
        ({"schedulingConstraints": {"topology": [{"key": "rack"}]}}, "spec.schedulingConstraints.topology"),
        ({"resourceClaims": [{"name": "c"}]}, "spec.resourceClaims"),
        ({"disruptionMode": "PodGroup"}, "spec.disruptionMode"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(spec: dict[str, Any], field: str) -> None:
    found = group(KUBERNETES_GROUPS, **({"schedulingPolicy": {"gang": {"minCount": 4}}} | spec))
    assert found.refusal.startswith(f"PodGroup team/train: {field}: ")
    assert gangs.refusal(found) == found.refusal


@pytest.mark.parametrize(
    ("annotations", "part"),
    [
        ({"mode": "Strict", "total-number": "9"}, ""),
        ({"mode": "Loose"}, "[gang.scheduling.koordinator.sh/mode] is 'Loose'"),
        ({"network-topology-spec": "{}"}, "network-topology-spec] is not supported"),
        ({"groups": '["team/train","team/eval"]'}, "is read from pods only"),
        ({"groups": "nonsense"}, "must be a JSON list of gangs"),
    ],
)
def test_koordinators_annotations_on_a_group(annotations: dict[str, str], part: str) -> None:
    found = group(
        KOORDINATOR_GROUPS, annotations={GANG + name: text for name, text in annotations.items()}, minMember=2
    )
    told = gangs.refusal(found)
    assert part in told
    assert bool(told) == bool(part)
    assert not told or told.startswith("PodGroup team/train: ")
