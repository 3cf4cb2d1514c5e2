"""Our rules against those of a real API server: the same refusals, the same defaults, the same stored objects.

The requests of `tests/tinykube/server/rules/cases.yaml` keep their answers, which the quick tests compare with;
`--record` writes them.  Generated requests are compared here and now.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.client import Answer, Client, eventually
from tests.e2e.cluster import ADDRESS, Cluster
from tests.e2e.identities import TOKEN
from tests.e2e.mutations import BASES, Mutations
from tests.support.custom import CUSTOM
from tests.tinykube.server.rules import world
from tests.tinykube.server.rules.cases import ANSWERS, Case, cases
from tests.tinykube.server.rules.objects import changed
from tests.tinykube.server.rules.world import World
from tinykube.server import kinds, rules
from tinykube.server.kinds import KINDS, Kind
from tinykube.status import ApiError

Json = dict[str, Any]

CASES = cases()
STRICT = {"fieldValidation": "Strict"}
DRY = STRICT | {"dryRun": "All"}
GENERATED = 1500
_IDENTITY = ("name", "namespace", "uid", "resourceVersion")


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    """Speaks to an API server that has what the cases count on."""
    found = Client(ADDRESS, Path(cluster.certificate).read_text(), TOKEN)
    for kind in CUSTOM:
        found.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind.definition)
    eventually(lambda: all(found.send("GET", place(kind)).code == 200 for kind in (*KINDS, *CUSTOM)))
    for each in world.PRIORITY_CLASSES:
        found.send("POST", place(kinds.PRIORITY_CLASS), each)
    _end_a_namespace(found)
    # Tokens are not issued by our server, so none are mounted.
    account = f"{place(kinds.SERVICE_ACCOUNT)}/default"
    found.send("MERGE", account, {"automountServiceAccountToken": False}).must()
    eventually(lambda: "volumes" not in found.send("POST", place(kinds.POD), _POD, query=DRY).must()["spec"])
    yield found
    found.send("MERGE", account, {"automountServiceAccountToken": None})
    found.send("MERGE", "/api/v1/namespaces/dying/configmaps/last", {"metadata": {"finalizers": None}})
    found.close()


_POD = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}


def _end_a_namespace(client: Client) -> None:
    """A namespace that is being deleted, but something in it stays."""
    client.send("POST", "/api/v1/namespaces", {"metadata": {"name": "dying"}})
    last = {"metadata": {"name": "last", "finalizers": ["example.com/stay"]}}
    client.send("POST", "/api/v1/namespaces/dying/configmaps", last)
    client.send("DELETE", "/api/v1/namespaces/dying")


def place(kind: Kind, name: str = "", subresource: str = "", namespace: str = "default") -> str:
    """The path of a kind's objects, or of one of them."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    inside = f"/namespaces/{namespace}" if kind.namespaced else ""
    return "/".join(each for each in (f"{root}{inside}/{kind.plural}", name, subresource) if each)


def said(answer: Answer) -> Json:
    """What of an answer is compared."""
    if answer.code >= 300:
        return world.refusal(answer.json)
    return {"code": answer.code, "object": world.told(answer.json)}


def ask(client: Client, case: Case) -> Json:
    """What the real server says to a case."""
    namespace = "default"
    if isinstance(case.object, dict):
        namespace = case.object["metadata"].get("namespace", "default")
    # A dry run allocates nothing, so services are created for good.
    query = DRY if case.then is None and case.kind is not kinds.SERVICE else STRICT
    path = place(case.kind, namespace=namespace)
    created = client.send("POST", path, world.body(case), headers={"Content-Type": "application/json"}, query=query)
    if query is DRY or created.code >= 300:
        return said(created)
    try:
        if case.then is None:
            return said(created)
        return _update(client, case, created.json)
    finally:
        remove(client, case.kind, created.json["metadata"]["name"])


def _update(client: Client, case: Case, stored: Json) -> Json:
    """What the real server says to the second half of a case; a controller may have been faster."""
    path = place(case.kind, stored["metadata"]["name"])
    while True:
        changes = changed(stored, case.then or {})
        answer = client.send("PUT", f"{path}/{case.subresource}".rstrip("/"), changes, query=DRY)
        if answer.code != 409:
            return said(answer)
        stored = client.send("GET", path).must()


def remove(client: Client, kind: Kind, name: str) -> None:
    """Delete an object, whatever holds it."""
    path = place(kind, name)
    client.send("MERGE", path, {"metadata": {"finalizers": None}})
    client.send("DELETE", path, query={"gracePeriodSeconds": 0})
    if kind is kinds.NAMESPACE:
        eventually(lambda: client.send("GET", path).code == 404)


def test_the_recorded_answers_are_those_of_a_real_server(client: Client, request: pytest.FixtureRequest) -> None:
    found = {name: ask(client, case) for name, case in CASES.items()}
    if request.config.getoption("--record"):
        lines = [f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found)]
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = json.loads(ANSWERS.read_text())
    assert {name: each for name, each in found.items() if each != recorded.get(name)} == {}


@pytest.mark.parametrize("seed", range(4))
def test_generated_objects_are_created_or_refused_alike(client: Client, seed: int) -> None:
    for number in range(GENERATED // 4):
        kind, object = Mutations(seed * 100_000 + number).object()
        real = said(client.send("POST", place(kind), object, query=DRY))
        assert _normal(world.answer(Case(kind, object), dry_run=True)) == real, (
            f"seed {seed * 100_000 + number}: {object}"
        )


@pytest.mark.parametrize("seed", range(4))
def test_generated_updates_are_stored_or_refused_alike(client: Client, seed: int) -> None:
    stored = [(kind, _stored(client, kind, base, index)) for index, (kind, base) in enumerate(BASES)]
    our_world = World()
    try:
        for number in range(GENERATED // 4):
            mutations = Mutations(seed * 100_000 + number)
            kind, old = mutations.random.choice(stored)
            _compare_update(client, mutations, kind, old, our_world)
    finally:
        for kind, object in stored:
            remove(client, kind, object["metadata"]["name"])


def _stored(client: Client, kind: Kind, base: Json, index: int) -> Json:
    return dict(client.send("POST", place(kind), changed(base, {"metadata.name": f"changing-{index}"})).must())


def _compare_update(client: Client, mutations: Mutations, kind: Kind, old: Json, our_world: World) -> None:
    status = kind.status and kind is not kinds.RESOURCE_QUOTA and mutations.random.random() < 0.4
    new = mutations.status(kind, old) if status else mutations.changed(kind, old)
    if not isinstance(new.get("metadata"), dict):
        return
    identity = {key: old["metadata"][key] for key in _IDENTITY if key in old["metadata"]}
    new["metadata"] = {key: value for key, value in new["metadata"].items() if key != "managedFields"} | identity
    subresource = "status" if status else ""
    answer = client.send("PUT", place(kind, old["metadata"]["name"], subresource), new, query=DRY)
    if answer.code == 409:
        return  # a controller has changed the object since
    try:
        given, _ = rules.read(kind, json.dumps(new).encode(), "Strict")
        ours = {
            "code": 200,
            "object": world.told(rules.update(kind, given, copy.deepcopy(old), our_world, subresource, dry_run=True)),
        }
    except ApiError as error:
        ours = world.refusal(error.status())
    assert _normal(ours) == said(answer), f"{kind.kind} {subresource}: {new}"


def _normal(answer: Json) -> Json:
    return dict(json.loads(json.dumps(answer)))
