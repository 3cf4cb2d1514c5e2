"""What the server says about itself: versions, groups, resources, health.

Clients of today ask once for everything ("aggregated discovery"), older ones group by group.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tinykube.server import documents, negotiation, openapi, reviews, routes, swagger
from tinykube.server.answers import answer
from tinykube.server.kinds import NAMESPACE, Kind
from tinykube.server.memo import remembered
from tinykube.server.negotiation import JSON
from tinykube.server.store import encode
from tinykube.server.users import ADMIN
from tinykube.transport import Request, Response

Json = dict[str, Any]
Kinds = tuple[Kind, ...]

AGGREGATED = "APIGroupDiscoveryList"
VERSION = "v1.36.3"
_VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_HEALTH = ("healthz", "livez", "readyz")
# What a subresource takes or gives, if that is not the object itself.
_OTHER_KINDS = {"binding": "Binding", "exec": "PodExecOptions", "proxy": "NodeProxyOptions"}


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says about itself: its name, which its version shows, and its kinds."""

    name: str
    kinds: Kinds


def answer_to(request: Request, parts: list[str], server: ServerInfo, now: Callable[[], str]) -> Response:
    """The answer to a request that is not about objects."""
    if len(parts) == 4 and (parts[1], parts[3]) in reviews.REVIEWS:
        if request.method != "POST":
            raise routes.not_allowed()
        body = documents.decoded(request.body, request.headers.get("content-type", ""))
        made = reviews.review(parts[1], parts[3], body, request.user or ADMIN, now())
        return answer(encode(made), status=201)
    if parts[0] in ("api", "apis", "version"):
        negotiation.check(request.headers.get("accept", ""))
    found = _document(request, parts, server)
    if found is None:
        return Response(404, {"content-type": "text/plain; charset=utf-8"}, b"404 page not found\n")
    if request.method not in ("GET", "HEAD"):
        raise routes.not_allowed()
    return found


def _document(request: Request, parts: list[str], server: ServerInfo) -> Response | None:
    kinds = server.kinds
    match parts:
        case ["api"] | ["apis"]:
            version = _aggregated_version(request.headers.get("accept", ""))
            if version:
                media = f"{JSON};g=apidiscovery.k8s.io;v={version};as={AGGREGATED}"
                found = aggregated(kinds, parts[0], version)
                headers = {"content-type": media, "vary": "Accept", "etag": f'"{_digest(found)}"'}
                if request.headers.get("if-none-match") == headers["etag"]:
                    return Response(304, headers)
                return Response(200, headers, found)
            return answer(encode(_versions() if parts == ["api"] else _groups(kinds)))
        case ["api", "v1"]:
            return answer(encode(_resources(kinds, "", "v1")))
        case ["apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions"]:
            return answer(_definitions(kinds))
        case ["apis", group]:
            about = next((each for each in _groups(kinds)["groups"] if each["name"] == group), None)
            return answer(encode({"kind": "APIGroup", "apiVersion": "v1", **about})) if about else None
        case ["api", _] | ["apis", _, _]:
            group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
            versions = _names(kinds).get(group)
            if versions is None:
                return None
            if version not in versions:
                if any(kind.custom for kind in kinds if kind.group == group):
                    return None
                raise routes.not_found()
            return answer(encode(_resources(kinds, group, version)))
        case ["version"]:
            return answer(encode({**_VERSION, "gitVersion": f"{VERSION}+{server.name}"}))
        case ["openapi", *rest]:
            return _openapi(kinds, rest, request.headers.get("accept", ""))
        case [check] | [check, "ping"] if check in _HEALTH:
            body = f"[+]ping ok\n{check} check passed\n" if "verbose" in request.query else "ok"
            return Response(200, {"content-type": "text/plain; charset=utf-8"}, body.encode())
        case [""]:
            return answer(encode({"paths": _paths(kinds)}))
    return None


def _openapi(kinds: Kinds, rest: list[str], accept: str) -> Response | None:
    if rest == ["v2"]:
        if any(clause.media in (swagger.MEDIA, swagger.ANSWERED) for clause in negotiation.clauses(accept)):
            return Response(200, {"content-type": swagger.ANSWERED}, openapi.old_document(kinds, protobuf=True))
        return answer(openapi.old_document(kinds))
    if rest == ["v3"]:
        return answer(openapi.index(kinds))
    found = openapi.document(kinds, "/".join(rest[1:])) if rest[:1] == ["v3"] else None
    return answer(found) if found else None


@cache
def _definitions(kinds: Kinds) -> bytes:
    """The definitions of the custom kinds, which kubectl looks through for a kind that it does not find elsewhere."""
    items = [kind.definition for kind in kinds if kind.custom]
    about = {"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1", "metadata": {}}
    return encode({**about, "items": items})


@cache
def _names(kinds: Kinds) -> dict[str, list[str]]:
    """Groups and their versions."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        versions = found.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    return found | {group: ["v1"] for group, _ in reviews.REVIEWS}


def _versions() -> Json:
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


@cache
def _groups(kinds: Kinds) -> Json:
    groups = []
    for group, versions in _names(kinds).items():
        if group:
            listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
            groups.append({"name": group, "versions": listed, "preferredVersion": listed[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


@cache
def _paths(kinds: Kinds) -> list[str]:
    found = ["/api", "/api/v1", "/apis", "/openapi/v2", "/openapi/v3", "/version", *(f"/{each}" for each in _HEALTH)]
    for group, versions in _names(kinds).items():
        if group:
            found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    return sorted(found)


def _verbs(kind: Kind) -> list[str]:
    verbs = _CUSTOM_VERBS if kind.custom else _VERBS
    return [verb for verb in verbs if not (kind is NAMESPACE and verb == "deletecollection")]


def _subresources(kind: Kind) -> Iterator[tuple[str, list[str], Json]]:
    """Name, verbs, and group, version and kind."""
    names = {"bind": "create", "evict": "create", "log": "get"}
    found = {each: routes.SUBRESOURCES[kind, each] for each in kind.subresources}
    if kind.status:
        found["status"] = routes.STATUS
    for name, methods in sorted(found.items()):
        verbs = {names.get(verb, verb) for verb in methods.values()}
        if name == "exec":
            verbs = {"create", "get"}
        if name == "proxy":
            verbs = {"create", "delete", "get", "patch", "update"}
        what = {"kind": _OTHER_KINDS.get(name, kind.kind)}
        if name == "eviction":
            what = {"group": "policy", "version": "v1", "kind": "Eviction"}
        if name == "scale":
            what = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        yield name, sorted(verbs), what


def _resources(kinds: Kinds, group: str, version: str) -> Json:
    made: Json = {"kind": "APIResourceList"}
    if group:
        made["apiVersion"] = "v1"
    made["groupVersion"] = f"{group}/{version}" if group else version
    resources = []
    for kind in _kinds(kinds, group, version):
        resources.append(_resource(kind))
        for name, verbs, what in _subresources(kind):
            whole = f"{kind.plural}/{name}"
            resources.append({"name": whole, "singularName": "", "namespaced": kind.namespaced, **what, "verbs": verbs})
    for (owner, plural), (name, _) in reviews.REVIEWS.items():
        if owner == group:
            resources.append(
                {"name": plural, "singularName": name.lower(), "namespaced": False, "kind": name, "verbs": ["create"]}
            )
    return made | {"resources": resources}


def _kinds(kinds: Kinds, group: str, version: str) -> list[Kind]:
    found = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    return sorted(found, key=lambda kind: kind.plural)


def _resource(kind: Kind) -> Json:
    made: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    if kind.short:
        made["shortNames"] = list(kind.short)
    if kind.categories:
        made["categories"] = list(kind.categories)
    return made | {"storageVersionHash": _hash(kind)}


def _hash(kind: Kind) -> str:
    digest = hashlib.sha256(f"{kind.group}/{kind.version}/{kind.kind}".encode()).digest()
    return b64encode(digest[:8]).decode()


@remembered(64)
def _aggregated_version(accept: str) -> str:
    """The version in which a client wants everything at once; empty if it does not want that."""
    for clause in negotiation.clauses(accept):
        if clause.parameters.get("as") == AGGREGATED and clause.parameters.get("g") == "apidiscovery.k8s.io":
            if clause.parameters.get("v") in ("v2", "v2beta1"):
                return clause.parameters["v"]
        elif clause.media in (JSON, "application/*", "*/*") and "as" not in clause.parameters:
            return ""
    return ""


@cache
def _digest(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


@cache
def aggregated(kinds: Kinds, prefix: str, version: str) -> bytes:
    """All groups, versions and resources at once."""
    items = []
    for group, versions in _names(kinds).items():
        if bool(group) == (prefix == "apis"):
            listed = [
                {"version": each, "resources": _discovered(kinds, group, each), "freshness": "Current"}
                for each in versions
            ]
            items.append({"metadata": {"name": group} if group else {}, "versions": listed})
    return encode({"kind": AGGREGATED, "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}, "items": items})


def _discovered(kinds: Kinds, group: str, version: str) -> list[Json]:
    found = []
    for each in _resources(kinds, group, version)["resources"]:
        if "/" in each["name"]:
            continue
        kind = next((kind for kind in _kinds(kinds, group, version) if kind.plural == each["name"]), None)
        made: Json = {
            "resource": each["name"],
            "responseKind": {"group": group, "version": version, "kind": each["kind"]},
            "scope": "Namespaced" if each["namespaced"] else "Cluster",
            "singularResource": each["singularName"],
            "verbs": each["verbs"],
        }
        made |= {key: each[key] for key in ("shortNames", "categories") if key in each}
        parts = [
            {"subresource": name, "responseKind": {"group": "", "version": "", **what}, "verbs": verbs}
            for name, verbs, what in (_subresources(kind) if kind else ())
        ]
        found.append({**made, "subresources": parts} if parts else made)
    return found
