"""How objects go."""

from __future__ import annotations

import pytest

from tests.support.talk import CONFIG_MAPS, NODES, PODS, Talk, binding, config_map, pod
from tinykube.server.registry import seconds
from tinykube.server.server import Server
from tinykube.server.store import Store


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


class Timed(Talk):
    """A server whose clock is ours."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        super().__init__(Server(Store(), clock=lambda: self.now))


@pytest.mark.parametrize(("asked", "granted"), [(None, 30), (5, 5), (-7, 1), (1, 1)])
async def test_a_pod_goes_when_its_grace_is_over(asked: int | None, granted: int) -> None:
    talk = Timed()
    await bound(talk)
    answer = await talk.send("DELETE", f"{PODS}/p", None if asked is None else {"gracePeriodSeconds": asked})
    marked = answer.body["metadata"]
    assert seconds(marked["deletionTimestamp"]) == talk.now + granted
    assert (marked["deletionGracePeriodSeconds"], marked["generation"]) == (granted, 2)


@pytest.mark.parametrize(
    ("passed", "asked", "ends", "granted"),
    [(2, 10, 10, 10), (20, 10, 20, 1), (10, 10, 10, 10), (20, 60, 60, 60)],
)
async def test_less_grace_counts_from_the_beginning(passed: int, asked: int, ends: int, granted: int) -> None:
    talk = Timed()
    await bound(talk)
    began = talk.now
    await talk.send("DELETE", f"{PODS}/p", gracePeriodSeconds=60)
    talk.now += passed
    marked = (await talk.send("DELETE", f"{PODS}/p", gracePeriodSeconds=asked)).body["metadata"]
    assert seconds(marked["deletionTimestamp"]) == began + ends
    assert (marked["deletionGracePeriodSeconds"], marked["generation"]) == (granted, 2)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_needs_no_grace(talk: Talk, phase: str) -> None:
    await bound(talk)
    await talk.patch(f"{PODS}/p/status", "merge", {"status": {"phase": phase}})
    await talk.send("DELETE", f"{PODS}/p")
    assert (await talk.send("GET", f"{PODS}/p")).code == 404


async def test_a_held_pod_keeps_its_grace(talk: Talk) -> None:
    held = pod()
    held["metadata"]["finalizers"] = ["example.com/wait"]
    await talk.create(PODS, held)
    await talk.create(f"{PODS}/p/binding", binding("p"))
    assert (await talk.send("DELETE", f"{PODS}/p")).body["metadata"]["deletionGracePeriodSeconds"] == 30
    await talk.send("DELETE", f"{PODS}/p", gracePeriodSeconds=0)
    assert (await talk.get(f"{PODS}/p"))["metadata"]["deletionGracePeriodSeconds"] == 0
    await talk.patch(f"{PODS}/p", "merge", {"metadata": {"finalizers": None}})
    assert (await talk.send("GET", f"{PODS}/p")).code == 404


@pytest.mark.parametrize(("orphan", "code"), [("false", 202), ("true", 200)])
async def test_who_asks_the_old_way_is_told_that_it_takes_time(talk: Talk, orphan: str, code: int) -> None:
    sent = config_map("a")
    sent["metadata"]["finalizers"] = ["example.com/wait"]
    await talk.create(CONFIG_MAPS, sent)
    answer = await talk.send("DELETE", f"{CONFIG_MAPS}/a", orphanDependents=orphan)
    assert answer.code == code
    assert ("orphan" in answer.body["metadata"]["finalizers"]) is (orphan == "true")


async def test_marking_counts_as_a_change_of_what_is_wanted(talk: Talk) -> None:
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}
    queue["metadata"]["finalizers"] = ["example.com/wait"]  # type: ignore[index]
    await talk.create("/apis/scheduling.volcano.sh/v1beta1/queues", queue)
    for _ in range(2):
        answer = await talk.send("DELETE", "/apis/scheduling.volcano.sh/v1beta1/queues/q")
        assert answer.body["metadata"]["generation"] == 2


async def test_a_namespace_is_marked_once_and_only_if_it_is_the_one(talk: Talk) -> None:
    made = await talk.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    for condition, value in (("uid", "other"), ("resourceVersion", "1")):
        answer = await talk.send("DELETE", "/api/v1/namespaces/n", {"preconditions": {condition: value}})
        assert answer.code == 409
        assert "Precondition failed" in answer.body["message"]
    uid = {"preconditions": {"uid": made["metadata"]["uid"]}}
    answer = await talk.send("DELETE", "/api/v1/namespaces/n", uid)
    assert (answer.code, answer.body["status"]["phase"]) == (200, "Terminating")
    again = await talk.send("DELETE", "/api/v1/namespaces/n")
    assert again.body["metadata"]["deletionTimestamp"] == answer.body["metadata"]["deletionTimestamp"]
