"""What a server says about itself: groups, kinds, schemas, version, health."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.client import JSON, Client
from tests.contracts.space import GLOBAL, KINDS

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SWAGGER = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
GROUPS = {
    "apps": "v1",
    "batch": "v1",
    "coordination.k8s.io": "v1",
    "scheduling.k8s.io": "v1",
    "scheduling.volcano.sh": "v1beta1",
    "scheduling.koordinator.sh": "v1alpha1",
}
GROWN = ("deployments", "replicasets", "daemonsets", "jobs")
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
SHORT = {
    "pods": ["po"],
    "nodes": ["no"],
    "namespaces": ["ns"],
    "events": ["ev"],
    "configmaps": ["cm"],
    "services": ["svc"],
    "serviceaccounts": ["sa"],
    "resourcequotas": ["quota"],
    "priorityclasses": ["pc"],
    "deployments": ["deploy"],
    "replicasets": ["rs"],
    "daemonsets": ["ds"],
    "podgroups": ["pg", "podgroup-v1beta1"],
    "queues": ["q", "queue-v1beta1"],
}


def get(client: Client, path: str, accept: str = JSON) -> Any:
    return client.send("GET", path, headers={"Accept": accept}).must(200)


def verbs(plural: str) -> list[str]:
    if plural == "namespaces":
        return [each for each in VERBS if each != "deletecollection"]
    return CUSTOM_VERBS if plural in ("podgroups", "queues", "devices") else VERBS


def test_versions_of_the_core(client: Client) -> None:
    found = get(client, "/api")
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])


def test_groups(client: Client) -> None:
    found = get(client, "/apis")
    assert (found["kind"], found["apiVersion"]) == ("APIGroupList", "v1")
    groups = {each["name"]: each for each in found["groups"]}
    for name, version in GROUPS.items():
        known = {"groupVersion": f"{name}/{version}", "version": version}
        assert known in groups[name]["versions"]
        assert get(client, f"/apis/{name}") == {"kind": "APIGroup", "apiVersion": "v1", **groups[name]}


@pytest.mark.parametrize("plural", KINDS)
def test_each_kind(client: Client, plural: str) -> None:
    prefix, kind = KINDS[plural]
    name = plural.split(".")[0]
    found = get(client, prefix)
    version = prefix.removeprefix("/apis/").removeprefix("/api/")
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", version)
    (described,) = [each for each in found["resources"] if each["name"] == name]
    described.pop("storageVersionHash", None)
    described.pop("categories", None)
    expected: dict[str, Any] = {
        "name": name,
        "singularName": kind.lower(),
        "namespaced": plural not in GLOBAL,
        "kind": kind,
        "verbs": verbs(plural),
    }
    if name in SHORT:
        expected["shortNames"] = SHORT[name]
    assert described == expected


def test_subresources(client: Client) -> None:
    found = {each["name"]: each for each in get(client, "/api/v1")["resources"]}
    assert found["pods/status"] == {
        "name": "pods/status",
        "singularName": "",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "patch", "update"],
    }
    assert found["pods/binding"]["verbs"] == ["create"]
    assert found["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert found["pods/exec"] == {
        "name": "pods/exec",
        "singularName": "",
        "namespaced": True,
        "kind": "PodExecOptions",
        "verbs": ["create", "get"],
    }
    assert found["pods/log"]["verbs"] == ["get"]
    assert found["nodes/proxy"] == {
        "name": "nodes/proxy",
        "singularName": "",
        "namespaced": False,
        "kind": "NodeProxyOptions",
        "verbs": ["create", "delete", "get", "patch", "update"],
    }
    for plural in ("nodes", "namespaces", "services", "resourcequotas"):
        assert found[f"{plural}/status"]["verbs"] == ["get", "patch", "update"]


def test_workloads_have_scales(client: Client) -> None:
    found = {each["name"]: each for each in get(client, "/apis/apps/v1")["resources"]}
    for plural in ("deployments", "replicasets"):
        assert found[f"{plural}/scale"] == {
            "name": f"{plural}/scale",
            "singularName": "",
            "namespaced": True,
            "group": "autoscaling",
            "version": "v1",
            "kind": "Scale",
            "verbs": ["get", "patch", "update"],
        }
    assert "daemonsets/scale" not in found


def test_old_schemas_come_as_protobuf_if_that_is_what_a_client_reads(client: Client) -> None:
    answer = client.send("GET", "/openapi/v2", headers={"Accept": SWAGGER})
    assert (answer.code, answer.headers["Content-Type"]) == (200, SWAGGER.replace("@", "."))
    assert answer.body.startswith(b"\x0a\x032.0\x12")  # swagger: "2.0", info: ...
    assert b"io.k8s.api.apps.v1.Deployment" in answer.body


def test_definitions_of_custom_kinds_are_told(client: Client) -> None:
    found = get(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert found["kind"] == "CustomResourceDefinitionList"
    assert "podgroups.scheduling.volcano.sh" in [each["metadata"]["name"] for each in found["items"]]


def test_a_node_that_is_not_there_tells_nothing(client: Client) -> None:
    answer = client.send("GET", "/api/v1/nodes/nowhere/proxy/stats/summary")
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == 'nodes "nowhere" not found'


def test_all_means_pods_services_and_workloads(client: Client) -> None:
    paths = ("/api/v1", "/apis/apps/v1", "/apis/batch/v1")
    found = [each for path in paths for each in get(client, path)["resources"] if "all" in each.get("categories", ())]
    assert {"pods", "services", *GROWN} <= {each["name"] for each in found}


def aggregated(client: Client, path: str) -> dict[str, dict[str, Any]]:
    """Versions by `group/version`."""
    found = get(client, path, f"{AGGREGATED},{JSON}")
    assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    return {
        f"{group['metadata'].get('name', '')}/{version['version']}": version
        for group in found["items"]
        for version in group["versions"]
    }


def test_everything_in_one_answer(client: Client) -> None:
    versions = aggregated(client, "/api") | aggregated(client, "/apis")
    for plural, (prefix, kind) in KINDS.items():
        name = plural.split(".")[0]
        version = versions[prefix.removeprefix("/apis").removeprefix("/api").removeprefix("/").rjust(3, "/")]
        (described,) = [each for each in version["resources"] if each["resource"] == name]
        assert described["responseKind"]["kind"] == kind
        assert described["scope"] == ("Cluster" if plural in GLOBAL else "Namespaced")
        assert described["singularResource"] == kind.lower()
        assert described["verbs"] == verbs(plural)
        assert described.get("shortNames", []) == SHORT.get(name, [])


def test_the_answer_in_one_says_what_it_is(client: Client) -> None:
    answer = client.send("GET", "/apis", headers={"Accept": f"{AGGREGATED},{JSON}"})
    assert answer.headers["Content-Type"] == AGGREGATED
    assert answer.headers["ETag"]
    assert answer.headers["Vary"] == "Accept"
    again = client.send(
        "GET", "/apis", headers={"Accept": f"{AGGREGATED},{JSON}", "If-None-Match": answer.headers["ETag"]}
    )
    assert again.code == 304


def test_subresources_in_one_answer(client: Client) -> None:
    (pods,) = [each for each in aggregated(client, "/api")["/v1"]["resources"] if each["resource"] == "pods"]
    found = {each["subresource"]: each for each in pods["subresources"]}
    assert found["status"] == {
        "subresource": "status",
        "responseKind": {"group": "", "version": "", "kind": "Pod"},
        "verbs": ["get", "patch", "update"],
    }
    assert found["eviction"]["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


def test_schemas_of_version_three(client: Client) -> None:
    paths = get(client, "/openapi/v3")["paths"]
    for prefix in {prefix for prefix, _ in KINDS.values()}:
        assert prefix.removeprefix("/") in paths
    core = get(client, paths["api/v1"]["serverRelativeURL"])
    assert core["openapi"].startswith("3.")
    pod = core["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "Pod"}]
    assert set(pod["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}


def test_schemas_of_version_two(client: Client) -> None:
    found = get(client, "/openapi/v2")
    assert found["swagger"] == "2.0"
    definitions = found["definitions"]
    kinds = {
        (each["group"], each["kind"])
        for definition in definitions.values()
        for each in definition.get("x-kubernetes-group-version-kind", ())
    }
    for prefix, kind in KINDS.values():
        group = prefix.removeprefix("/apis/").split("/")[0] if prefix.startswith("/apis/") else ""
        assert (group, kind) in kinds
    spec = definitions["io.k8s.api.core.v1.PodSpec"]
    assert spec["required"] == ["containers"]
    assert spec["properties"]["containers"]["x-kubernetes-list-map-keys"] == ["name"]
    assert spec["properties"]["containers"]["x-kubernetes-patch-merge-key"] == "name"


def test_the_version(client: Client) -> None:
    found = get(client, "/version")
    assert (found["major"], found["minor"]) == ("1", "36")
    assert found["gitVersion"].startswith("v1.36.")
    expected = {"major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler"}
    assert expected <= set(found)


def test_health_in_words(client: Client) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = client.send("GET", path)
        assert (answer.code, answer.body) == (200, b"ok")
        assert client.send("GET", f"{path}?verbose").body.startswith(b"[+]ping ok\n")
