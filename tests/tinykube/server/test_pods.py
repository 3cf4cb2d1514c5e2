"""Binding and eviction."""

from __future__ import annotations

import pytest

from tests.support.talk import NODES, PODS, Talk, binding, pod
from tinykube.server.pods import with_condition


@pytest.fixture
async def talk() -> Talk:
    talk = Talk()
    await talk.create(PODS, pod())
    return talk


async def test_a_binding_sets_node_annotations_and_condition_in_one_write(talk: Talk) -> None:
    watching = await talk.watch(PODS, resourceVersion=talk.server.registry.store.revision)
    answer = await talk.send("POST", f"{PODS}/p/binding", binding("p", annotations={"subak.io/cards": "0"}))
    assert (answer.code, answer.body["status"]) == (201, "Success")
    event = await watching.next()
    bound = event["object"]
    assert event["type"] == "MODIFIED"
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"subak.io/cards": "0"}
    assert [(each["type"], each["status"]) for each in bound["status"]["conditions"]] == [("PodScheduled", "True")]


async def test_a_pod_is_bound_once(talk: Talk) -> None:
    await talk.create(f"{PODS}/p/binding", binding("p"))
    answer = await talk.send("POST", f"{PODS}/p/binding", binding("p", "n2"))
    assert answer.code == 409
    assert answer.body["message"].endswith('pod p is already assigned to node "n1"')
    assert answer.body["details"] == {"name": "p", "kind": "pods/binding"}


@pytest.mark.parametrize("metadata", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_only_the_pod_that_was_seen_is_bound(talk: Talk, metadata: dict[str, str]) -> None:
    answer = await talk.send("POST", f"{PODS}/p/binding", binding("p", **metadata))
    assert answer.code == 409
    assert "Precondition failed" in answer.body["message"]
    assert "nodeName" not in (await talk.get(f"{PODS}/p"))["spec"]


async def test_a_pod_learns_where_its_node_is(talk: Talk) -> None:
    labels = {"topology.kubernetes.io/zone": "z", "other": "x"}
    await talk.create(NODES, {"metadata": {"name": "n1", "labels": labels}})
    await talk.create(f"{PODS}/p/binding", binding("p"))
    assert (await talk.get(f"{PODS}/p"))["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}


async def test_gated_and_going_pods_are_not_bound(talk: Talk) -> None:
    await talk.create(PODS, pod("gated", schedulingGates=[{"name": "wait"}]))
    answer = await talk.send("POST", f"{PODS}/gated/binding", binding("gated"))
    assert answer.body["message"].endswith("pod gated has non-empty .spec.schedulingGates")


async def test_an_evicted_pod_says_so_and_goes(talk: Talk) -> None:
    await talk.create(f"{PODS}/p/binding", binding("p"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    await talk.create(f"{PODS}/p/eviction", eviction)
    going = await talk.get(f"{PODS}/p")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "DisruptionTarget" in [each["type"] for each in going["status"]["conditions"]]


async def test_an_eviction_of_another_version_is_refused(talk: Talk) -> None:
    await talk.create(f"{PODS}/p/binding", binding("p"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    for condition in ({"uid": "other"}, {"resourceVersion": "1"}):
        body = {**eviction, "deleteOptions": {"preconditions": condition}}
        assert (await talk.send("POST", f"{PODS}/p/eviction", body)).code == 409
    current = (await talk.get(f"{PODS}/p"))["metadata"]["resourceVersion"]
    body = {**eviction, "deleteOptions": {"preconditions": {"resourceVersion": current}}}
    assert (await talk.send("POST", f"{PODS}/p/eviction", body)).code == 201


def test_a_condition_takes_the_place_of_its_forerunner() -> None:
    def condition(type: str, status: str) -> dict[str, object]:
        return {"type": type, "status": status, "lastTransitionTime": "then"}

    before = [condition("a", "True"), condition("b", "False"), condition("c", "True")]
    changed = with_condition(before, {"type": "b", "status": "True"}, "now")
    assert [(each["type"], each["lastTransitionTime"]) for each in changed] == [
        ("a", "then"),
        ("b", "now"),
        ("c", "then"),
    ]
    same = with_condition(before, {"type": "b", "status": "False", "reason": "x"}, "now")
    assert (same[1]["reason"], same[1]["lastTransitionTime"]) == ("x", "then")


async def test_what_is_odd_about_a_binding_is_told(talk: Talk) -> None:
    odd = {**binding("p", nonsense="x"), "apiVersion": "v1", "kind": "Binding"}
    odd["target"]["other"] = 1
    answer = await talk.send("POST", f"{PODS}/p/binding", odd)
    assert answer.code == 201
    assert answer.headers["warning"].count("unknown field") == 2


async def test_a_binding_is_about_the_pod_of_the_path(talk: Talk) -> None:
    for wrong in (binding("p", namespace="kube-system"), binding("other")):
        assert (await talk.send("POST", f"{PODS}/p/binding", wrong)).code == 400
    await talk.create("/api/v1/namespaces/default/bindings", binding("p", namespace="default"))
    assert (await talk.get(f"{PODS}/p"))["spec"]["nodeName"] == "n1"
