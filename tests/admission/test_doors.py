"""Records at the doors of an API server: whatever an ordinary user sends, and wherever, they stay as they are.

What a write would do is asked first, in a dry run, as the scheduler, who may do it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subak.admission.records import guard
from subak.admission.review import review
from subak.dialects.interpreter import Interpreter
from subak.kube.user import AUTHENTICATED, MASTERS, User
from subak.local.api.kinds import POD
from subak.local.api.server import Server
from subak.local.api.store import Store
from tests import virtual
from tests.local.api.talk import PODS, Answer, Json, Talk, binding, pod

INTERPRETER = Interpreter()
SCHEDULER = User("scheduler")
TENANT = User("system:serviceaccount:team:default", ("system:serviceaccounts", MASTERS, AUTHENTICATED))
BINDINGS = "/api/v1/namespaces/default/bindings"

RECORDS = sorted(key.replace("*", "7") for key in INTERPRETER.owned)
HELD = {
    "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,3000,0:;",
    "volcano.sh/gpu-index": "0",
    "iluvatar.ai/predicate-gpu-idx-0": "1",
}


class World:
    """A server, a pod `p` that holds cards, and a pod `q` that waits."""

    async def open(self) -> None:
        guards, hooks = [partial(guard, INTERPRETER, {SCHEDULER.name})], [partial(review, INTERPRETER)]
        self.talk = Talk(Server(Store(), hooks=hooks, guards=guards))
        for name in ("p", "q"):
            await self.talk.create(PODS, pod(name), user=TENANT)
        bound = binding("p", annotations={**HELD, "note": "by the scheduler"})
        await self.talk.create(f"{PODS}/p/binding", bound, user=SCHEDULER)

    def pods(self) -> dict[str, Json]:
        return {each["metadata"]["uid"]: each for each in self.talk.server.registry.store.list(POD)}

    def records(self) -> dict[str, dict[str, str]]:
        """The records of each pod that has any."""
        found = {uid: recorded(each) for uid, each in self.pods().items()}
        return {uid: records for uid, records in found.items() if records}


def recorded(object: Json) -> dict[str, str]:
    return INTERPRETER.records(object.get("metadata", {}).get("annotations", {}))


async def opened() -> World:
    world = World()
    await world.open()
    return world


Request = tuple[str, str, Any, Json]
"""Method, path, body, and what else there is to say."""


@pytest.mark.parametrize(
    "key", ["hami.io/vgpu-devices-allocated", "hami.io/bind-phase", "iluvatar.ai/predicate-gpu-idx-0"]
)
async def test_a_forged_record_is_refused_at_every_door(key: str) -> None:
    world = await opened()
    forged = {"metadata": {"name": "p", "annotations": {key: "forged"}}}
    typed = {"apiVersion": "v1", "kind": "Pod", **forged}
    whole = await world.talk.get(f"{PODS}/p")
    whole["metadata"]["annotations"][key] = "forged"
    place = f"/metadata/annotations/{key.replace('/', '~1')}"
    new = {**pod("new"), "metadata": {"name": "new", "annotations": {key: "forged"}}}
    doors: list[Request] = [
        ("POST", f"{PODS}/q/binding", binding("q", annotations={key: "forged"}), {}),
        ("POST", BINDINGS, binding("q", annotations={key: "forged"}), {}),
        ("POST", BINDINGS, {**binding("q", annotations={key: "forged"}), "unknown": 1}, {}),
        ("POST", PODS, new, {}),
        ("POST", PODS, {**new, "metadata": {"generateName": "new-", "annotations": {key: "forged"}}}, {}),
        ("PATCH", f"{PODS}/new", {**typed, **new}, {"patch": "apply", "fieldManager": "me"}),
    ]
    for path in (f"{PODS}/p", f"{PODS}/p/status"):
        doors += [
            ("PUT", path, whole, {}),
            ("PATCH", path, forged, {"patch": "merge"}),
            ("PATCH", path, forged, {"patch": "merge", "dryRun": "All"}),
            ("PATCH", path, forged, {"patch": "strategic"}),
            ("PATCH", path, [{"op": "add", "path": place, "value": "forged"}], {"patch": "json"}),
            ("PATCH", path, typed, {"patch": "apply", "fieldManager": "me", "force": "true"}),
        ]
    before = world.pods()
    for method, path, body, more in doors:
        answer = await world.talk.send(method, path, body, user=TENANT, **more)
        assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), (method, path, more, answer.body)
        assert f"metadata.annotations[{key}]" in answer.body["details"]["causes"][0]["field"]
        assert 'admission webhook "pods.subak.io" denied the request: ' in answer.body["message"]
    assert world.pods() == before


async def test_a_pod_that_is_sent_back_with_its_records_is_accepted() -> None:
    world = await opened()
    whole = await world.talk.get(f"{PODS}/p")
    whole["metadata"]["labels"] = {"team": "a"}
    assert (await world.talk.send("PUT", f"{PODS}/p", whole, user=TENANT)).code == 200
    labelled = {"name": "p", "annotations": HELD, "labels": {"team": "b"}}
    wanted: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": labelled}
    more: Json = {"patch": "apply", "fieldManager": "me", "force": "true", "user": TENANT}
    assert (await world.talk.send("PATCH", f"{PODS}/p", wanted, **more)).code == 200
    # What was applied and is applied no longer would go: that is a change.
    wanted["metadata"] = {"name": "p"}
    assert (await world.talk.send("PATCH", f"{PODS}/p", wanted, **more)).code == 403
    assert list(world.records().values()) == [HELD]


async def test_the_scheduler_puts_a_record_back() -> None:
    world = await opened()
    body = {"metadata": {"annotations": {"volcano.sh/gpu-index": "1", "hami.io/bind-phase": None}}}
    done = await world.talk.patch(f"{PODS}/p", "merge", body, user=SCHEDULER)
    assert done["metadata"]["annotations"]["volcano.sh/gpu-index"] == "1"


async def test_whoever_may_not_write_a_record_may_delete_its_pod() -> None:
    world = await opened()
    answer = await world.talk.send("DELETE", f"{PODS}/p", user=TENANT, gracePeriodSeconds=0)
    assert answer.code == 200
    assert world.records() == {}


# Any sequence of writes

keys = st.sampled_from([*RECORDS, *HELD, *HELD, "note", "hami.io/gpu-scheduler-policy", "HAMI.IO/bind-phase"])
texts = st.sampled_from(["", "0", "1", HELD["hami.io/vgpu-devices-allocated"], "binpack"])
written = st.dictionaries(keys, texts, max_size=3)
changed = st.dictionaries(keys, st.none() | texts, max_size=3)
paths = st.sampled_from([f"{PODS}/p", f"{PODS}/p/status", f"{PODS}/q"])
Asked = Callable[[World], Awaitable[Request]]


def put(path: str, change: Json, bare: bool) -> Asked:
    """The whole pod with other annotations, or hardly anything of it."""

    async def ask(world: World) -> Request:
        now = await world.talk.get(path.removesuffix("/status"))
        kept = {} if bare else now["metadata"].get("annotations", {})
        annotations = {key: text for key, text in {**kept, **change}.items() if text is not None}
        return "PUT", path, {**now, "metadata": {**now["metadata"], "annotations": annotations}}, {}

    return ask


def patch(path: str, kind: str, body: Any, **more: Any) -> Asked:
    async def ask(world: World) -> Request:
        return "PATCH", path, body, {"patch": kind, **more}

    return ask


def merge(path: str, kind: str, change: Json | None, directive: str | None) -> Asked:
    annotations = change if change is None or directive is None else {"$patch": directive, **change}
    return patch(path, kind, {"metadata": {"annotations": annotations}})


def operate(path: str, operations: list[tuple[str, str, str, str]]) -> Asked:
    def place(key: str) -> str:
        return "/metadata/annotations" + (f"/{key.replace('~', '~0').replace('/', '~1')}" if key else "")

    body = [
        {"op": op, "path": place(key), "from": place(source or key), "value": text if key else {source or "note": text}}
        for op, key, source, text in operations
    ]
    return patch(path, "json", body)


def apply(path: str, annotations: Json, manager: str, force: bool) -> Asked:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": path.split("/")[6], "annotations": annotations}}
    return patch(path, "apply", body, fieldManager=manager, force=str(force).lower())


def post(path: str, body: Json) -> Asked:
    async def ask(world: World) -> Request:
        return "POST", path, body, {}

    return ask


operations = st.tuples(
    st.sampled_from(["add", "replace", "remove", "move", "copy"]), st.just("") | keys, st.just("") | keys, texts
)


def bind(path: str, annotations: Json) -> Asked:
    return post(path, binding("q", annotations=annotations))


def create(annotations: Json) -> Asked:
    return post(PODS, {**pod(), "metadata": {"generateName": "x-", "annotations": annotations}})


writes = st.one_of(
    st.builds(put, paths, changed, st.booleans()),
    st.builds(merge, paths, st.just("merge"), st.none() | changed, st.none()),
    st.builds(merge, paths, st.just("strategic"), st.none() | changed, st.sampled_from([None, "replace", "delete"])),
    st.builds(operate, paths, st.lists(operations, min_size=1, max_size=3)),
    st.builds(apply, paths, written, st.sampled_from(["a", "b"]), st.booleans()),
    st.builds(bind, st.sampled_from([f"{PODS}/q/binding", BINDINGS]), written),
    st.builds(create, written),
)


def would_change(path: str, body: Any, answer: Answer, world: World) -> bool:
    """Whether a write that was tried in a dry run changes a record; a Binding is judged before its pod is looked at."""
    if path.endswith(("/binding", "/bindings")):
        return bool(recorded(body))
    if answer.code >= 300:
        return False
    return recorded(answer.body) != world.records().get(answer.body["metadata"]["uid"], {})


@settings(max_examples=150, deadline=None)
@given(st.lists(writes, min_size=1, max_size=8))
def test_no_write_of_a_user_changes_a_record_and_all_others_are_answered_as_ever(sequence: list[Asked]) -> None:
    async def story() -> None:
        world = await opened()
        for ask in sequence:
            method, path, body, more = await ask(world)
            tried = await world.talk.send(method, path, body, user=SCHEDULER, dryRun="All", **more)
            forbidden = would_change(path, body, tried, world)
            before = world.records()
            answer = await world.talk.send(method, path, body, user=TENANT, **more)
            assert answer.code == (403 if forbidden else tried.code), (method, path, body, answer.body)
            assert world.records() == before

    virtual.run(story())
