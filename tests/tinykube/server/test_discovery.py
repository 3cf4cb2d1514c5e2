"""What the server tells about itself."""

from __future__ import annotations

import pytest

from tests.support.talk import Talk

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"


@pytest.fixture
def talk() -> Talk:
    return Talk()


async def test_old_clients_ask_step_by_step(talk: Talk) -> None:
    assert (await talk.get("/api"))["versions"] == ["v1"]
    groups = {each["name"] for each in (await talk.get("/apis"))["groups"]}
    assert groups >= {"coordination.k8s.io", "scheduling.volcano.sh", "authorization.k8s.io"}
    core = {each["name"]: each for each in (await talk.get("/api/v1"))["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods/binding"]["verbs"] == ["create"]
    assert core["pods/eviction"]["group"] == "policy"
    assert "deletecollection" not in core["namespaces"]["verbs"]
    assert core["configmaps"]["storageVersionHash"] == "qFsyl6wFWjQ=", "as any API server computes it"
    queues = (await talk.get("/apis/scheduling.volcano.sh/v1beta1"))["resources"]
    assert [each["name"] for each in queues] == ["podgroups", "queues", "queues/status"]


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
async def test_new_clients_ask_once(talk: Talk, version: str) -> None:
    headers = {"accept": f"{AGGREGATED.format(version)},application/json"}
    answer = await talk.send("GET", "/apis", headers=headers)
    assert answer.headers["content-type"] == AGGREGATED.format(version)
    assert answer.body["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    (core,) = (await talk.get("/api", headers=headers))["items"]
    pods = next(each for each in core["versions"][0]["resources"] if each["resource"] == "pods")
    assert pods["responseKind"]["kind"] == "Pod"
    assert [each["subresource"] for each in pods["subresources"]] == ["binding", "eviction", "exec", "log", "status"]


async def test_kubectl_finds_that_fields_are_checked_here(talk: Talk) -> None:
    """`kubectl apply` leaves checking to a server whose PATCH knows `fieldValidation`."""
    paths = (await talk.get("/openapi/v3"))["paths"]
    for place, kind in (("api/v1", "Pod"), ("apis/scheduling.volcano.sh/v1beta1", "Queue")):
        document = await talk.get(paths[place]["serverRelativeURL"].partition("?")[0])
        operations = [each["patch"] for each in document["paths"].values() if "patch" in each]
        ours = [each for each in operations if each["x-kubernetes-group-version-kind"]["kind"] == kind]
        assert any(parameter["name"] == "fieldValidation" for parameter in ours[0]["parameters"])


async def test_all_that_schemas_refer_to_is_there(talk: Talk) -> None:
    document = await talk.get("/openapi/v3/api/v1")
    schemas = document["components"]["schemas"]
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "Pod"}]
    references = set[str]()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "$ref":
                    references.add(value.removeprefix("#/components/schemas/"))
                else:
                    walk(value)
        elif isinstance(node, list):
            for each in node:
                walk(each)

    walk(document)
    assert references <= schemas.keys()
    assert "#/definitions/io.k8s.api.core.v1.PodSpec" in str(await talk.get("/openapi/v2"))


async def test_health_and_version(talk: Talk) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await talk.send("GET", path)).body == b"ok"
    assert (await talk.get("/version"))["minor"] == "36"


async def test_everything_is_allowed_to_the_only_user(talk: Talk) -> None:
    review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    made = await talk.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (made["kind"], made["status"]) == ("SelfSubjectAccessReview", {"allowed": True})
    me = await talk.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert me["status"]["userInfo"]["username"] == "admin"
