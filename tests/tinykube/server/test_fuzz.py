"""Whatever a client sends, in whatever form: an answer that is meant, nothing in the log, and the next is served."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import examples
from tests.support.junk import TEXTS, VALUES, nearly, nothing_logged
from tests.support.talk import CONFIG_MAPS, PATCHES, PODS, TABLE, Talk
from tests.tinykube.server import test_protobuf
from tinykube.server.negotiation import JSON, PROTOBUF, YAML

Query = dict[str, str]

DEFAULT = "/api/v1/namespaces/default"
TURNS = 20
"""Of the loop, in which controllers do their part."""
META = {"name": "o", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["a.b/c"]}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "busybox",
                "command": ["sh"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}],
                "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}
            }
        },
        "restartPolicy": "Always",
    },
}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
VOLCANO = "scheduling.volcano.sh/v1beta1"
OBJECTS: dict[str, dict[str, Any]] = {
    PODS: {"apiVersion": "v1", "kind": "Pod", "metadata": META, "spec": TEMPLATE["spec"]},
    CONFIG_MAPS: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": META, "data": {"x": "y"}, "immutable": False},
    f"{DEFAULT}/secrets": {"apiVersion": "v1", "kind": "Secret", "metadata": META, "data": {"x": "eQ=="}},
    f"{DEFAULT}/services": {
        "apiVersion": "v1", "kind": "Service", "metadata": META,
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}], "type": "ClusterIP"},
    },
    f"{DEFAULT}/resourcequotas": {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": META, "spec": {"hard": {"pods": "5", "cpu": "500m"}},
    },
    f"{DEFAULT}/events": {
        "apiVersion": "v1", "kind": "Event", "metadata": META, "reason": "r", "count": 1,
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "type": "Normal",
    },
    "/api/v1/nodes": {
        "apiVersion": "v1", "kind": "Node", "metadata": META,
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "1"}},
    },
    "/apis/apps/v1/namespaces/default/deployments": {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": META,
        "spec": {"replicas": 1, "selector": SELECTOR, "template": TEMPLATE, "strategy": {"type": "Recreate"}},
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": META,
        "spec": {"completions": 1, "template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
    },
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": META,
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2024-01-01T00:00:00.000000Z"},
    },
    "/apis/scheduling.volcano.sh/v1beta1/queues": {
        "apiVersion": VOLCANO, "kind": "Queue", "metadata": META, "spec": {"weight": 1, "capability": {"cpu": "1"}},
    },
}  # fmt: skip
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "", 1])},
    optional={
        "path": TEXTS
        | st.sampled_from(["", "/", "/metadata/labels/a", "/spec/containers/0", "/spec/-", "/a~2", "/~1"]),
        "from": TEXTS | st.sampled_from(["/metadata", "/spec", ""]),
        "value": VALUES,
    },
)
QUERIES = st.dictionaries(
    st.sampled_from([
        "fieldManager", "dryRun", "force", "fieldValidation", "resourceVersion", "resourceVersionMatch", "limit",
        "continue", "labelSelector", "fieldSelector", "timeoutSeconds", "pretty", "propagationPolicy", "includeObject",
        "gracePeriodSeconds", "allowWatchBookmarks", "sendInitialEvents", "orphanDependents",
    ]),
    TEXTS,
    max_size=2,
)  # fmt: skip


def text(value: Any) -> bytes:
    """JSON; msgspec knows no number beyond 64 bits."""
    return json.dumps(value).encode()


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes, str]:
    """A write: its method, path, body and media type."""
    path = draw(st.sampled_from(sorted(OBJECTS)))
    object = draw(nearly(OBJECTS[path]))
    method = draw(st.sampled_from(["POST", "PUT", "PATCH", "PATCH", "PATCH", "DELETE"]))
    if method == "DELETE":
        return method, f"{path}/o", text(draw(VALUES)), JSON
    inside = draw(st.sampled_from(["", "", "", "/status", "/scale", "/binding", "/eviction"]))
    if method == "PATCH":
        kind = draw(st.sampled_from(sorted(PATCHES)))
        body = text(draw(st.lists(OPERATIONS, max_size=3))) if kind == "json" else text(object)
        return method, f"{path}/o{inside}", body, PATCHES[kind]
    if draw(st.booleans()):
        return method, path if method == "POST" else f"{path}/o{inside}", text(object), JSON
    shown = yaml.safe_dump(object, allow_unicode=True, default_flow_style=draw(st.booleans()))
    return method, path if method == "POST" else f"{path}/o{inside}", shown.encode(), YAML


@asynccontextmanager
async def furnished() -> AsyncIterator[Talk]:
    """A server with one object of each kind."""
    talk = Talk()
    for path, object in OBJECTS.items():
        await talk.create(path, object)
    yield talk
    await talk.server.close()


async def answered(talk: Talk, method: str, path: str, body: bytes, headers: dict[str, str], query: Query) -> None:
    """Send a request; of what goes on for ever, only that it begins is looked at."""
    response = await talk.raw(method, path, body, headers=headers, **query)
    if response.stream is not None:
        await response.stream.aclose()  # type: ignore[attr-defined]
    if response.status >= 500:  # a kube-apiserver says so of some patches and revisions, and we say it after it
        assert b"Internal error occurred" not in response.body, response


@examples(30, ci=400)
@given(st.lists(st.tuples(requests(), QUERIES), min_size=1, max_size=3))
async def test_objects_that_are_nearly_right(sent: list[tuple[tuple[str, str, bytes, str], Query]]) -> None:
    with nothing_logged():
        async with furnished() as talk:
            for (method, path, body, media), query in sent:
                await answered(talk, method, path, body, {"content-type": media}, query)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            for path in OBJECTS:
                await talk.get(path)


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with furnished() as talk:
        yield talk


@settings(examples(30, ci=500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from([*OBJECTS, *(f"{each}/o" for each in OBJECTS), f"{PODS}/o/log", "/apis", "/openapi/v3", "/"]),
    query=QUERIES,
    watch=st.sampled_from(["", "false", "true"]),
    accept=st.sampled_from(["", JSON, "*/*", YAML, TABLE]) | TEXTS,
)
async def test_questions_of_any_kind(talk: Talk, path: str, query: Query, watch: str, accept: str) -> None:
    with nothing_logged():
        await answered(talk, "GET", path, b"", {"accept": accept}, {**query, "watch": watch} if watch else query)


RECORDED = [
    b64decode(each)
    for each in (test_protobuf.CONFIG_MAP, test_protobuf.QUOTA, test_protobuf.SECRET, test_protobuf.SERVICE)
]


@examples(30, ci=400)
@given(
    st.sampled_from(RECORDED),
    st.lists(st.tuples(st.integers(4, 200), st.binary(max_size=12), st.integers(0, 4)), max_size=3),
)
async def test_protobuf_that_is_nearly_right(body: bytes, changes: list[tuple[int, bytes, int]]) -> None:
    for at, put, gone in changes:
        body = body[:at] + put + body[at + gone :]
    talk = Talk()
    with nothing_logged():
        for path in (CONFIG_MAPS, f"{DEFAULT}/services", f"{DEFAULT}/resourcequotas"):
            await answered(talk, "POST", path, body, {"content-type": PROTOBUF}, {})
    await talk.server.close()
