from __future__ import annotations

from tests.tinykube.server.controllers.workshop import Workshop
from tinykube.server.kinds import DAEMON_SET, NODE


def test_a_pod_that_fails_is_replaced_after_a_pause() -> None:
    world = Workshop()
    world.add_node("n1")
    world.make(DAEMON_SET)
    world.settle()
    (first,) = world.pods()
    world.set_phase(first, "Failed")
    world.settle()
    assert world.pods("Pending") == []
    world.pass_time(1)
    (second,) = world.pods()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_pod_that_waits_for_a_node_goes_with_it() -> None:
    world = Workshop()
    world.add_node("n1")
    world.make(DAEMON_SET)
    world.settle()
    world.delete(NODE, "n1")
    world.settle()
    assert world.pods() == []


def test_pods_are_replaced_by_their_author_if_that_is_what_he_wants() -> None:
    world = Workshop()
    world.add_node("n1")
    world.make(DAEMON_SET, updateStrategy={"type": "OnDelete"})
    world.run_all()
    world.set_image(DAEMON_SET, "other")
    world.settle()
    (old,) = world.pods()
    assert old["spec"]["containers"][0]["image"] == "i"
    world.kill(old)
    world.settle()
    (new,) = world.pods()
    assert new["spec"]["containers"][0]["image"] == "other"


def test_terms_of_an_affinity_choose_the_nodes() -> None:
    world = Workshop()
    for name, memory in (("small", "8"), ("large", "80")):
        world.add_node(name, memory=memory)
    term = {"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["40"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    world.make(DAEMON_SET, pod={"affinity": {"nodeAffinity": required}})
    world.settle()
    assert world.object(DAEMON_SET)["status"]["desiredNumberScheduled"] == 1
    assert world.nodes() == ["large"]
