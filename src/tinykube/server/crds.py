"""Custom kinds: what a CustomResourceDefinition says about a kind.

Definitions are given to the server when it starts; they cannot be created or changed later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinykube.server.kinds import Kind

Json = dict[str, Any]

_METADATA = {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]}


def kind(definition: Mapping[str, Any]) -> Kind:
    """The kind that a definition defines, in the version that it stores."""
    spec, names = definition["spec"], definition["spec"]["names"]
    version = next(each for each in spec["versions"] if each["storage"])
    return Kind(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        names.get("singular") or names["kind"].lower(),
        tuple(names.get("shortNames", ())),
        namespaced=spec["scope"] == "Namespaced",
        status="status" in version.get("subresources", {}),
        categories=tuple(names.get("categories", ())),
        definition=definition,
    )


def version(kind: Kind) -> Json:
    """The part of the definition about the kind's version."""
    assert kind.definition is not None, f"{kind.resource} is no custom kind"
    return dict(next(each for each in kind.definition["spec"]["versions"] if each["name"] == kind.version))


def schema(kind: Kind) -> Json:
    """The schema of the kind's objects as an API server publishes it in OpenAPI."""
    found: Json = _plain(version(kind)["schema"]["openAPIV3Schema"])
    found["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _METADATA}
    return found


def _plain(node: Any, *, names: bool = False) -> Any:
    """A schema without descriptions; in a dict of `names` (of fields) no key is a keyword."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _plain(value, names=key == "properties" and not names)
        for key, value in node.items()
        if names or key not in ("description", "externalDocs")
    }
