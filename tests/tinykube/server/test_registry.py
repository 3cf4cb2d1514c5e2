"""What becomes of objects that are written."""

from __future__ import annotations

import re

import pytest

from tests.support.talk import CONFIG_MAPS, PODS, Json, Talk, config_map, pod
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture
def talk() -> Talk:
    return Talk()


async def test_a_new_object_gets_what_only_the_server_knows(talk: Talk) -> None:
    sent = config_map()
    sent["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}
    made = (await talk.create(CONFIG_MAPS, sent))["metadata"]
    assert made["namespace"] == "default"
    assert re.fullmatch(r"[0-9a-f-]{36}", made["uid"])
    assert made["creationTimestamp"] > "2020"
    assert int(made["resourceVersion"]) > 1


async def test_generated_names_begin_as_asked(talk: Talk) -> None:
    sent = {"metadata": {"generateName": "long-" + "x" * 70}}
    names = {(await talk.create(CONFIG_MAPS, sent))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    for name in names:
        assert re.fullmatch(r"long-x{53}[bcdfghjklmnpqrstvwxz2456789]{5}", name)


async def test_a_dry_run_leaves_no_trace(talk: Talk) -> None:
    await talk.create(CONFIG_MAPS, config_map("a", x="1"))
    revision = talk.server.registry.store.revision
    dry = {"dryRun": "All"}
    assert (await talk.create(CONFIG_MAPS, config_map("b"), **dry))["metadata"].keys() >= {"uid", "name"}
    assert (await talk.patch(f"{CONFIG_MAPS}/a", "merge", {"data": {"x": "2"}}, **dry))["data"] == {"x": "2"}
    assert (await talk.send("DELETE", f"{CONFIG_MAPS}/a", **dry)).code == 200
    assert (await talk.get(f"{CONFIG_MAPS}/a"))["data"] == {"x": "1"}
    assert talk.server.registry.store.revision == revision


async def test_an_update_of_an_older_version_is_refused(talk: Talk) -> None:
    first = await talk.create(CONFIG_MAPS, config_map("a", x="1"))
    await talk.patch(f"{CONFIG_MAPS}/a", "merge", {"data": {"x": "2"}})
    answer = await talk.send("PUT", f"{CONFIG_MAPS}/a", first)
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    del first["metadata"]["resourceVersion"]
    assert (await talk.send("PUT", f"{CONFIG_MAPS}/a", first)).code == 200


async def test_an_update_that_changes_nothing_is_no_event(talk: Talk) -> None:
    made = await talk.create(CONFIG_MAPS, config_map("a", x="1"))
    revision = talk.server.registry.store.revision
    assert (await talk.send("PUT", f"{CONFIG_MAPS}/a", made)).body == made
    assert await talk.patch(f"{CONFIG_MAPS}/a", "merge", {"data": {"x": "1"}}) == made
    assert talk.server.registry.store.revision == revision


async def test_an_update_creates_leases_but_not_config_maps(talk: Talk) -> None:
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}}
    assert (await talk.send("PUT", f"{LEASES}/a", lease)).code == 201
    answer = await talk.send("PUT", f"{LEASES}/a", lease)
    assert answer.body["message"].endswith(
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )
    assert (await talk.send("PUT", f"{CONFIG_MAPS}/a", config_map("a"))).code == 404


async def test_names_and_namespaces_must_agree_with_the_path(talk: Talk) -> None:
    elsewhere = {"metadata": {"name": "a", "namespace": "kube-system"}}
    answer = await talk.send("POST", CONFIG_MAPS, elsewhere)
    assert answer.body["message"].startswith("the namespace of the provided object does not match the namespace sent")
    await talk.create(CONFIG_MAPS, config_map("a"))
    answer = await talk.send("PUT", f"{CONFIG_MAPS}/a", config_map("b"))
    assert answer.body["message"] == "the name of the object (b) does not match the name on the URL (a)"


async def test_another_object_of_the_same_name_is_not_updated(talk: Talk) -> None:
    await talk.create(CONFIG_MAPS, config_map("a"))
    answer = await talk.send("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a", "uid": "other"}})
    assert answer.code == 409
    assert "Precondition failed: UID in precondition: other" in answer.body["message"]


async def test_hooks_change_new_pods_or_refuse_them() -> None:
    def hook(new: Json) -> Json:
        if new["metadata"]["name"] == "bad":
            raise ApiError(403, "Forbidden", "not this one")
        return {**new, "metadata": {**new["metadata"], "labels": {"seen": "yes"}}}

    talk = Talk(Server(Store(), hooks=[hook]))
    assert (await talk.create(PODS, pod("good")))["metadata"]["labels"] == {"seen": "yes"}
    assert (await talk.send("POST", PODS, pod("bad"))).body["message"] == "not this one"
    assert (await talk.send("GET", f"{PODS}/bad")).code == 404


async def test_a_write_of_the_status_leaves_the_spec_alone(talk: Talk) -> None:
    await talk.create(PODS, pod("a"))
    changed = await talk.patch(f"{PODS}/a/status", "merge", {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    assert changed["status"]["phase"] == "Running"
    assert "nodeName" not in changed["spec"]
    changed = await talk.patch(
        f"{PODS}/a", "merge", {"status": {"phase": "Failed"}, "metadata": {"labels": {"x": "y"}}}
    )
    assert changed["status"]["phase"] == "Running"
    assert changed["metadata"]["labels"] == {"x": "y"}


async def test_an_apply_creates_and_then_changes(talk: Talk) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}}
    answer = await talk.send("PATCH", f"{CONFIG_MAPS}/a", wanted, patch="apply", fieldManager="me")
    assert answer.code == 201
    del wanted["data"]["y"]  # type: ignore[attr-defined]
    answer = await talk.send("PATCH", f"{CONFIG_MAPS}/a", wanted, patch="apply", fieldManager="me")
    assert (answer.code, answer.body["data"]) == (200, {"x": "1"})
    other = {**wanted, "data": {"x": "2"}}
    answer = await talk.send("PATCH", f"{CONFIG_MAPS}/a", other, patch="apply", fieldManager="you")
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
