"""Whatever happens to pods and whenever the controllers are restarted, exactly those are there that are wanted."""

from __future__ import annotations

import random

import pytest

from tests.support import fuzz
from tests.tinykube.server.controllers.workshop import Workshop
from tinykube.server.controllers import jobs, workloads
from tinykube.server.controllers.owners import owner_of
from tinykube.server.kinds import DAEMON_SET, DEPLOYMENT, JOB, NODE, POD, REPLICA_SET
from tinykube.server.store import Change

HISTORIES = 50 if fuzz.long() else 10


def harm(world: Workshop, chance: random.Random) -> None:
    """Something that may happen at any moment."""
    found = world.pods()
    pod = chance.choice(found) if found else None
    match chance.randrange(13):
        case 0 if pod:
            world.kill(pod)
        case 1 | 10 if pod:
            world.delete(POD, pod["metadata"]["name"])
        case 11:
            world.reap()
        case 12:
            world.crash(chance.randrange(12))
        case 2 if pod:
            world.set_phase(pod, "Failed")
        case 3 | 4 | 5 if pod and pod["status"]["phase"] == "Pending":
            world.set_phase(pod, "Running")
        case 6:
            world.restart()
        case 7 if world.names(DEPLOYMENT):
            world.change(DEPLOYMENT, replicas=chance.randrange(8))
        case 8 if world.names(DEPLOYMENT):
            world.set_image(DEPLOYMENT, f"i{chance.randrange(3)}")
        case 9:
            world.pass_time(chance.choice((0, 1, 30)))
    world.settle(chance.randrange(1, 6))


def check_number(world: Workshop, change: Change) -> None:
    """No ReplicaSet makes a pod that it does not want."""
    owner = owner_of(change.object) if change.kind is POD and change.type == "ADDED" else None
    if owner is not None:
        replica_set = world.store.get(*owner)
        assert replica_set is not None
        there = [pod for pod in world.pods("Pending", "Running") if owner_of(pod) == owner]
        assert len(there) <= replica_set["spec"]["replicas"]


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_deployment_ends_with_the_exact_number_of_pods(seed: int) -> None:
    world, chance = Workshop(), random.Random(seed)
    world.store.subscribe(lambda change: check_number(world, change))
    world.make(DEPLOYMENT, replicas=3)
    for _ in range(60):
        harm(world, chance)
    world.pass_time(1000)
    world.run_all()
    deployment = world.object(DEPLOYMENT)
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    there = [pod["spec"]["containers"][0]["image"] for pod in world.pods("Running")]
    assert there == [image] * deployment["spec"]["replicas"]
    assert deployment["status"].get("availableReplicas", 0) == len(there)
    assert sum(each["spec"]["replicas"] for each in world.store.list(REPLICA_SET)) == len(there)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_daemon_set_ends_with_one_pod_a_node(seed: int) -> None:
    world, chance = Workshop(), random.Random(seed)
    world.make(DAEMON_SET)
    for step in range(60):
        if chance.random() < 0.1:
            world.add_node(f"n{step}")
        elif chance.random() < 0.1 and world.names(NODE):
            world.delete(NODE, chance.choice(world.names(NODE)))
        elif chance.random() < 0.1:
            world.set_image(DAEMON_SET, f"i{chance.randrange(3)}")
        harm(world, chance)
        assert len(world.pods("Pending", "Running")) <= step + 1
    world.pass_time(1000)
    world.run_all()
    assert world.nodes("Running") == world.names(NODE)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_job_counts_every_pod_once(seed: int) -> None:
    world, chance = Workshop(), random.Random(seed)
    wanted = chance.randrange(1, 8)
    world.make(JOB, pod={"restartPolicy": "Never"}, completions=wanted, parallelism=3, backoffLimit=1000)
    succeeded = failed = 0
    for _ in range(400):
        if "Complete" in world.conditions(JOB):
            break
        world.settle(chance.randrange(1, 4))
        found = world.pods("Pending", "Running")
        assert len(found) <= 3
        if found:
            pod = chance.choice(found)
            if chance.random() < 0.3:
                world.set_phase(pod, "Succeeded")
                succeeded += 1
            elif chance.random() < 0.5:
                world.set_phase(pod, "Failed")
                failed += 1
            elif chance.random() < 0.5:
                world.kill(pod)
                failed += 1
        if chance.random() < 0.4:
            world.crash(chance.randrange(8))
        if chance.random() < 0.5:
            world.reap()
        world.time += chance.choice((0, 1, 700))
    world.reap()
    status = world.object(JOB)["status"]
    assert "Complete" in world.conditions(JOB)
    # Those that were still at work at the end were deleted, and count as failed.
    assert status["succeeded"] == succeeded >= wanted
    assert failed <= status.get("failed", 0) <= failed + 2
    assert not any("finalizers" in pod["metadata"] for pod in world.pods())


def test_one_that_cannot_be_served_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Workshop()

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setitem(workloads._SYNC, JOB, broken)
    world.make(JOB, "bad", pod={"restartPolicy": "Never"})
    world.make(REPLICA_SET, "good", replicas=2)
    world.settle()
    assert len(world.pods()) == 2
    monkeypatch.setitem(workloads._SYNC, JOB, jobs.sync)
    world.pass_time(1)
    assert len(world.pods()) == 3


def test_statuses_that_leave_out_what_they_may_leave_out_stop_no_controller(caplog: pytest.LogCaptureFixture) -> None:
    world = Workshop()
    world.make(DEPLOYMENT, "d", replicas=1, progressDeadlineSeconds=5, minReadySeconds=1)
    world.make(JOB, "j", pod={"restartPolicy": "Never"}, ttlSecondsAfterFinished=5)
    world.settle()
    for kind, name, type in ((DEPLOYMENT, "d", "Progressing"), (JOB, "j", "Complete")):
        stored = world.store.stored(kind, "default", name)
        assert stored is not None
        bare = {"type": type, "status": "True", "lastTransitionTime": None}
        world.registry.put(kind, {**stored.object, "status": {"conditions": [bare]}}, stored)
    for pod in world.pods():
        stored = world.store.stored(POD, "default", pod["metadata"]["name"])
        assert stored is not None
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        world.registry.put(POD, {**stored.object, "status": ready}, stored)
    world.pass_time(10)
    assert caplog.messages == []
