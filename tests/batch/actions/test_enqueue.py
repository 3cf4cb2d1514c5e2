"""Which jobs are let in: see also the cases M."""

from __future__ import annotations

from tests.batch.worlds import Stage, configuration

ENQUEUE = configuration("enqueue", tiers=[["gang"], ["drf", "predicates", "proportion", "nodeorder"]])


def test_a_job_that_is_rejected_stands_in_nobodys_way_and_is_told_why() -> None:
    stage = Stage()
    stage.node("n1", cpu=2)
    stage.queue("c1", capability={"cpu": 1})
    stage.group("large", 1, queue="c1", min_resources={"cpu": 8})
    stage.group("small", 1, queue="c1", min_resources={"cpu": 1})
    session = stage.run(ENQUEUE)
    assert stage.phases() == {"large": "Pending", "small": "Inqueue"}
    assert "queue resource quota insufficient: insufficient cpu" in session.notes[stage.job("large").key].message


def test_without_enqueue_every_job_is_let_in_by_allocate() -> None:
    stage = Stage()
    stage.node("n1", cpu=2)
    stage.group("pg1", 1)
    stage.pod("p1", "pg1", cpu=1)
    stage.run(configuration("allocate", tiers=[["gang"]]))
    assert stage.phases() == {"pg1": "Inqueue"}
    assert stage.bound == {"p1": "n1"}


def test_with_enqueue_a_job_that_was_not_let_in_waits() -> None:
    stage = Stage()
    stage.node("n1", cpu=2)
    stage.queue("c1", capability={"cpu": 1})
    stage.group("pg1", 1, queue="c1", min_resources={"cpu": 8})
    stage.pod("p1", "pg1", cpu=1)
    stage.run(configuration("enqueue", "allocate", "backfill", tiers=[["gang", "proportion"]]))
    assert stage.phases() == {"pg1": "Pending"}
    assert stage.bound == {}
