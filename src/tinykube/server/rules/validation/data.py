"""What ConfigMaps and Secrets may hold."""

from __future__ import annotations

import base64
import json
from typing import Any

from tinykube import depth
from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names

Json = dict[str, Any]

_LIMIT = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_ACCOUNT = "kubernetes.io/service-account.name"


def config_map(problems: Problems, given: Json) -> None:
    """Of a ConfigMap."""
    metadata.creation(problems, given["metadata"], True, names.subdomain_name)
    texts, blobs = given.get("data", {}), given.get("binaryData", {})
    for key in texts:
        problem.each(problems, f"data[{key}]", key, names.config_key(key))
        if key in blobs:
            problems.append(problem.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in blobs:
        problem.each(problems, f"binaryData[{key}]", key, names.config_key(key))
    if sum(len(text.encode()) for text in texts.values()) + _size(blobs) > _LIMIT:
        problems.append(problem.too_long("[]", _LIMIT))


def config_map_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a ConfigMap that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    _frozen(problems, new, old, ("data", "binaryData"))
    config_map(problems, new)


def secret(problems: Problems, given: Json) -> None:
    """Of a Secret."""
    metadata.creation(problems, given["metadata"], True, names.subdomain_name)
    data = given.get("data", {})
    for key in data:
        problem.each(problems, f"data[{key}]", key, names.config_key(key))
    if _size(data) > _LIMIT:
        problems.append(problem.too_long("data", _LIMIT))
    _by_type(problems, given, data)


def secret_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a Secret that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    problem.immutable(problems, "type", new.get("type"), old.get("type"))
    _frozen(problems, new, old, ("data",))
    secret(problems, new)


def _by_type(problems: Problems, given: Json, data: dict[str, str]) -> None:
    def need(*keys: str) -> None:
        problems.extend(problem.required(f"data[{key}]") for key in keys if key not in data)

    match given.get("type"):
        case "kubernetes.io/service-account-token":
            if not given["metadata"].get("annotations", {}).get(_ACCOUNT):
                problems.append(problem.required(f"metadata.annotations[{_ACCOUNT}]"))
        case "kubernetes.io/dockercfg":
            _docker(problems, data, ".dockercfg")
        case "kubernetes.io/dockerconfigjson":
            _docker(problems, data, ".dockerconfigjson")
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                need("username", "password")
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                problems.append(problem.required("data[ssh-privatekey]"))
        case "kubernetes.io/tls":
            need("tls.crt", "tls.key")


def _docker(problems: Problems, data: dict[str, str], key: str) -> None:
    if key not in data:
        problems.append(problem.required(f"data[{key}]"))
        return
    hidden = "<secret contents redacted>"
    text = base64.b64decode(data[key])
    try:
        depth.check(text)
        content = json.loads(text)
    except ValueError as error:
        words = str(error)
    else:
        if isinstance(content, dict):
            return
        name = {list: "array", str: "string", bool: "bool"}.get(type(content), "number")
        words = f"json: cannot unmarshal {name} into Go value of type map[string]interface {{}}"
    problems.append(problem.invalid(f"data[{key}]", hidden, words))


def _frozen(problems: Problems, new: Json, old: Json, parts: tuple[str, ...]) -> None:
    if old.get("immutable"):
        if not new.get("immutable"):
            problems.append(problem.forbidden("immutable", _FROZEN))
        problems += [problem.forbidden(part, _FROZEN) for part in parts if new.get(part) != old.get(part)]


def _size(blobs: dict[str, str]) -> int:
    return sum(len(text) // 4 * 3 - text.count("=") for text in blobs.values())
