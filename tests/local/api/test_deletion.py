"""How objects go."""

from __future__ import annotations

import pytest

from tests.local.api.talk import CONFIG_MAPS, NODES, PODS, Talk, binding, config_map, pod


@pytest.fixture
def talk() -> Talk:
    return Talk()


async def bound(talk: Talk, name: str = "p") -> None:
    await talk.create(PODS, pod(name))
    await talk.create(f"{PODS}/{name}/binding", binding(name))


async def test_what_needs_no_grace_is_gone_at_once(talk: Talk) -> None:
    made = await talk.create(CONFIG_MAPS, config_map("a"))
    answer = await talk.send("DELETE", f"{CONFIG_MAPS}/a")
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await talk.send("GET", f"{CONFIG_MAPS}/a")).code == 404


async def test_a_pod_on_a_node_is_marked_and_then_ended_by_who_runs_it(talk: Talk) -> None:
    await bound(talk)
    answer = await talk.send("DELETE", f"{PODS}/p")
    marked = answer.body["metadata"]
    assert (answer.code, marked["deletionGracePeriodSeconds"]) == (200, 30)
    assert marked["deletionTimestamp"] > marked["creationTimestamp"]
    assert (await talk.send("DELETE", f"{PODS}/p")).body["metadata"] == marked, "it is on its way already"
    await talk.send("DELETE", f"{PODS}/p", gracePeriodSeconds=0)
    assert (await talk.send("GET", f"{PODS}/p")).code == 404


async def test_a_pod_without_a_node_is_gone_at_once(talk: Talk) -> None:
    await talk.create(PODS, pod())
    watching = await talk.watch(PODS, resourceVersion=talk.server.registry.store.revision)
    await talk.send("DELETE", f"{PODS}/p")
    assert await watching.take(2) == [("MODIFIED", "p"), ("DELETED", "p")]


async def test_the_grace_of_a_pod_can_be_shortened_but_not_prolonged(talk: Talk) -> None:
    await bound(talk)
    await talk.send("DELETE", f"{PODS}/p", gracePeriodSeconds=60)
    shortened = (await talk.send("DELETE", f"{PODS}/p", gracePeriodSeconds=10)).body["metadata"]
    assert shortened["deletionGracePeriodSeconds"] == 10
    kept = (await talk.send("DELETE", f"{PODS}/p", gracePeriodSeconds=100)).body["metadata"]
    assert kept["deletionGracePeriodSeconds"] == 10


async def test_finalizers_hold_an_object_until_they_are_removed(talk: Talk) -> None:
    sent = config_map("a")
    sent["metadata"]["finalizers"] = ["example.com/wait"]
    await talk.create(CONFIG_MAPS, sent)
    answer = await talk.send("DELETE", f"{CONFIG_MAPS}/a")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await talk.send("POST", CONFIG_MAPS, config_map("a"))
    assert again.body["message"] == 'object is being deleted: configmaps "a" already exists'
    await talk.patch(f"{CONFIG_MAPS}/a", "merge", {"metadata": {"finalizers": None}})
    assert (await talk.send("GET", f"{CONFIG_MAPS}/a")).code == 404


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
async def test_what_is_to_happen_first_is_a_finalizer(talk: Talk, policy: str, finalizer: str) -> None:
    await talk.create(NODES, {"metadata": {"name": "n"}})
    answer = await talk.send("DELETE", f"{NODES}/n", propagationPolicy=policy)
    assert answer.body["metadata"]["finalizers"] == [finalizer]


@pytest.mark.parametrize("condition", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_preconditions(talk: Talk, condition: dict[str, str]) -> None:
    await talk.create(CONFIG_MAPS, config_map("a"))
    answer = await talk.send("DELETE", f"{CONFIG_MAPS}/a", {"preconditions": condition})
    assert answer.code == 409
    assert "in the precondition" in answer.body["message"]


async def test_a_collection_is_deleted_by_selector(talk: Talk) -> None:
    for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
        await talk.create(CONFIG_MAPS, config_map(name, {"tier": tier}))
    answer = await talk.send("DELETE", CONFIG_MAPS, labelSelector="tier=x")
    assert [each["metadata"]["name"] for each in answer.body["items"]] == ["a", "c"]
    left = await talk.get(CONFIG_MAPS, labelSelector="tier")
    assert [each["metadata"]["name"] for each in left["items"]] == ["b"]


async def test_namespaces_that_must_stay(talk: Talk) -> None:
    answer = await talk.send("DELETE", "/api/v1/namespaces/default")
    assert answer.body["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'
