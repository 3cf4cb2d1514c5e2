from __future__ import annotations

import json
from typing import Any

from tests.support.talk import Talk
from tinykube.server import openapi, swagger
from tinykube.server.kinds import KINDS
from tinykube.server.protobuf import _parts
from tinykube.server.server import Server
from tinykube.server.store import Store

PATH = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"


def named(data: Any, number: int) -> dict[str, Any]:
    """What names in a message stand for."""
    entries = [dict(_parts(memoryview(value))) for key, value in _parts(memoryview(data)) if key == number]
    return {bytes(each[1]).decode(): each[2] for each in entries}


def test_both_forms_of_the_old_document_have_the_same_definitions() -> None:
    document = json.loads(openapi.old_document(KINDS))
    whole = dict(_parts(memoryview(openapi.old_document(KINDS, protobuf=True))))
    found = named(whole[9], 1)
    assert found.keys() == document["definitions"].keys()
    spec = dict(_parts(found["io.k8s.api.apps.v1.DeploymentSpec"]))
    fields = document["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]
    assert named(spec[25], 1).keys() == fields.keys()
    template = dict(_parts(named(spec[25], 1)["template"]))
    assert bytes(template[1]).decode() == "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"


def test_it_says_that_the_server_checks_fields() -> None:
    whole = dict(_parts(memoryview(openapi.old_document(KINDS, protobuf=True))))
    patch = dict(_parts(named(whole[8], 2)[PATH]))[8]
    assert b"fieldValidation" in bytes(patch)
    assert b"x-kubernetes-group-version-kind" in bytes(patch)


def test_old_schemas_have_no_words_of_the_new_ones() -> None:
    text = openapi.old_document(KINDS)
    assert b"oneOf" not in text
    assert b"allOf" not in text
    assert b"#/components" not in text


async def test_each_client_gets_the_form_that_it_reads() -> None:
    talk = Talk(Server(Store()))
    answer = await talk.raw("GET", "/openapi/v2", headers={"accept": swagger.MEDIA})
    assert (answer.headers["content-type"], answer.body) == (
        swagger.ANSWERED,
        openapi.old_document(KINDS, protobuf=True),
    )
    assert (await talk.get("/openapi/v2"))["swagger"] == "2.0"
