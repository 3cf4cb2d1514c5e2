"""Makes `src/tinykube/server/protobuf.json`: the numbers of the fields of messages that clients send as protobuf.

    python -m tests.e2e.protobuf

They come from the `generated.proto` files in Kubernetes' modules.  A field that is not in the kind's schema is a Go
struct that JSON does not show as a level of its own; it has no name here.  One line per message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.schema import ROOT, folder
from tinykube.server import schema
from tinykube.server.kinds import KINDS

TARGET = ROOT / "src/tinykube/server/protobuf.json"
SENT = (
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.runtime.Unknown",
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
)
SCALARS = ("string", "bytes", "bool", "double", "int32", "int64")

MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (optional|repeated|map<string, *)\s*([\w.]+)>? (\w+) = (\d+);", re.MULTILINE)
PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)

Field = tuple[int, str, str, str]


def messages() -> Iterator[tuple[str, list[Field]]]:
    """All messages of Kubernetes, by the names that schemas have."""
    for module in ("k8s.io/api", "k8s.io/apimachinery"):
        for path in folder(module).glob("**/generated.proto"):
            text = path.read_text()
            package = re.search(PACKAGE, text)
            assert package, path
            for name, body in MESSAGE.findall(text):
                yield _full(f".{package[1]}.{name}"), list(_fields(body, package[1], name))


def _fields(body: str, package: str, name: str) -> Iterator[Field]:
    known = schema.definitions().get(_full(f".{package}.{name}"), {}).get("properties")
    for label, type, field, number in FIELD.findall(body):
        if type not in SCALARS:
            type = _full(type if type.startswith(".") else f".{package}.{type}")
        inline = known is not None and field not in known and type not in SCALARS
        shape = {"optional": "", "repeated": "list"}.get(label, "map")
        yield int(number), "" if inline else field, type, shape


def _full(name: str) -> str:
    return name.removeprefix(".").replace("k8s.io.", "io.k8s.", 1)


def main() -> None:
    """Write the messages that can be reached from those that are sent."""
    everything = dict(messages())
    waiting = [*SENT, *(schema.name(kind) for kind in KINDS)]
    found: dict[str, list[Field]] = {}
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = everything[name]
            waiting += [type for _, _, type, _ in found[name] if type not in SCALARS]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    Path(TARGET).write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
