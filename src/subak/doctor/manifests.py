"""The manifests that come with Subak, and the rights that they give its programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinykube.yaml import read

ANY = ""

_BOUNDARY = re.compile(r"^---$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Right:
    """Something that an account must be allowed to do; no name means with all, no namespace in all of them."""

    verb: str
    group: str
    resource: str
    name: str
    namespace: str

    @property
    def object(self) -> str:
        """What it is about: `pods`, or `leases subak-controller in subak-system`."""
        named = f" {self.name}" if self.name else ""
        return f"{self.resource}{named}" + (f" in {self.namespace}" if self.namespace else "")


def folder() -> Path:
    """Where the manifests are: in the package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "manifests"
    return inside if inside.is_dir() else package.parent.parent / "deploy" / "manifests"


def rights(where: Path) -> dict[tuple[str, str], list[Right]]:
    """The rights of each ServiceAccount that the manifests of a folder name, by its namespace and name."""
    parts = [
        part for path in sorted(where.glob("*.yaml")) for part in _BOUNDARY.split(path.read_text(encoding="utf-8"))
    ]
    documents = [content for part in parts if (content := read(part).content)]
    roles = {_key(each): each for each in documents if each["kind"] in ("Role", "ClusterRole")}
    found: dict[tuple[str, str], list[Right]] = {}
    for each in documents:
        if each["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = each["metadata"].get("namespace", ANY)
        kind, name = each["roleRef"]["kind"], each["roleRef"]["name"]
        role = roles.get((kind, namespace if kind == "Role" else ANY, name))
        for subject in each.get("subjects") or ():
            if role is not None and subject["kind"] == "ServiceAccount":
                account = subject["namespace"], subject["name"]
                found.setdefault(account, []).extend(_rights(role, namespace))
    return found


def _key(role: dict[str, Any]) -> tuple[str, str, str]:
    return role["kind"], role["metadata"].get("namespace", ANY), role["metadata"]["name"]


def _rights(role: dict[str, Any], namespace: str) -> Iterator[Right]:
    for rule in role.get("rules") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or (ANY,):
                    for verb in rule["verbs"]:
                        yield Right(verb, group, resource, name, namespace)
