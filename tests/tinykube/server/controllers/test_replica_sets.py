from __future__ import annotations

from tests.tinykube.server.controllers.workshop import Workshop
from tinykube.server.controllers.owners import BURST
from tinykube.server.kinds import POD, REPLICA_SET


def test_many_pods_are_made_in_several_turns() -> None:
    world = Workshop()
    world.make(REPLICA_SET, replicas=3 * BURST + 1)
    world.settle(2)
    assert 0 < len(world.pods()) < 3 * BURST
    world.settle()
    assert len(world.pods()) == 3 * BURST + 1
    world.change(REPLICA_SET, replicas=1)
    world.settle()
    assert len(world.pods()) == 1


def test_pods_that_do_no_work_go_first() -> None:
    world = Workshop()
    world.make(REPLICA_SET, replicas=3)
    world.settle()
    worker = world.pods()[1]
    world.set_phase(worker, "Running")
    world.change(REPLICA_SET, replicas=1)
    world.settle()
    assert [pod["metadata"]["uid"] for pod in world.pods()] == [worker["metadata"]["uid"]]


def test_the_pod_that_its_author_can_spare_goes_first() -> None:
    world = Workshop()
    world.make(REPLICA_SET, replicas=3)
    world.run_all()
    cheap = world.pods()[1]["metadata"]["name"]
    stored = world.store.stored(POD, "default", cheap)
    assert stored is not None
    annotations = {"controller.kubernetes.io/pod-deletion-cost": "-1"}
    metadata = {**stored.object["metadata"], "annotations": annotations}
    world.registry.put(POD, {**stored.object, "metadata": metadata}, stored)
    world.change(REPLICA_SET, replicas=2)
    world.settle()
    assert cheap not in [pod["metadata"]["name"] for pod in world.pods()]


def test_a_pod_that_is_given_time_to_end_is_replaced_at_once() -> None:
    world = Workshop()
    world.make(REPLICA_SET, replicas=1)
    world.run_all()
    (old,) = world.pods()
    world.delete(POD, old["metadata"]["name"])
    world.settle()
    (new,) = world.pods()
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert world.object(REPLICA_SET)["status"]["terminatingReplicas"] == 1


def test_a_pod_counts_as_available_once_it_was_ready_long_enough() -> None:
    world = Workshop()
    world.make(REPLICA_SET, replicas=1, minReadySeconds=10)
    world.run_all()
    assert "availableReplicas" not in world.object(REPLICA_SET)["status"]
    world.pass_time(9)
    assert "availableReplicas" not in world.object(REPLICA_SET)["status"]
    world.pass_time(1)
    assert world.object(REPLICA_SET)["status"]["availableReplicas"] == 1


def test_pods_that_fail_at_once_are_replaced_ever_more_slowly() -> None:
    world = Workshop()
    world.make(REPLICA_SET, replicas=1)
    for _ in range(600):
        for pod in world.pods("Pending"):
            world.set_phase(pod, "Failed")
        world.pass_time(1)
    assert 5 < len(world.pods("Failed")) < 15
    assert len(world.pods("Pending")) <= 1


def test_a_refusal_is_told_and_tried_again() -> None:
    def refuse(pod: object) -> dict[str, object]:
        from tinykube.status import ApiError

        raise ApiError(403, "Forbidden", "not today")

    world = Workshop()
    world.registry.hooks = (refuse,)
    world.make(REPLICA_SET, replicas=1)
    world.settle()
    assert world.conditions(REPLICA_SET) == {"ReplicaFailure": ("True", "FailedCreate")}
    assert world.events("FailedCreate") == ["Error creating: not today"]
    world.registry.hooks = ()
    world.pass_time(5)
    assert world.conditions(REPLICA_SET) == {}
    assert len(world.pods()) == 1
