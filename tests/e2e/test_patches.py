"""Our patches against those of a real API server: the same objects, the same owners of fields, the same refusals.

Random objects are changed in all ways, step by step.  At each step we compute what must come out, and then see what
does.  An object that we compute lacks defaults; the server itself fills them in on a dry run.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from subak.local import custom
from tests.e2e import namespace
from tests.e2e.cluster import PORT, Cluster
from tests.e2e.drafts import Drafts, Json
from tests.e2e.identities import TOKEN
from tests.support.custom import QUEUE
from tinykube.server import schema
from tinykube.server.kinds import CONFIG_MAP, POD, SERVICE, SERVICE_ACCOUNT, Kind
from tinykube.server.patch import apply, json_patch, managed_fields, merge_patch, strategic
from tinykube.server.schema import Field
from tinykube.status import ApiError

CRDS = Path(custom.__file__).parent / "crds"
NOW = "2026-01-01T00:00:00Z"
STEPS = 25

POD_TEMPLATE = Kind("", "v1", "PodTemplate", "podtemplates")


def pod_template() -> Field:
    """We do not serve this kind, but a pod can hardly be changed, and this is the same with other rules."""
    pod = schema.of(POD)
    assert pod.properties is not None
    inner = {key: pod.properties[key] for key in ("metadata", "spec")}
    outer = {key: pod.properties[key] for key in ("apiVersion", "kind", "metadata")}
    template = Field("object", properties=inner, go="v1.PodTemplateSpec", empty="always")
    return Field("object", properties=outer | {"template": template}, go="v1.PodTemplate")


@dataclass(frozen=True)
class Resource:
    """What is changed, and with what."""

    kind: Kind
    draft: Callable[[Drafts, bool], Json]
    subresource: str = ""

    @property
    def schema(self) -> Field:
        return schema.of(self.kind)

    @property
    def path(self) -> str:
        kind = self.kind
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        return f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


RESOURCES = [
    Resource(CONFIG_MAP, Drafts.config_map),
    Resource(SERVICE_ACCOUNT, Drafts.service_account),
    Resource(SERVICE, Drafts.service),
    Resource(POD_TEMPLATE, Drafts.pod_template),
    Resource(POD, Drafts.pod_status, "status"),
    Resource(QUEUE, Drafts.queue),
    Resource(QUEUE, Drafts.queue_status, "status"),
]


class Api:
    """A connection to the API server."""

    def __init__(self, cluster: Cluster) -> None:
        trust = ssl.create_default_context(cafile=cluster.certificate)
        self._connection = http.client.HTTPSConnection(namespace.ADDRESS, PORT, context=trust)

    def send(self, method: str, path: str, body: Any = None, media: str = "json") -> tuple[int, Json]:
        """The answer's status and content."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": f"application/{media}"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content.startswith(b"{") else {}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    found, of = Api(cluster), schema.of
    crd = yaml.safe_load((CRDS / "queues.yaml").read_text())
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    found.send("POST", definitions, crd)
    wait_until(lambda: found.send("GET", RESOURCES[-1].path)[0] == 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "of", lambda kind: pod_template() if kind is POD_TEMPLATE else of(kind))
        yield found
    found.send("DELETE", f"{definitions}/{crd['metadata']['name']}")


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: f"{each.kind.plural}{each.subresource and '-status'}")
@pytest.mark.parametrize("seed", range(8))
def test_patches_do_what_a_real_api_server_does(api: Api, resource: Resource, seed: int) -> None:
    story = Story(api, resource, Drafts(seed), f"patched-{seed}")
    try:
        for _ in range(STEPS):
            story.step()
    finally:
        story.end()


class Story:
    """An object, and what happens to it."""

    def __init__(self, api: Api, resource: Resource, drafts: Drafts, name: str) -> None:
        self.api = api
        self.resource = resource
        self.drafts = drafts
        self.url = f"{resource.path}/{name}"
        self.target = f"{self.url}/{resource.subresource}" if resource.subresource else self.url
        self.named = {"apiVersion": resource.kind.api_version, "kind": resource.kind.kind}
        self.name = name
        self.live: Json | None = None

    def end(self) -> None:
        self.api.send("DELETE", f"{self.url}?gracePeriodSeconds=0")
        gone = [{"op": "remove", "path": "/metadata/finalizers"}]
        self.api.send("PATCH", self.url, gone, "json-patch+json")

    def step(self) -> None:
        manager = self.drafts.random.choice(["m1", "m2", "m3"])
        if self.live is None:
            self.create(manager)
        else:
            ways = [self.put, self.merge, self.operate, self.merge_strategically, self.apply, self.apply, self.apply]
            self.drafts.random.choice(ways)(manager, self.live)
        code, live = self.api.send("GET", self.url)
        self.live = live if code == 200 else None

    def draft(self, whole: bool = False) -> Json:
        made = self.resource.draft(self.drafts, whole)
        return self.named | made | {"metadata": {"name": self.name} | made.get("metadata", {})}

    def create(self, manager: str) -> None:
        code, created = self.api.send("POST", f"{self.resource.path}?fieldManager={manager}", self.draft(whole=True))
        if code != 201 or self.resource.kind in (POD, SERVICE):
            return  # of those two, admission fills in fields that nobody owns
        sent = managed_fields.with_managed_fields(created, [])
        assert owners(self.owned(None, sent, manager, main=True)) == owners(created)

    def put(self, manager: str, live: Json) -> None:
        drafts = self.drafts
        sent = live | self.resource.draft(drafts, True)
        sent["metadata"] = live["metadata"] | self.resource.draft(drafts, True)["metadata"]
        sent["spec"] = live.get("spec", {}) | sent.get("spec", {})
        if drafts.chance(20):
            given_up: list[list[Json]] = [[{}]] if self.resource.kind.custom else [[{}], []]
            sent["metadata"]["managedFields"] = drafts.random.choice(
                [live["metadata"].get("managedFields", [{}])[:1], *given_up]
            )
        code, after = self.api.send("PUT", f"{self.target}?fieldManager={manager}", sent)
        if code == 200:
            self.check_owners(live, sent, after, manager)

    def merge(self, manager: str, live: Json) -> None:
        patch = self.drafts.with_nulls(self.draft())
        self.patch(manager, live, "merge-patch+json", patch, lambda: merge_patch.apply(live, patch))

    def operate(self, manager: str, live: Json) -> None:
        patch = self.drafts.operations(live, self.resource.draft(self.drafts, False))
        self.patch(manager, live, "json-patch+json", patch, lambda: json_patch.apply(live, patch))

    def merge_strategically(self, manager: str, live: Json) -> None:
        if self.resource.kind.custom:
            return self.merge(manager, live)
        fields = self.resource.schema
        patch = self.drafts.with_directives(self.resource.draft(self.drafts, False), fields)
        self.patch(manager, live, "strategic-merge-patch+json", patch, lambda: strategic.apply(live, patch, fields))

    def patch(self, manager: str, live: Json, media: str, patch: Any, ours: Callable[[], Json]) -> None:
        try:
            expected: Json | None = ours()
        except ApiError:
            expected = None
        dry, completed = self.completed(expected)
        code, after = self.api.send("PATCH", f"{self.target}?fieldManager={manager}", patch, media)
        story = json.dumps({"live": live, "patch": patch, "real": after, "ours": completed})
        assert (code == 200) == (expected is not None and dry == 200), story
        if code == 200:
            assert expected is not None
            assert bare(completed) == bare(after), story
            self.check_owners(live, expected, after, manager)

    def apply(self, manager: str, live: Json) -> None:
        wanted = self.draft()
        if self.drafts.chance(10) and not self.resource.kind.custom:  # of those, the server drops nulls when it reads
            wanted = self.drafts.with_nulls(wanted)
        force = self.drafts.chance(50)
        refusal, expected = None, None
        try:
            expected = apply.apply(
                live, wanted, self.resource.kind, manager=manager, force=force, now=NOW,
                subresource=self.resource.subresource,
            )  # fmt: skip
        except ApiError as error:
            refusal = error
        dry, completed = self.completed(expected)
        query = f"fieldManager={manager}&force={str(force).lower()}"
        code, after = self.api.send("PATCH", f"{self.target}?{query}", wanted, "apply-patch+yaml")
        story = json.dumps({"live": live, "applied": wanted, "force": force, "real": after, "ours": completed})
        if refusal is not None:
            assert (refusal.code, refusal.reason) == (code, after.get("reason", "")), story
            assert sorted(refusal.message.split("\n")) == sorted(after["message"].split("\n")), story
            assert causes(refusal.details) == causes(after.get("details", {})), story
            return
        if code == 422 and self.resource.kind.custom and "null" in after["message"]:
            return  # the server leaves null where all of a map was given up, and then refuses that; we drop it
        assert (code == 200) == (dry == 200), story
        if code == 200:
            assert expected is not None
            assert bare(completed) == bare(after), story
            settled = managed_fields.with_managed_fields(completed, expected["metadata"].get("managedFields", []))
            assert owners(managed_fields.settled(live, settled)) == owners(after), story

    def completed(self, object: Json | None) -> tuple[int, Json]:
        """What the server would store if it were sent the object as a whole."""
        if object is None:
            return 0, {}
        return self.api.send("PUT", f"{self.target}?dryRun=All&fieldValidation=Ignore", object)

    def check_owners(self, live: Json, sent: Json, after: Json, manager: str) -> None:
        """`sent` says which managedFields the writer sent; all else is best seen in what came out."""
        written = sent["metadata"].get("managedFields")
        new = managed_fields.with_managed_fields(after, [])
        if written is not None:
            new["metadata"]["managedFields"] = written
        expected = self.owned(live, new, manager)
        assert owners(expected) == owners(after), json.dumps({"live": live, "sent": sent, "after": after})

    def owned(self, old: Json | None, new: Json, manager: str, main: bool = False) -> Json:
        subresource = "" if main else self.resource.subresource
        return managed_fields.updated(old, new, self.resource.kind, manager=manager, now=NOW, subresource=subresource)


def bare(object: Json) -> Json:
    """An object without what differs between a dry run and the real thing, and without owners."""
    metadata = object["metadata"]
    kept = {
        key: value for key, value in metadata.items() if key not in ("managedFields", "resourceVersion", "generation")
    }
    return object | {"metadata": kept}


def owners(object: Json) -> Json:
    """Who owns what, and whether it is known since when."""
    return {
        repr([entry.get(key) for key in ("manager", "operation", "apiVersion", "subresource")]): (
            entry["fieldsV1"],
            "time" in entry,
        )
        for entry in object["metadata"].get("managedFields", [])
    }


def causes(details: Json) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in details.get("causes", []))
