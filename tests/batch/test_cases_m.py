"""Group M of Volcano's cases: which jobs are let in, by the limits of queues and of the cluster."""

from __future__ import annotations

import pytest

from subak.batch.configuration import Option
from subak.batch.world import Status
from tests.batch.worlds import Stage, configuration

ENQUEUE = configuration("enqueue", tiers=[["proportion"]])


def overcommit(**arguments: object) -> Option:
    return Option("overcommit", arguments={name.replace("_", "-"): value for name, value in arguments.items()})


def cluster(cpu: float = 10) -> Stage:
    stage = Stage()
    stage.node("n1", cpu=cpu, memory="10G")
    return stage


def test_m2_jobs_that_name_no_minimum_are_let_in() -> None:
    stage = cluster()
    for name in ("c1", "c2"):
        stage.queue(name, capability={"cpu": 4, "memory": "4G"})
    stage.group("pg1", queue="c1")
    stage.group("pg2", queue="c2")
    stage.run(ENQUEUE)
    assert stage.phases() == {"pg1": "Inqueue", "pg2": "Inqueue"}


def test_m3_a_job_that_runs_stays_as_it_is() -> None:
    stage = cluster()
    stage.group("pg1", phase="Running")
    stage.run(ENQUEUE)
    assert stage.phases() == {"pg1": "Running"}


def test_m4_a_job_of_a_queue_that_is_not_there_is_in_no_session() -> None:
    stage = cluster()
    stage.group("pg1", queue="c1")
    stage.world.remove_queue("c1")
    stage.run(ENQUEUE)
    assert stage.phases() == {"pg1": "Pending"}


def test_m5_a_job_that_needs_more_than_its_queue_may_have_waits() -> None:
    stage = cluster()
    stage.queue("c1", capability={"cpu": 1, "memory": "1G"})
    stage.group("pg1", queue="c1", min_resources={"cpu": 8, "memory": "8G"})
    stage.run(ENQUEUE)
    assert stage.phases() == {"pg1": "Pending"}


@pytest.mark.parametrize(
    ("option", "cpu", "phase"),
    [
        pytest.param(overcommit(overcommit_factor=0.8), 12, "Inqueue", id="M7"),
        pytest.param(overcommit(), 12, "Inqueue", id="1.2 by default"),
        pytest.param(overcommit(), 13, "Pending", id="not more"),
        pytest.param(overcommit(overcommit_factor=2), 20, "Inqueue", id="an integer"),
        pytest.param(overcommit(overcommit_factor="2"), 20, "Pending", id="no text"),
    ],
)
def test_a_job_is_let_in_if_the_cluster_can_be_expected_to_run_it(option: Option, cpu: int, phase: str) -> None:
    stage = cluster()
    stage.group("pg1", min_resources={"cpu": cpu})
    stage.run(configuration("enqueue", tiers=[[option]]))
    assert stage.phases() == {"pg1": phase}


def test_m9_overcommit_lets_in_who_names_no_minimum() -> None:
    stage = cluster()
    stage.queue("q", capability={"cpu": "0.2"})
    stage.group("pg1", queue="q")
    stage.run(configuration("enqueue", tiers=[[overcommit()]]))
    assert stage.phases() == {"pg1": "Inqueue"}


def test_what_pods_hold_and_what_others_were_promised_counts() -> None:
    stage = cluster()
    stage.pod("other", cpu=4, node="n1", status=Status.RUNNING)  # of no group, as those of other schedulers
    stage.group("pg1", min_resources={"cpu": 5}, phase="Inqueue")
    first, second = stage.group("pg2", min_resources={"cpu": 3}), stage.group("pg3", min_resources={"cpu": 1})
    session = stage.run(configuration("enqueue", tiers=[[overcommit()]]))
    assert stage.phases()["pg2"] == "Inqueue"
    assert stage.phases()["pg3"] == "Pending"
    assert first.key not in session.notes
    assert session.notes[second.key].message == ("resource in cluster is overused: insufficient cpu: 1 asked, 0 left")


def test_what_a_job_that_was_let_in_holds_already_is_not_counted_twice() -> None:
    stage = cluster()
    job = stage.group("pg1", 2, min_resources={"cpu": 10}, phase="Inqueue")
    stage.pod("pg1-0", job, cpu=10, node="n1", status=Status.RUNNING)
    stage.group("pg2", min_resources={"cpu": 2})
    stage.run(configuration("enqueue", tiers=[[overcommit()]]))
    assert stage.phases()["pg2"] == "Inqueue"


def test_only_what_the_job_names_is_compared() -> None:
    stage = cluster()
    stage.node("n2", cards=[16_000])
    stage.group("full", min_resources={"cpu": 1000}, phase="Inqueue")
    stage.group("pg1", min_resources={"volcano.sh/gpu-memory": 19_000})
    stage.group("pg2", min_resources={"volcano.sh/gpu-memory": 1000})
    stage.run(configuration("enqueue", tiers=[[overcommit()]]))
    assert stage.phases() == {"full": "Inqueue", "pg1": "Inqueue", "pg2": "Pending"}
