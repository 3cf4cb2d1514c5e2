"""What a `volcano-scheduler.conf` may say, and what its writer is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from subak.batch import registry
from subak.batch.configuration import DEFAULT, FLAGS, Configuration
from subak.batch.parser import parse
from subak.batch.volcano import (
    ABSENT_ACTIONS,
    ABSENT_PLUGINS,
    ACTION_ARGUMENTS,
    ALWAYS,
    ARGUMENTS_WITHOUT_EFFECT,
    FLAGS_WITHOUT_EFFECT,
)
from tests.batch.test_cases_q import SEED
from tests.support.bombs import BOMB

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "batch.md"


def warnings(plugin: str, more: str = "") -> tuple[str, ...]:
    return parse(f"actions: allocate\n{more}\ntiers:\n- plugins:\n  - {plugin}\n", "here").warnings


def test_the_default_is_what_its_own_names_say() -> None:
    tiers = [{"plugins": [{"name": option.name} for option in tier]} for tier in DEFAULT.tiers]
    assert parse(yaml.safe_dump({"actions": ", ".join(DEFAULT.actions), "tiers": tiers}), "here") == DEFAULT


def test_names_are_either_here_or_absent() -> None:
    assert registry.ACTIONS.keys() == ACTION_ARGUMENTS.keys()
    assert not registry.ACTIONS.keys() & ABSENT_ACTIONS
    assert not registry.PLUGINS.keys() & ABSENT_PLUGINS
    assert not set(FLAGS.values()) & FLAGS_WITHOUT_EFFECT.keys()


def test_the_page_names_all_that_a_configuration_may_say() -> None:
    named = set(re.findall(r"`([\w./-]+)`", PAGE.read_text()))
    arguments = {key for plugin in registry.PLUGINS.values() for key in plugin.arguments}
    in_force = {key.replace("*", "NAME") for key in arguments - ARGUMENTS_WITHOUT_EFFECT.keys() - {*ALWAYS}}
    wanted = {*registry.ACTIONS, *registry.PLUGINS, *FLAGS.values(), *in_force, *ABSENT_ACTIONS, *ABSENT_PLUGINS}
    assert wanted - named == set()


def test_switches_and_arguments_are_kept() -> None:
    text = "{name: drf, enablePreemptable: false, arguments: {x: 1}}"
    ((option,),) = parse(f"actions: allocate\ntiers:\n- plugins:\n  - {text}\n", "here").tiers
    assert not option.takes_part("preemptable")
    assert option.takes_part("job_rank")
    assert option.arguments == {"x": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("actions: allocate: x", "it cannot be read as YAML: mapping values are not allowed"),
        (BOMB, "it cannot be read as YAML"),
        ("- allocate", "the text: ['allocate'] has no keys: write actions: and tiers: there"),
        ("actions: [allocate]", "actions: ['allocate'] is no text: write one"),
        ("actions: allocate, gangPreempt", "actions: gangPreempt exists in Volcano, but not in Subak: remove it"),
        ("actions: allocate,", "actions: '' in 'allocate,' is no action; there are enqueue, allocate"),
        ("actions: allocate\ntiers: {}", "tiers: {} is no list: begin each entry with a dash"),
        ("actions: allocate\ntiers: [drf]", "tiers[0]: 'drf' has no keys: write plugins: there"),
        ("actions: allocate\ntiers: [{plugins: [drf]}]", "tiers[0].plugins[0]: 'drf' has no keys: write name: there"),
        (
            'actions: allocate\ntiers: [{plugins: [{name: drf, enableJobOrder: "false"}]}]',
            "tiers[0].plugins[0].enableJobOrder: 'false' is neither true nor false: write one of them, unquoted",
        ),
        (
            "actions: allocate\ntiers: [{plugins: [{name: drf, arguments: 7}]}]",
            "tiers[0].plugins[0].arguments: 7 has no keys",
        ),
        ("actions: allocate\nconfigurations: x", "configurations: 'x' is no list"),
    ],
)
def test_what_is_invalid_is_told_with_field_value_and_remedy(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="^file conf: ") as refusal:
        parse(text, "file conf")
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        (
            "{name: drf, enabledJobOrder: false}",
            "plugin drf: enabledJobOrder is not known and is ignored: did you mean enableJobOrder?",
        ),
        ("{name: drf, enableTargetJob: false}", "plugin drf: enableTargetJob: false has no effect"),
        (
            "{name: predicates, enablePredicate: false}",
            "plugin predicates: enablePredicate: false has no effect: Kubernetes' own rules always hold",
        ),
        (
            "{name: capacity}",
            "plugin capacity: Volcano has it, Subak does not; it is skipped; "
            "proportion shares by weight, and keeps to a queue's capability and guarantee",
        ),
        ("{name: tdm}", "plugin tdm: Volcano has it, Subak does not; it is skipped"),
        ("{name: propotion}", "plugin propotion: it is not known and is skipped: did you mean proportion?"),
        ("{name: gang, arguments: {x: 1}}", "plugin gang: argument x is not known and is ignored: it takes none"),
        (
            "{name: deviceshare, arguments: {predicate.GPUSharingEnable: true}}",
            "plugin deviceshare: argument predicate.GPUSharingEnable is not known and is ignored: "
            "did you mean deviceshare.GPUSharingEnable?",
        ),
        (
            "{name: nodeorder, arguments: {leastrequested.wieght: 3}}",
            "plugin nodeorder: argument leastrequested.wieght is not known and is ignored: "
            "did you mean leastrequested.weight?",
        ),
        (
            '{name: nodeorder, arguments: {leastrequested.weight: "3"}}',
            "plugin nodeorder: argument leastrequested.weight is '3', not a whole number up to 1,000,000; 1 is used",
        ),
        (
            "{name: nodeorder, arguments: {mostrequested.weight: -9223372036854775808}}",
            "plugin nodeorder: argument mostrequested.weight is -9223372036854775808, "
            "not a whole number up to 1,000,000; 0 is used",
        ),
        (
            '{name: overcommit, arguments: {overcommit-factor: "2"}}',
            "plugin overcommit: argument overcommit-factor is '2', not a number up to 1,000,000; 1.2 is used",
        ),
        (
            "{name: predicates, arguments: {predicate.GPUSharingEnable: 1}}",
            "plugin predicates: argument predicate.GPUSharingEnable is 1, not true or false; True is used",
        ),
        (
            "{name: deviceshare, arguments: {deviceshare.NodeLockEnable: true}}",
            "plugin deviceshare: argument deviceshare.NodeLockEnable has no effect: "
            "pods take turns where the agent of a node would confuse them, and nowhere else",
        ),
    ],
)
def test_where_volcano_is_silent_there_is_a_warning(plugin: str, why: str) -> None:
    assert warnings(plugin) == (why,)


@pytest.mark.parametrize("key", ALWAYS)
def test_rules_of_kubernetes_cannot_be_switched_off(key: str) -> None:
    assert warnings(f"{{name: predicates, arguments: {{{key}: true}}}}") == ()
    why = f"plugin predicates: {key}: false has no effect: Kubernetes' own rules always hold"
    assert warnings(f"{{name: predicates, arguments: {{{key}: 'f'}}}}") == (why,)


@pytest.mark.parametrize("resource", ["volcano.sh/gpu-memory", "example.com/card"])
def test_resources_of_binpack_are_known_whatever_they_are(resource: str) -> None:
    arguments = f"{{binpack.resources: {resource}, binpack.resources.{resource}: 10}}"
    assert warnings(f"{{name: binpack, arguments: {arguments}}}") == ()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("teirs: []", "teirs is not known and is ignored: did you mean tiers?"),
        ("metrics: {type: prometheus}", "metrics: has no effect: only the plugin usage reads it"),
        ("configurations: [{name: alocate}]", "configurations[0].name: 'alocate' is no action here and is ignored"),
        (
            "configurations: [{name: allocate, arguments: {predicateErrorCache: true}}]",
            "action allocate: argument predicateErrorCache is not known and is ignored: "
            "did you mean predicateErrorCacheEnable?",
        ),
        ("actions: backfill", "line 2: actions stands there twice; the last one counts"),
    ],
)
def test_other_fields_are_told_of_too(more: str, why: str) -> None:
    (told,) = warnings("{name: gang}", more)
    assert told.startswith(why)


words = st.sampled_from(
    [
        *registry.ACTIONS,
        *registry.PLUGINS,
        *FLAGS.values(),
        *ABSENT_PLUGINS,
        *ALWAYS,
        *(key for plugin in registry.PLUGINS.values() for key in plugin.arguments),
        "actions",
        "tiers",
        "plugins",
        "name",
        "arguments",
        "configurations",
        "metrics",
        "enableHierarchy",
    ]
)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
options = st.fixed_dictionaries(
    {"name": st.sampled_from(list(registry.PLUGINS)) | values},
    optional={"arguments": st.dictionaries(words, values, max_size=4) | values, "enableJobOrder": values},
)
documents = st.fixed_dictionaries(
    {"actions": st.lists(words, max_size=3).map(",".join) | values},
    optional={
        "tiers": st.lists(st.fixed_dictionaries({"plugins": st.lists(options, max_size=3)}), max_size=3) | values,
        "configurations": values,
    },
)
dumped = (values | documents).map(lambda value: str(yaml.safe_dump(value, allow_unicode=True)))


@given(st.text() | st.text(alphabet="actions:[]{}-&*!|>'\" \n%@`?,") | dumped)
def test_any_text_gives_a_configuration_or_an_error_with_its_place(text: str) -> None:
    try:
        found = parse(text, "the place")
    except ValueError as error:
        said = str(error)
    else:
        assert isinstance(found, Configuration)
        assert found == parse(text, "elsewhere")
        return
    assert said.startswith("the place: ")


def test_a_warning_comes_once_however_often_its_cause_is_met() -> None:
    text = SEED.replace("priority", "tdm").replace("gang", "tdm")
    assert [warning for warning in parse(text, "here").warnings if "tdm" in warning] == [
        "plugin tdm: Volcano has it, Subak does not; it is skipped"
    ]
