"""Group Q of Volcano's cases: its configuration file.  Each test's id is the case's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from subak.batch.arguments import Arguments
from subak.batch.configuration import FLAGS, Configuration
from subak.batch.parser import parse
from subak.batch.plugins.deviceshare import DeviceShare
from subak.local.volcano import CONFIG_MAP
from tinykube.yaml import read

PLACE = "configmap volcano-system/volcano-scheduler-configmap: volcano-scheduler.conf"
SEED: str = read(CONFIG_MAP.read_text()).content["data"]["volcano-scheduler.conf"]
HIERARCHY = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}]
- plugins:
  - {name: drf, enableHierarchy: true}
"""


def refused(text: str) -> str:
    with pytest.raises(ValueError, match=f"^{re.escape(PLACE)}: ") as refusal:
        parse(text, PLACE)
    return str(refusal.value).removeprefix(f"{PLACE}: ")


def with_plugin(plugin: str) -> Configuration:
    return parse(f"actions: allocate\ntiers:\n- plugins:\n  - {plugin}\n", PLACE)


def case_q1() -> None:
    found = parse(SEED, PLACE)
    assert found.actions == ("enqueue", "allocate", "backfill")
    names = [[option.name for option in tier] for tier in found.tiers]
    assert names == [
        ["priority", "gang", "conformance"],
        ["drf", "predicates", "proportion", "nodeorder", "binpack"],
    ]
    for option in (option for tier in found.tiers for option in tier):
        assert option.flags == {}
        assert all(option.takes_part(question) for question in FLAGS)
    assert found.warnings == ()
    assert found == parse(SEED, "elsewhere")


def case_q2() -> None:
    assert refused('actions: "enqueue, alocate"') == (
        "actions: 'alocate' in 'enqueue, alocate' is no action; "
        "there are enqueue, allocate, backfill, preempt, reclaim: did you mean allocate?"
    )


def case_q3() -> None:
    for text in ('actions: ""', 'actions: " "', "tiers: []", ""):
        assert "has no action: write them with commas between them" in refused(text)


def case_q4() -> None:
    assert "drf with enableHierarchy: true conflicts with proportion" in refused(HIERARCHY + "  - {name: proportion}\n")


def case_q5() -> None:
    found = parse(HIERARCHY + "- plugins: [{name: proportion}]\n", PLACE)
    assert [[option.name for option in tier] for tier in found.tiers] == [["gang"], ["drf"], ["proportion"]]
    assert found.warnings == (
        "plugin drf: enableHierarchy: true has no effect: queues have no parents here, each is measured by itself",
    )


def case_q6() -> None:
    found = with_plugin("{name: foo}\n  - {name: gang}")
    assert [[option.name for option in tier] for tier in found.tiers] == [["gang"]]
    assert found.warnings[0].startswith("plugin foo: it is not known and is skipped: there are ")


def case_q7() -> None:
    assert parse(SEED, PLACE).off == {}
    older = with_plugin("{name: predicates, arguments: {predicate.GPUSharingEnable: false}}")
    assert older.off == {"volcano.sh/gpu-memory": "predicate.GPUSharingEnable"}
    newer = with_plugin("{name: deviceshare, arguments: {deviceshare.GPUSharingEnable: false}}")
    assert newer.off == {"volcano.sh/gpu-memory": "deviceshare.GPUSharingEnable"}


def case_q9() -> None:
    def number(value: Any) -> float:
        return Arguments({"a": value}).number("a", 1.2)

    assert [number(value) for value in (1.5, "x", 15)] == [1.5, 1.2, 15]


def case_q10() -> None:
    def flag(value: Any) -> bool:
        return Arguments({"a": value}).flag("a", True)

    assert [flag(value) for value in (True, "true", "false", "not-a-bool")] == [True, True, False, True]


def case_q11() -> None:
    text = "configurations: [{name: allocate, arguments: {predicateErrorCacheEnable: false}}]"
    found = parse(f"actions: allocate\n{text}\n", PLACE)
    assert found.arguments == {"allocate": {"predicateErrorCacheEnable": False}}
    assert found.warnings == ()


def case_q12() -> None:
    given = "deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: binpack, deviceshare.ScheduleWeight: 10"
    found = with_plugin(f"{{name: deviceshare, arguments: {{{given}}}}}")
    ((option,),) = found.tiers
    arguments = Arguments(option.arguments)
    assert (DeviceShare.policy(arguments), DeviceShare.weight(arguments)) == ("binpack", 10)
    assert found.warnings == ()


CASES = (
    case_q1,
    case_q2,
    case_q3,
    case_q4,
    case_q5,
    case_q6,
    case_q7,
    case_q9,
    case_q10,
    case_q11,
    case_q12,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_").upper())
def test_case(case: Any) -> None:
    case()
