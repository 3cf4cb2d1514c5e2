"""Room for gangs: whole, card by card, and without needless victims."""

from __future__ import annotations

import pytest

from subak.batch import takings
from subak.batch.configuration import Option
from subak.batch.world import Status, Task
from subak.policy.budgets import Budgets
from subak.policy.preempt import Plan
from tests.batch.worlds import Stage, configuration
from tests.policy.test_preempt import BUDGETS

PREEMPT = configuration("preempt", tiers=[["priority", Option("gang", {"enablePreemptable": False}), "conformance"]])
STRICT = configuration("preempt", tiers=[["priority", "gang", "conformance"]])


@pytest.fixture
def stage() -> Stage:
    """A node with two cards of 16,000 MiB, and the group `low` on it."""
    stage = Stage()
    stage.node("n1", cards=[16_000, 16_000])
    stage.group("low", 0, priority=1, phase="Running")
    return stage


def share(mib: int) -> dict[str, int]:
    return {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib}


def on(card: int, node: str = "n1") -> dict[str, str]:
    return {"nvidia.com/use-gpuuuid": f"GPU-{node}-{card}"}


def tenant(stage: Stage, name: str, mib: int, card: int, status: Status = Status.RUNNING, **facts: object) -> Task:
    return stage.pod(name, "low", limits=share(mib), annotations=on(card), node="n1", status=status, **facts)  # type: ignore[arg-type]


def gang(stage: Stage, *sizes: int, least: int | None = None, **facts: object) -> None:
    stage.group("high", len(sizes) if least is None else least, priority=10, phase="Inqueue")
    for i, mib in enumerate(sizes):
        stage.pod(f"high-{i}", "high", limits=share(mib), priority=10, **facts)  # type: ignore[arg-type]


def test_a_gang_for_which_there_is_not_enough_takes_nothing(stage: Stage) -> None:
    tenant(stage, "a", 9_000, 0)
    tenant(stage, "b", 9_000, 1, preemptable=False)
    gang(stage, 8_000, 8_000, 8_000)
    before = stage.cards()
    stage.run(PREEMPT)
    assert stage.evicted == stage.kept == {}
    assert stage.cards() == before


def test_what_is_free_counts_before_anybody_leaves(stage: Stage) -> None:
    tenant(stage, "a", 9_000, 0)
    gang(stage, 8_000, 8_000, 8_000)
    stage.run(PREEMPT)
    assert list(stage.evicted) == ["a"]
    assert set(stage.kept) == {"high-0", "high-1", "high-2"}


def test_who_leaves_anyway_makes_room_before_anybody_else(stage: Stage) -> None:
    tenant(stage, "a", 9_000, 0)
    tenant(stage, "going", 9_000, 1, Status.RELEASING)
    gang(stage, 8_000)
    stage.run(PREEMPT)
    assert stage.evicted == {}
    assert stage.placements["high-0"].grants[0].shares[0].id == "GPU-n1-1"


def test_a_victim_that_a_later_one_makes_needless_stays(stage: Stage) -> None:
    tenant(stage, "cheap", 14_000, 0, priority=1)
    tenant(stage, "dear", 16_000, 1, priority=2)
    gang(stage, 10_000)
    stage.pod("high-1", "high", limits=share(6_000), annotations=on(1), priority=10)
    stage.world.jobs["volcano default/high"].min_member = 2
    stage.run(PREEMPT)
    assert list(stage.evicted) == ["dear"]
    assert set(stage.kept) == {"high-0", "high-1"}


def test_a_gang_gives_only_what_it_can_do_without_and_of_that_what_helps(stage: Stage) -> None:
    stage.world.jobs["volcano default/low"].min_member = 2
    tenant(stage, "a", 9_000, 0)
    tenant(stage, "b", 1_000, 1)
    tenant(stage, "c", 1_000, 1)
    stage.group("others", 0, priority=50, phase="Running")
    stage.pod("full", "others", limits=share(14_000), annotations=on(1), node="n1", status=Status.RUNNING)
    gang(stage, 12_000)
    stage.run(STRICT)
    assert list(stage.evicted) == ["a"], "though the plugins, asked about all, let another one go"


def test_a_gang_that_has_no_more_than_it_must_gives_nothing(stage: Stage) -> None:
    stage.world.jobs["volcano default/low"].min_member = 2
    tenant(stage, "a", 16_000, 0)
    tenant(stage, "b", 16_000, 1)
    gang(stage, 8_000)
    stage.run(STRICT)
    assert stage.evicted == {}


def test_budgets_count_over_the_whole_gang(stage: Stage) -> None:
    budgets = Budgets()
    budgets.put(next(each for each in BUDGETS if each.status.disruptions_allowed == 1))
    for name, card in (("db-0", 0), ("db-1", 1)):
        tenant(stage, name, 8_000, card, labels={"app": "db"}, priority=0)
        tenant(stage, f"plain-{card}", 8_000, card, priority=5)
    gang(stage, 8_000, 8_000)
    stage.run(PREEMPT, budgets=budgets)
    victims = sorted(stage.evicted)
    assert len(victims) == 2
    assert sum(name.startswith("db") for name in victims) == 1, "a second one would go against the budget"


def test_columns_lead_to_the_nodes_that_help_in_larger_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takings, "MOST_LOOKS", 2)
    stage = Stage()
    stage.group("low", 0, priority=1, phase="Running")
    for i in range(6):
        stage.node(f"n{i}", cards=[24_000 if i == 5 else 16_000])
        stage.pod(f"low-{i}", "low", limits=share(15_000), node=f"n{i}", status=Status.RUNNING, priority=i)
    gang(stage, 20_000)
    stage.run(PREEMPT)
    assert list(stage.evicted) == ["low-5"]


def test_gangs_that_are_alike_fail_together(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant(stage, "a", 16_000, 0, preemptable=False)
    tenant(stage, "b", 16_000, 1)
    tries: list[str] = []
    search = takings.Takings.plan

    def plan(self: takings.Takings, task: Task) -> Plan | None:
        tries.append(task.key)
        return search(self, task)

    monkeypatch.setattr(takings.Takings, "plan", plan)
    for name in ("one", "two"):
        stage.group(name, 2, priority=10, phase="Inqueue")
        for i in range(2):
            stage.pod(f"{name}-{i}", name, limits=share(16_000), priority=10)
    stage.run(PREEMPT)
    assert stage.evicted == {}
    assert tries == ["default/one-0", "default/one-1"]


def test_a_task_takes_from_less_important_ones_of_its_own_job() -> None:
    stage = Stage()
    stage.node("n1", cards=[16_000])
    stage.group("job", 1, phase="Running")
    stage.pod("worker", "job", limits=share(12_000), node="n1", status=Status.RUNNING, priority=1)
    stage.pod("master", "job", limits=share(12_000), priority=5)
    stage.run(configuration("preempt", tiers=[["priority", "conformance"]]))
    assert stage.evicted == {"worker": "master"}


def test_a_more_important_tier_decides_but_conformance_protects_in_any(stage: Stage) -> None:
    tenant(stage, "a", 16_000, 0, namespace="kube-system")
    tenant(stage, "b", 16_000, 1, namespace="kube-system")
    gang(stage, 8_000)
    stage.run(configuration("preempt", tiers=[["priority"], ["conformance"]]))
    assert stage.evicted == {}
