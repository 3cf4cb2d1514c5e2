"""Makes `src/tinykube/server/schema.json`: what Kubernetes says about the fields of its kinds.

    python -m tests.e2e.schema

Two sources.  The OpenAPI documents in Kubernetes' module say what fields there are and how they merge.  They do not
say what happens to an empty value (`hostNetwork: false` is dropped, `automountServiceAccountToken: false` is kept), nor
what a field's type is called in the message about a wrong value: that is in the Go structs.  One line per definition,
so that a new version of Kubernetes gives a diff to read.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tinykube.server.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
GO_MODULE = Path(__file__).with_name("kubernetes")
TARGET = ROOT / "src/tinykube/server/schema.json"

REFERENCE = "#/components/schemas/"
KIND_MARK = "x-kubernetes-group-version-kind"

# Kinds that are only ever sent to a subresource, or as options, or as an answer.
EXTRA = (
    ("", "v1", "Binding"),
    ("policy", "v1", "Eviction"),
    ("autoscaling", "v1", "Scale"),
    ("", "v1", "DeleteOptions"),
    ("", "v1", "Status"),
)

# Where the Go struct of a definition is: the beginning of its name, module, folder.
STRUCTS = (
    ("io.k8s.api.apps.v1.", "k8s.io/api", "apps/v1"),
    ("io.k8s.api.autoscaling.v1.", "k8s.io/api", "autoscaling/v1"),
    ("io.k8s.api.batch.v1.", "k8s.io/api", "batch/v1"),
    ("io.k8s.api.core.v1.", "k8s.io/api", "core/v1"),
    ("io.k8s.api.coordination.v1.", "k8s.io/api", "coordination/v1"),
    ("io.k8s.api.policy.v1.", "k8s.io/api", "policy/v1"),
    ("io.k8s.api.scheduling.v1.", "k8s.io/api", "scheduling/v1"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.", "k8s.io/apimachinery", "pkg/apis/meta/v1"),
)

STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
MEMBER = re.compile(r"^\t(?:(\w+)\s+)?(\S+)\s+`([^`]*)`", re.MULTILINE)
TAG = re.compile(r'json:"([^"]*)"')
LOCAL_NAME = re.compile(r"(?<![\w.])([A-Z]\w*)")


def folder(module: str) -> Path:
    """Where Go keeps the sources of a module."""
    answer = subprocess.run(
        ["go", "list", "-m", "-json", module], cwd=GO_MODULE, check=True, capture_output=True, text=True
    )
    return Path(json.loads(answer.stdout)["Dir"])


def published(group: str, version: str) -> dict[str, Any]:
    """The definitions of the OpenAPI document of one group and version."""
    name = f"apis__{group}__{version}" if group else f"api__{version}"
    text = (folder("k8s.io/kubernetes") / "api/openapi-spec/v3" / f"{name}_openapi.json").read_text()
    return dict(json.loads(text)["components"]["schemas"])


def plain(node: Any, *, names: bool = False) -> Any:
    """A definition without descriptions; in a dict of `names` (of fields) no key is a keyword."""
    if isinstance(node, list):
        return [plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: plain(value, names=key == "properties" and not names)
        for key, value in node.items()
        if names or key not in ("description", "externalDocs", KIND_MARK)
    }


def references(node: Any) -> Iterator[str]:
    """The names of the definitions that a definition refers to."""
    if isinstance(node, list):
        for each in node:
            yield from references(each)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(REFERENCE)
            else:
                yield from references(value)


def built_in() -> dict[str, Any]:
    """The definitions of Kubernetes' own kinds and of all that they refer to."""
    wanted = [(kind.group, kind.version, kind.kind) for kind in KINDS] + list(EXTRA)
    found: dict[str, Any] = {}
    for group, version in sorted({(group, version) for group, version, _ in wanted}):
        everything = published(group, version)
        roots = {
            name: {"group": mark["group"], "kind": mark["kind"], "version": mark["version"]}
            for name, definition in everything.items()
            for mark in definition.get(KIND_MARK, ())
            if (mark["group"], mark["version"], mark["kind"]) in wanted
        }
        pending = list(roots)
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = plain(everything[name])
                pending += references(found[name])
        for name, mark in roots.items():
            known = found[name].setdefault(KIND_MARK, [])
            if mark not in known:
                known.append(mark)
    return found


def members(structs: dict[str, str], name: str, inside: str = "") -> Iterator[tuple[str, str]]:
    """The JSON names of a struct's fields, each with its Go type and what its tag says about empty values.

    A field of a struct that is embedded in another comes with the name of the embedded one: `in:ProbeHandler`.
    """
    for given, go_type, tags in MEMBER.findall(re.sub(r"^\s*//.*\n", "", structs[name], flags=re.MULTILINE)):
        tag = TAG.search(tags)
        if tag is None or tag[1] == "-":
            continue
        json_name, *options = tag[1].split(",")
        if not json_name:  # an embedded struct, whose fields count as the outer one's
            inner = go_type.split(".")[-1].lstrip("*")
            if inner != "TypeMeta" and given == "":
                yield from members(structs, inner, f" in:{inner}")
            continue
        qualified = LOCAL_NAME.sub(r"v1.\1", go_type)
        qualified = re.sub(r"\b\w*v1\.", "v1.", qualified)  # however a file calls another package
        qualified = qualified.replace("[]byte", "[]uint8")
        kept = [each for each in options if each in ("omitempty", "omitzero")]
        yield json_name, " ".join([qualified, *kept]) + inside


def go_types(definitions: dict[str, Any]) -> dict[str, dict[str, str]]:
    """For each definition that has a Go struct: the type of each field, as `[]v1.Container omitempty`."""
    found: dict[str, dict[str, str]] = {}
    for prefix, module, path in STRUCTS:
        sources = "".join(file.read_text() for file in sorted((folder(module) / path).glob("*.go")))
        structs = dict(STRUCT.findall(sources))
        for name, definition in definitions.items():
            short = name.removeprefix(prefix)
            if short == name or short not in structs or "properties" not in definition:
                continue
            types = dict(members(structs, short))
            fields = set(definition["properties"])
            if "TypeMeta" in structs[short]:
                fields -= {"apiVersion", "kind"}
            if missing := fields - set(types):
                raise ValueError(f"{name}: no Go field for {sorted(missing)}")
            found[name] = {field: types[field] for field in sorted(fields)}
    return found


def lines(definitions: dict[str, Any]) -> str:
    """A JSON object with one member a line."""
    members = [
        f"{json.dumps(name)}:{json.dumps(definitions[name], separators=(',', ':'), sort_keys=True)}"
        for name in sorted(definitions)
    ]
    return "{\n" + ",\n".join(members) + "\n}"


def text() -> str:
    """The whole of schema.json."""
    definitions = built_in()
    types = go_types(definitions)
    return f'{{"definitions":{lines(definitions)},\n"types":{lines(types)}}}\n'


if __name__ == "__main__":
    TARGET.write_text(text())
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size} bytes")
