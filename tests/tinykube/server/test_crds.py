from __future__ import annotations

from typing import Any

from tests.support.talk import Talk
from tinykube.server import crds, schema
from tinykube.server.server import Server
from tinykube.server.store import Store

BOOKS = "/apis/library.example/v1/namespaces/default/books"


def definition(**version: Any) -> dict[str, Any]:
    fields = {"pages": {"type": "integer", "minimum": 1, "description": "How many."}, "description": {"type": "string"}}
    wanted = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "books.library.example"},
        "spec": {
            "group": "library.example",
            "scope": "Namespaced",
            "names": {"kind": "Book", "plural": "books", "shortNames": ["bk"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": wanted}, **version}
            ],
        },
    }


def test_a_definition_says_what_a_kind_is_called() -> None:
    kind = crds.kind(definition())
    assert (kind.resource, kind.api_version, kind.kind) == ("books.library.example", "library.example/v1", "Book")
    assert (kind.singular, kind.short, kind.categories) == ("book", ("bk",), ("all",))
    assert (kind.namespaced, kind.custom, kind.status) == (True, True, False)
    assert crds.kind(definition(subresources={"status": {}})).status


def test_a_published_schema_has_metadata_and_no_descriptions() -> None:
    kind = crds.kind(definition())
    found = crds.schema(kind)
    assert found["properties"].keys() == {"apiVersion", "kind", "metadata", "spec"}
    fields = found["properties"]["spec"]["properties"]
    assert fields == {"pages": {"type": "integer", "minimum": 1}, "description": {"type": "string"}}
    assert "ownerReferences" in ((schema.of(kind).properties or {})["metadata"].properties or {})


async def test_a_server_has_the_kinds_that_its_store_was_given() -> None:
    talk = Talk(Server(Store(custom=[crds.kind(definition())])))
    book = {"apiVersion": "library.example/v1", "kind": "Book", "metadata": {"name": "a"}, "spec": {"pages": 3}}
    await talk.create(BOOKS, book)
    assert (await talk.get(f"{BOOKS}/a"))["spec"] == {"pages": 3}
    assert (await talk.send("POST", BOOKS, {**book, "spec": {"pages": 0}})).code == 422
    (listed,) = (await talk.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))["items"]
    assert listed["metadata"]["name"] == "books.library.example"
    assert (await Talk(Server(Store())).send("GET", BOOKS)).code == 404
