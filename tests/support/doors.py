"""All requests that can write a pod's annotations: every way to forge a record, and any sequence of writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import strategies as st

from subak.admission.owned import Owned
from subak.admission.records import Writers, guard
from subak.admission.review import spoken
from subak.dialects.interpreter import Interpreter
from tests.support.talk import PODS, Answer, Json, Talk, binding, pod
from tinykube.admission import CREATE, UPDATE, Review
from tinykube.status import ApiError
from tinykube.user import AUTHENTICATED, MASTERS, User

INTERPRETER = Interpreter()
OWNED = Owned.by(INTERPRETER)
SCHEDULER = User("system:subak-scheduler", (MASTERS, AUTHENTICATED))
TENANT = User("system:serviceaccount:team:default", (MASTERS, AUTHENTICATED))
"""A user who may do everything but write records."""

WRITERS = Writers(frozenset({SCHEDULER.name}))
BINDINGS = "/api/v1/namespaces/default/bindings"
WEBHOOK = 'admission webhook "pods.subak.io" denied the request: '
"""How a refusal begins."""
RECORDS = sorted(key.replace("*", "7") for key in INTERPRETER.owned)
HELD = {
    "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,3000,0:;",
    "volcano.sh/gpu-index": "0",
    "iluvatar.ai/predicate-gpu-idx-0": "1",
}

Request = tuple[str, str, Any, Json]
"""Method, path, body, and further options."""


class World:
    """A server whose records are guarded, a pod `p` that holds cards, and a pod `q` that waits."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    async def open(self) -> World:
        for name in ("p", "q"):
            labelled = {**pod(name), "metadata": {"name": name, "labels": {"app": name}}}
            await self.talk.create(PODS, labelled, user=TENANT)
        bound = binding("p", annotations={**HELD, "note": "by the scheduler"})
        await self.talk.create(f"{PODS}/p/binding", bound, user=SCHEDULER)
        return self

    async def pods(self) -> dict[str, Json]:
        """All pods, by their UIDs."""
        return {each["metadata"]["uid"]: each for each in (await self.talk.get(PODS))["items"]}

    async def records(self) -> dict[str, dict[str, str]]:
        """The records of each pod that has any."""
        found = {uid: recorded(each) for uid, each in (await self.pods()).items()}
        return {uid: records for uid, records in found.items() if records}


def recorded(object: Json) -> dict[str, str]:
    return INTERPRETER.owned_among(object.get("metadata", {}).get("annotations", {}))


def forgeries(key: str, whole: Json, kind: str = "annotations") -> list[Request]:
    """Every way to write a record; `whole` is the pod that holds cards, `kind` may be `labels`."""
    forged: Json = {kind: {key: "forged"}}
    typed = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **forged}}
    put = {**whole, "metadata": {**whole["metadata"], kind: {**whole["metadata"].get(kind, {}), key: "forged"}}}
    add = {"op": "add", "path": f"/metadata/{kind}/{key.replace('/', '~1')}", "value": "forged"}
    new = {**pod("new"), "metadata": {"name": "new", **forged}}
    nameless = {**new, "metadata": {"generateName": "new-", **forged}}
    bound = binding("q", **forged)
    requests: list[Request] = [
        ("POST", f"{PODS}/q/binding", bound, {}),
        ("POST", BINDINGS, bound, {}),
        ("POST", BINDINGS, {**bound, "unknown": 1}, {}),
        ("POST", PODS, new, {}),
        ("POST", PODS, nameless, {}),
        ("PATCH", f"{PODS}/new", {**typed, **new}, {"patch": "apply", "fieldManager": "me"}),
    ]
    for path in (f"{PODS}/p", f"{PODS}/p/status"):
        requests += [
            ("PUT", path, put, {}),
            ("PATCH", path, typed, {"patch": "merge"}),
            ("PATCH", path, typed, {"patch": "merge", "dryRun": "All"}),
            ("PATCH", path, typed, {"patch": "strategic"}),
            ("PATCH", path, [add], {"patch": "json"}),
            ("PATCH", path, typed, {"patch": "apply", "fieldManager": "me", "force": "true"}),
        ]
    return requests


async def forge_everywhere(
    world: World, key: str, kind: str = "annotations", speaker: str = WEBHOOK, user: User = TENANT
) -> None:
    """Try every way to write a record: each must be refused in our words, and change nothing."""
    whole = await world.talk.get(f"{PODS}/p")
    before = await world.pods()
    for method, path, body, more in forgeries(key, whole, kind):
        answer = await world.talk.send(method, path, body, user=user, **more)
        assert (answer.code, answer.body.get("reason")) == (403, "Forbidden"), (method, path, more, answer.body)
        said = answer.body["message"]
        assert speaker in said
        assert f"metadata.{kind}[{key}]" in answer.body["details"]["causes"][0].get("field", said)
    assert await world.pods() == before


# Any sequence of writes

keys = st.sampled_from([*RECORDS, *HELD, *HELD, "note", "hami.io/gpu-scheduler-policy", "HAMI.IO/bind-phase"])
texts = st.sampled_from(["", "0", "1", HELD["hami.io/vgpu-devices-allocated"], "binpack"])
written = st.dictionaries(keys, texts, max_size=3)
changed = st.dictionaries(keys, st.none() | texts, max_size=3)
paths = st.sampled_from([f"{PODS}/p", f"{PODS}/p/status", f"{PODS}/q"])
operations = st.tuples(
    st.sampled_from(["add", "replace", "remove", "move", "copy"]), st.just("") | keys, st.just("") | keys, texts
)
Asked = Callable[[World], Awaitable[Request]]


def put(path: str, change: Json, bare: bool) -> Asked:
    """The whole pod with some annotations changed, or with no others."""

    async def ask(world: World) -> Request:
        now = await world.talk.get(path.removesuffix("/status"))
        kept = {} if bare else now["metadata"].get("annotations", {})
        annotations = {key: text for key, text in {**kept, **change}.items() if text is not None}
        return "PUT", path, {**now, "metadata": {**now["metadata"], "annotations": annotations}}, {}

    return ask


def send(method: str, path: str, body: Any, **more: Any) -> Asked:
    async def ask(world: World) -> Request:
        return method, path, body, more

    return ask


def merge(path: str, kind: str, change: Json | None, directive: str | None) -> Asked:
    annotations = change if change is None or directive is None else {"$patch": directive, **change}
    return send("PATCH", path, {"metadata": {"annotations": annotations}}, patch=kind)


def operate(path: str, operations: list[tuple[str, str, str, str]]) -> Asked:
    def place(key: str) -> str:
        return "/metadata/annotations" + (f"/{key.replace('~', '~0').replace('/', '~1')}" if key else "")

    body = [
        {"op": op, "path": place(key), "from": place(source or key), "value": text if key else {source or "note": text}}
        for op, key, source, text in operations
    ]
    return send("PATCH", path, body, patch="json")


def apply(path: str, annotations: Json, manager: str, force: bool) -> Asked:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": path.split("/")[6], "annotations": annotations}}
    return send("PATCH", path, body, patch="apply", fieldManager=manager, force=str(force).lower())


def bind(path: str, annotations: Json) -> Asked:
    return send("POST", path, binding("q", annotations=annotations))


def create(annotations: Json) -> Asked:
    return send("POST", PODS, {**pod(), "metadata": {"generateName": "x-", "annotations": annotations}})


writes = st.one_of(
    st.builds(put, paths, changed, st.booleans()),
    st.builds(merge, paths, st.just("merge"), st.none() | changed, st.none()),
    st.builds(merge, paths, st.just("strategic"), st.none() | changed, st.sampled_from([None, "replace", "delete"])),
    st.builds(operate, paths, st.lists(operations, min_size=1, max_size=3)),
    st.builds(apply, paths, written, st.sampled_from(["a", "b"]), st.booleans()),
    st.builds(bind, st.sampled_from([f"{PODS}/q/binding", BINDINGS]), written),
    st.builds(create, written),
)
sequences = st.lists(writes, min_size=1, max_size=8)


async def write_all(world: World, sequence: list[Asked], same_words: bool = False) -> None:
    """Send writes as an ordinary user: those that would change a record are refused, others get the usual answer.

    A dry run as the scheduler, who may write records, first shows what a write would do.  With `same_words`, a refusal
    must be that of `guard`, word by word.
    """
    for ask in sequence:
        method, path, body, more = await ask(world)
        tried = await world.talk.send(method, path, body, user=SCHEDULER, dryRun="All", **more)
        before = await world.records()
        refusal = await verdict(world, method, path, body, tried)
        answer = await world.talk.send(method, path, body, user=TENANT, **more)
        assert answer.code == (tried.code if refusal is None else 403), (method, path, body, more, answer.body)
        # A real server has given a new pod its name before anybody is asked.
        assert refusal is None or not same_words or answer.body["message"].endswith(spoken(refusal).split(": ", 1)[1])
        assert await world.records() == before


async def verdict(world: World, method: str, path: str, body: Any, tried: Answer) -> ApiError | None:
    """What `guard` says to a write that was tried; a new pod and a Binding are judged before anything is looked at."""
    resource, subresource = ("bindings", "") if path == BINDINGS else ("pods", "/".join(path.split("/")[7:]))
    if method == "POST":
        review = Review(CREATE, resource, subresource, "default", TENANT, body)
    elif tried.code < 300:
        old = (await world.pods())[tried.body["metadata"]["uid"]]
        review = Review(UPDATE, resource, subresource, "default", TENANT, tried.body, old)
    else:
        return None
    try:
        guard(OWNED, WRITERS, review)
    except ApiError as error:
        return error
    return None
