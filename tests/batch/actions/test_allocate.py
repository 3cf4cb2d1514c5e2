"""Who gets places, in which order, and what becomes of gangs that do not fit, or only later."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.batch.configuration import Configuration
from subak.batch.world import Status
from subak.model import manifest
from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy.decider import Exceeded
from tests.batch.worlds import SEED, Stage, configuration

GANG = configuration("enqueue", "allocate", "backfill", tiers=[["priority", "gang"]])
MEMORY = "volcano.sh/gpu-memory"


def gang(stage: Stage, name: str, size: int, mib: int, min_member: int | None = None, **facts: Any) -> None:
    """A group of equal pods that share cards."""
    stage.group(name, size if min_member is None else min_member, **facts)
    for number in range(size):
        stage.pod(f"{name}-{number}", name, limits={MEMORY: mib})


def two_cards_one_of_them_left() -> Stage:
    """A node with two cards; a pod leaves one of them."""
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    stage.pod("old", limits={MEMORY: 6_000}, node="n1", status=Status.RELEASING)
    return stage


# Places that will be free


def test_a_gang_that_fits_once_others_have_left_keeps_its_places_and_starts_whole_then() -> None:
    stage = two_cards_one_of_them_left()
    gang(stage, "pg1", 2, 6_000)
    stage.run(GANG)
    assert (stage.bound, stage.kept) == ({}, {"pg1-0": "n1", "pg1-1": "n1"})
    gang(stage, "pg2", 1, 6_000)  # what is kept, nobody else gets
    stage.run(GANG)
    assert stage.bound == {}
    stage.gone("old")
    stage.run(GANG)
    assert stage.bound == {"pg1-0": "n1", "pg1-1": "n1"}
    assert stage.cards() == {"n1": {0: 6_000, 1: 6_000}}
    assert stage.kept == {}


def test_places_that_stay_as_they_are_kept_are_handed_over_once() -> None:
    stage = two_cards_one_of_them_left()
    gang(stage, "pg1", 2, 6_000)
    for _ in range(3):
        stage.run(GANG)
        stage.refused.clear()
    assert stage.handed == [("keep", "pg1-0"), ("keep", "pg1-1")]


def test_a_gang_with_kept_places_starts_elsewhere_if_there_is_room_earlier() -> None:
    stage = two_cards_one_of_them_left()
    gang(stage, "pg1", 2, 6_000)
    stage.run(GANG)
    stage.node("n2", cards=[8_000])
    stage.refused.clear()
    stage.run(GANG)
    assert sorted(stage.bound.values()) == ["n1", "n2"]
    assert stage.kept == {}


def test_kept_places_are_given_up_together_when_one_of_them_is_lost() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000])
    stage.node("n2", cards=[8_000])
    stage.pod("old", limits={MEMORY: 6_000}, node="n1", status=Status.RELEASING)
    gang(stage, "pg1", 2, 6_000)
    stage.run(GANG)
    assert stage.kept == {"pg1-0": "n2", "pg1-1": "n1"}
    gang(stage, "pg2", 1, 6_000)
    stage.snapshot.remove("n1")
    stage.refused.clear()
    stage.run(GANG)
    assert (stage.bound, stage.kept) == ({"pg2-0": "n2"}, {})
    assert stage.handed[-3:] == [("drop", "pg1-0"), ("drop", "pg1-1"), ("bind", "pg2-0")]


def test_a_task_beyond_the_minimum_waits_alone_for_its_place() -> None:
    stage = two_cards_one_of_them_left()
    gang(stage, "pg1", 2, 6_000, min_member=1)
    stage.run(GANG)
    assert (stage.bound, stage.kept) == ({"pg1-0": "n1"}, {"pg1-1": "n1"})
    stage.gone("old")
    stage.run(GANG)
    assert stage.bound == {"pg1-0": "n1", "pg1-1": "n1"}


# Half-bound gangs


def half_bound(actions: Configuration) -> Stage:
    """Of the gang `old` one member of two runs, and there is room for one more pod; others are more important."""
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    stage.queue("small", capability={"cpu": "1m"})
    stage.group("old", 2, queue="small")
    stage.pod("old-0", "old", cpu=1, limits={MEMORY: 6_000}, node="n1", status=Status.RUNNING)
    stage.pod("old-1", "old", cpu=1, limits={MEMORY: 6_000})
    stage.group("important", 1, priority=100)
    stage.pod("important-0", "important", limits={MEMORY: 6_000}, priority=100)
    stage.run(actions)
    return stage


def test_a_half_bound_gang_comes_first_whatever_its_queue_may_have() -> None:
    assert half_bound(SEED).bound == {"old-1": "n1"}


def test_a_gang_that_was_whole_once_has_no_such_right() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    stage.group("old", 2, phase="Running")
    stage.pod("old-0", "old", limits={MEMORY: 6_000}, node="n1", status=Status.RUNNING)
    stage.pod("old-1", "old", limits={MEMORY: 6_000})
    stage.group("important", 1, priority=100)
    stage.pod("important-0", "important", limits={MEMORY: 6_000}, priority=100)
    stage.run(SEED)
    assert stage.bound == {"important-0": "n1"}


# Pauses


def test_a_gang_waits_for_a_member_on_pause_and_others_go_on() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    gang(stage, "pg1", 2, 6_000)
    gang(stage, "pg2", 1, 6_000)
    stage.task("pg1-0").paused_until = 10.0
    stage.run(GANG)
    assert stage.bound == {"pg2-0": "n1"}
    stage.node("n2", cards=[8_000])
    stage.now = 10.0
    stage.run(GANG)
    assert sorted(stage.bound) == ["pg1-0", "pg1-1", "pg2-0"]


def test_a_gang_goes_on_without_a_member_on_pause_that_it_does_not_need() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    gang(stage, "pg1", 2, 6_000, min_member=1)
    stage.task("pg1-0").paused_until = 10.0
    stage.run(GANG)
    assert stage.bound == {"pg1-1": "n1"}
    stage.now = 10.0
    stage.run(GANG)
    assert stage.bound == {"pg1-0": "n1", "pg1-1": "n1"}


# What is remembered


def test_what_did_not_fit_beside_a_gang_that_gave_up_may_fit_after_it() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    gang(stage, "large", 3, 6_000)
    gang(stage, "small", 2, 6_000)
    stage.run(GANG)
    assert stage.bound == {"small-0": "n1", "small-1": "n1"}


def test_a_gang_of_the_same_shape_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    gang(stage, "first", 3, 6_000)
    gang(stage, "second", 3, 6_000)
    asked: list[str] = []
    decide = stage.decider.decide

    def counted(namespace: str, request: Request) -> Placement | Exceeded | None:
        asked.append(namespace)
        return decide(namespace, request)

    monkeypatch.setattr(stage.decider, "decide", counted)
    session = stage.run(GANG)
    assert len(asked) == 3  # two members of the first gang had places, the third had none
    assert set(session.shortfalls) == {stage.job("first").key, stage.job("second").key}
    stage.run(GANG)
    assert len(asked) == 3


def test_a_change_of_the_gang_makes_it_worth_a_trial() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    gang(stage, "pg1", 3, 6_000)
    stage.run(GANG)
    stage.job("pg1").min_member = 2
    stage.run(GANG)
    assert len(stage.bound) == 2


def test_a_quota_with_room_again_needs_no_word_to_the_session() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {f"limits.{MEMORY}": 6_000}}}
    stage.decider.quotas.replace("default", [msgspec.convert(quota, manifest.ResourceQuota)])
    gang(stage, "pg1", 2, 6_000)
    session = stage.run(GANG)
    assert stage.bound == {}
    assert "allows 6,000 MiB, 6,000 used, 6,000 asked" in session.misfits["default/pg1-1"]
    stage.decider.quotas.replace("default", [])
    stage.run(GANG)
    assert len(stage.bound) == 2


def test_a_job_that_grows_is_tried_again_for_the_sake_of_any_of_its_tasks() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    stage.group("pg1", 1)
    stage.pod("whole", limits={MEMORY: 8_000}, node="n1", status=Status.RUNNING)
    for number, mib in enumerate((8_000, 6_000, 6_000)):
        stage.pod(f"p-{number}", "pg1", limits={MEMORY: mib}, priority=-number)
    stage.pod("other", limits={MEMORY: 1_000}, node="n1", status=Status.RUNNING)
    stage.run(GANG)
    assert list(stage.bound) == ["p-1"]
    large = stage.task("p-0").request
    stage.snapshot.forget("default/whole")
    stage.refused.discard(large)  # no more is said than that this one may fit
    stage.run(GANG)
    assert list(stage.bound) == ["p-1", "p-0"]


def test_kept_places_are_looked_at_when_somebody_else_makes_room_there() -> None:
    stage = two_cards_one_of_them_left()
    stage.pod("runs", limits={MEMORY: 6_000}, node="n1", status=Status.RUNNING)
    gang(stage, "pg1", 1, 6_000)
    stage.run(GANG)
    assert stage.kept == {"pg1-0": "n1"}
    stage.run(GANG)
    stage.snapshot.forget("default/runs")
    stage.run(GANG)
    assert stage.bound == {"pg1-0": "n1"}


# Members that want each other


def test_a_member_may_wait_for_a_later_one_beside_which_it_wants_to_be() -> None:
    stage = Stage()
    for name in ("n1", "n2"):
        stage.node(name, labels={"kubernetes.io/hostname": name})
    stage.group("pg1", 2)
    term = {"labelSelector": {"matchLabels": {"role": "leader"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    stage.pod("member-0", "pg1", cpu=1, spec={"affinity": affinity})
    stage.pod("member-1", "pg1", cpu=1, labels={"role": "leader"})
    stage.run(GANG)
    assert len(stage.bound) == 2
    assert len(set(stage.bound.values())) == 1


# Order


def test_the_most_important_job_comes_first_and_a_job_that_lacks_members_before_one_that_grows() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000, 8_000])
    gang(stage, "grows", 1, 6_000, phase="Running")
    stage.pod("grows-old", "grows", limits={MEMORY: 6_000}, node="n1", status=Status.RUNNING)
    gang(stage, "later", 1, 6_000)
    gang(stage, "important", 1, 6_000, priority=5)
    stage.run(GANG)
    assert stage.bound == {"important-0": "n1", "later-0": "n1"}


def test_a_closed_queue_gets_nothing_and_others_go_on() -> None:
    stage = Stage()
    stage.node("n1", cpu=4)
    stage.queue("shut", state="Closed")
    stage.group("pg1", 1, queue="shut", phase="Inqueue")
    stage.pod("p1", "pg1", cpu=1)
    stage.pod("idle", "pg1")
    stage.pod("p2", cpu=1)
    stage.run(GANG)
    assert stage.bound == {"p2": "n1"}
