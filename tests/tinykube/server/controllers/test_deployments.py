from __future__ import annotations

from tests.tinykube.server.controllers.workshop import Workshop
from tinykube.server.kinds import DEPLOYMENT, REPLICA_SET


def test_old_replica_sets_are_forgotten_but_for_a_few() -> None:
    world = Workshop()
    world.make(DEPLOYMENT, replicas=1, revisionHistoryLimit=2)
    for number in range(5):
        world.set_image(DEPLOYMENT, f"i{number}")
        world.run_all()
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in world.store.list(REPLICA_SET)}
    assert images == {"i2", "i3", "i4"}


def test_a_rollout_that_does_not_come_on_is_told() -> None:
    world = Workshop()
    world.make(DEPLOYMENT, replicas=2, progressDeadlineSeconds=60)
    world.settle()
    world.pass_time(59)
    assert world.conditions(DEPLOYMENT)["Progressing"][0] == "True"
    world.pass_time(2)
    assert world.conditions(DEPLOYMENT)["Progressing"] == ("False", "ProgressDeadlineExceeded")
    world.run_all()
    assert world.conditions(DEPLOYMENT)["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_a_replica_set_that_is_somebody_elses_is_left_alone() -> None:
    world = Workshop()
    world.make(DEPLOYMENT)
    world.settle()
    (name,) = world.names(REPLICA_SET)
    world.delete(DEPLOYMENT, "w")
    world.settle()
    world.make(REPLICA_SET, name, labels={"app": "other"})
    world.make(DEPLOYMENT)
    world.settle()
    (own,) = [each for each in world.names(REPLICA_SET) if each != name]
    assert world.object(DEPLOYMENT)["status"]["collisionCount"] == 1
    assert own.startswith("w-")
    assert len(world.pods()) == 2


def test_a_deployment_that_is_scaled_in_the_middle_of_a_rollout_ends_with_the_right_number() -> None:
    world = Workshop()
    world.make(DEPLOYMENT, replicas=10)
    world.run_all()
    world.set_image(DEPLOYMENT, "other")
    world.settle()
    for replicas in (15, 3, 7):
        world.change(DEPLOYMENT, replicas=replicas)
        for pod in world.pods("Pending")[:2]:
            world.set_phase(pod, "Running")
        world.settle()
    world.run_all()
    assert [pod["spec"]["containers"][0]["image"] for pod in world.pods()] == ["other"] * 7
