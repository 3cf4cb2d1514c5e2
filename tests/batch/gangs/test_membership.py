"""To which group a pod belongs, in all words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.batch import gangs
from subak.batch.gangs import Membership, key, koordinator, membership, plugins, volcano
from subak.model import manifest
from subak.model.group import Words, volcano_group
from subak.model.reason import Refusal
from tests.support.fuzz import examples

GANG = koordinator.PREFIX


def pod(
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> manifest.Pod:
    metadata = {"name": "p", "namespace": namespace, "annotations": annotations, "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": spec}, manifest.Pod)


def gang(**words: str) -> dict[str, str]:
    """Annotations of Koordinator's, `_` for `-`."""
    return {GANG + name.replace("_", "-"): text for name, text in words.items()}


def known(pod: manifest.Pod) -> Membership:
    found = membership(pod)
    assert found is not None
    return found


def refused(pod: manifest.Pod) -> Refusal:
    with pytest.raises(Refusal) as error:
        membership(pod)
    return error.value


def test_a_pod_that_names_no_group_is_by_itself() -> None:
    assert membership(pod()) is None
    assert membership(pod({"some": "thing"}, {"app": "x"})) is None
    assert membership(pod({volcano.GROUP: ""}, {plugins.GROUP: ""})) is None


def test_volcanos_annotation_names_a_group_and_a_role() -> None:
    found = known(pod({volcano.GROUP: "train", volcano.OLDER_GROUP: "other", volcano.ROLE: "worker"}))
    assert found == Membership(Words.VOLCANO, "default/train", role="worker")
    assert known(pod({volcano.OLDER_GROUP: "other"}, namespace="team")).name == "team/other"


@pytest.mark.parametrize(
    ("annotations", "group"),
    [
        pytest.param({volcano.GROUP: "my-pg"}, "default/my-pg", id="R15-kubernetes"),
        pytest.param({volcano.OLDER_GROUP: "my-pg"}, "default/my-pg", id="R15-volcano"),
        pytest.param({volcano.GROUP: "a", volcano.OLDER_GROUP: "b"}, "default/a", id="R15-both"),
        pytest.param({}, "", id="R15-none"),
    ],
)
def test_case_the_group_of_a_vgpu_pod(annotations: dict[str, str], group: str) -> None:
    assert volcano_group(pod(annotations)) == group


def test_a_place_in_a_network_is_refused_where_no_object_decides_about_it() -> None:
    wish = {volcano.TOPOLOGY_MODE: "hard"}
    refusal = refused(pod(wish, schedulerName="volcano"))
    assert refusal.field == f"metadata.annotations[{volcano.TOPOLOGY_MODE}]"
    assert "HyperNodes" in refusal.message
    assert membership(pod({volcano.TOPOLOGY_MODE: "soft"}, schedulerName="volcano")) is None
    assert membership(pod(wish, schedulerName="hami-scheduler")) is None
    assert known(pod({**wish, volcano.GROUP: "train"}, schedulerName="volcano")).name == "default/train"


def test_the_scheduler_plugins_label_names_a_group() -> None:
    assert known(pod(labels={plugins.GROUP: "train"})) == Membership(Words.PLUGINS, "default/train")


def test_kubernetes_own_field_names_a_group() -> None:
    found = known(pod(schedulingGroup={"podGroupName": "train"}))
    assert found == Membership(Words.KUBERNETES, "default/train")
    for stated in ({}, {"podGroupName": None}, {"another": "x"}, "train", 5):
        assert refused(pod(schedulingGroup=stated)).field == "spec.schedulingGroup"


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        (gang(name="train", min_available="4"), {}),
        ({}, {koordinator.LIGHT_NAME: "train", koordinator.LIGHT_MIN: "4"}),
        ({koordinator.LIGHT_NAME: "train", koordinator.LIGHT_MIN: "4"}, {}),
        (gang(min_available="9"), {koordinator.LIGHT_NAME: "train", koordinator.LIGHT_MIN: "4"}),
    ],
)
def test_koordinators_gangs_say_themselves_how_many_start(annotations: dict[str, str], labels: dict[str, str]) -> None:
    assert known(pod(annotations, labels)) == Membership(Words.KOORDINATOR, "default/train", 4)


def test_koordinators_label_leaves_the_rest_to_the_object() -> None:
    found = known(pod(gang(min_available="9"), {koordinator.OBJECT: "train"}))
    assert found == Membership(Words.KOORDINATOR, "default/train")


def test_koordinators_waiting_time_is_the_timeout() -> None:
    words = gang(name="train", min_available="4", waiting_time="1h30m", total_number="6", mode="Strict")
    assert known(pod(words)).timeout == 5_400
    assert known(pod(words | gang(waiting_time="1.5s500ms"))).timeout == 2


def test_nonstrict_means_strict_and_says_so() -> None:
    found = known(pod(gang(name="train", min_available="4", mode="NonStrict")))
    assert found.min_member == 4
    (warning,) = found.warnings
    assert "NonStrict" in warning


def test_gangs_that_start_together_are_one_job_with_a_role_for_each() -> None:
    groups = json.dumps(["team/b", "default/a"])
    a = known(pod(gang(name="a", min_available="3", groups=groups)))
    b = known(pod(gang(name="b", min_available="2", groups=json.dumps(["default/a", "team/b"])), namespace="team"))
    assert a.name == b.name == "default/a,team/b"
    assert (a.role, a.min_roles) == ("default/a", (("default/a", 3), ("team/b", 1)))
    assert (b.role, b.min_roles) == ("team/b", (("default/a", 1), ("team/b", 2)))


def test_a_bundle_of_one_is_a_gang() -> None:
    found = known(pod(gang(name="a", min_available="3", groups='["default/a"]')))
    assert found == Membership(Words.KOORDINATOR, "default/a", 3)


@pytest.mark.parametrize(
    ("words", "field", "remedy"),
    [
        ({"min_available": "many"}, "min-available", "whole number"),
        ({"min_available": "-1"}, "min-available", "whole number"),
        ({"min_available": "4", "total_number": "3"}, "total-number", "raise it"),
        ({"waiting_time": "soon"}, "waiting-time", "such as 90s"),
        ({"waiting_time": "0s"}, "waiting-time", "such as 90s"),
        ({"waiting_time": "5"}, "waiting-time", "such as 90s"),
        ({"mode": "strict"}, "mode", "'Strict' or 'NonStrict'"),
        ({"match_policy": "only-waiting"}, "match-policy", "give 'waiting-and-running', or remove it"),
        ({"match_policy": "once-satisfied"}, "match-policy", "give 'waiting-and-running', or remove it"),
        ({"network_topology_spec": "{}"}, "network-topology-spec", "remove it"),
        ({"made_up": "x"}, "made-up", "remove it"),
        ({"min_available": "1", "groups": "[1]"}, "groups", '["default/train"]'),
        ({"min_available": "1", "groups": '["train"]'}, "groups", "NAMESPACE/NAME"),
        ({"min_available": "1", "groups": '["default/other"]'}, "groups", "add default/train"),
        ({"groups": '["default/train", "default/other"]'}, "groups", "min-available"),
    ],
)
def test_what_koordinators_words_cannot_mean_is_refused_by_name(words: dict[str, str], field: str, remedy: str) -> None:
    refusal = refused(pod(gang(name="train") | gang(**words)))
    assert refusal.field == f"metadata.annotations[{GANG}{field}]"
    assert remedy in refusal.message
    assert refusal.value == gang(**words)[GANG + field]


def test_members_that_run_count_which_koordinator_calls_waiting_and_running() -> None:
    assert known(pod(gang(name="a", min_available="1", match_policy="waiting-and-running"))).min_member == 1
    alias = {koordinator.LIGHT_MATCH: "only-waiting"}
    assert refused(pod(gang(name="a") | alias)).field == f"metadata.annotations[{koordinator.LIGHT_MATCH}]"


def test_koordinators_own_note_is_no_wish() -> None:
    assert known(pod(gang(name="a", min_available="1", timeout="true"))).min_member == 1


def test_a_minimum_without_a_name_is_refused() -> None:
    assert "name the gang" in refused(pod(gang(min_available="4"))).message


def test_a_name_that_no_object_can_have_is_refused() -> None:
    for words in ({volcano.GROUP: "My Group"}, gang(name="a/b"), {volcano.GROUP: "x" * 300}):
        assert "no name of a group" in refused(pod(words)).message


def test_a_pod_in_two_groups_is_refused_with_both_names() -> None:
    refusal = refused(pod({volcano.GROUP: "one"}, {plugins.GROUP: "two"}))
    assert refusal.field == f"metadata.labels[{plugins.GROUP}]"
    assert "default/one" in refusal.message
    assert "default/two" in refusal.message


def test_the_same_name_in_two_words_is_one_group() -> None:
    assert known(pod({volcano.GROUP: "one"}, {plugins.GROUP: "one"})).words == Words.VOLCANO


WORDS = (
    volcano.GROUP,
    volcano.OLDER_GROUP,
    volcano.ROLE,
    volcano.TOPOLOGY_MODE,
    plugins.GROUP,
    koordinator.OBJECT,
    koordinator.LIGHT_NAME,
    koordinator.LIGHT_MIN,
    koordinator.LIGHT_MATCH,
    *sorted(koordinator.KNOWN),
    GANG + "network-topology-spec",
)
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["a", "b", "4", "0", "90s", "Strict", "NonStrict", '["default/a"]', '["default/a","x/b"]', "[[", ""]
    ),
    st.lists(st.text(max_size=8)).map(json.dumps),
)
METADATA = st.none() | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=10), VALUES, max_size=8)
GROUPS = st.none() | st.fixed_dictionaries({"podGroupName": VALUES}) | VALUES


@examples(quick=100, ci=1_000)
@given(METADATA, METADATA, GROUPS)
def test_whatever_a_pod_says_it_is_in_a_group_by_itself_or_refused(
    annotations: dict[str, str] | None, labels: dict[str, str] | None, group: Any
) -> None:
    stated = pod(annotations, labels, schedulingGroup=group, schedulerName="volcano")
    try:
        found = membership(stated)
    except Refusal:
        return
    assert found == membership(stated)
    if found is not None:
        assert found.name.partition("/")[0]
        assert hash(found) == hash(membership(stated))
        assert gangs.agreed([found]) == gangs.agreed([found, found])


@given(METADATA, METADATA)
def test_equal_words_give_equal_keys(annotations: dict[str, str] | None, labels: dict[str, str] | None) -> None:
    try:
        one, other = membership(pod(annotations, labels)), membership(pod(annotations, labels))
    except Refusal:
        return
    if one is not None and other is not None:
        assert key(one.words, one.name) == key(other.words, other.name)
        assert key(one.words, one.name) != key("", one.name)
