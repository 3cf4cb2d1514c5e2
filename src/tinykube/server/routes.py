"""Which path means what.

/api/v1/namespaces/NAMESPACE/pods/NAME/status
/apis/GROUP/VERSION/RESOURCE/NAME
/api/v1/nodes/NAME/proxy/PATH
"""

from __future__ import annotations

from collections.abc import Sequence

from tinykube.server import errors
from tinykube.server.kinds import DEPLOYMENT, NAMESPACE, NODE, POD, REPLICA_SET, Kind
from tinykube.server.registry import Target
from tinykube.status import ApiError

# What can be done to a collection, in a namespace or in all, and to one object.
COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
STATUS = {"GET": "get", "PUT": "update", "PATCH": "patch"}
SUBRESOURCES: dict[tuple[Kind, str], dict[str, str]] = {
    (POD, "binding"): {"POST": "bind"},
    (POD, "eviction"): {"POST": "evict"},
    (POD, "log"): {"GET": "log"},
    (POD, "exec"): {"GET": "exec", "POST": "exec"},
    (NAMESPACE, "finalize"): {"PUT": "update"},
    (DEPLOYMENT, "scale"): STATUS,
    (REPLICA_SET, "scale"): STATUS,
    (NODE, "proxy"): dict.fromkeys(("GET", "POST", "PUT", "PATCH", "DELETE"), "proxy"),
}


def not_found() -> ApiError:
    """Nothing is there."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def not_allowed() -> ApiError:
    """Something is there, but that cannot be done to it."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


class Routes:
    """The paths of the kinds that a server has."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._groups: dict[str, dict[str, dict[str, Kind]]] = {}
        """Kinds by group, version and plural."""
        self._custom = {kind.group for kind in kinds if kind.custom}
        for kind in kinds:
            self._groups.setdefault(kind.group, {}).setdefault(kind.version, {})[kind.plural] = kind

    def resolve(self, method: str, parts: list[str]) -> tuple[str, Target] | None:
        """What a request wants, and of which object; None if its path is not about objects."""
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        versions = self._groups.get(group)
        if versions is None:
            return None
        found = _target(versions.get(version, {}), rest)
        if found is None:
            if group in self._custom:
                return None  # a real cluster has another server for custom kinds, whose answer says less
            raise not_found()
        return _verb(method, *found), found[0]


def _target(kinds: dict[str, Kind], rest: list[str]) -> tuple[Target, bool] | None:
    """The object or collection that a path names, and whether the collection is one that can be written to."""
    namespace = ""
    in_namespace = rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize")
    if in_namespace:
        namespace, rest = rest[1], rest[2:]
        if rest == ["bindings"] and kinds.get("pods") is POD:
            return Target(POD, namespace, "", "binding"), True
    kind = kinds.get(rest[0])
    if kind is None or (in_namespace and not kind.namespaced):
        return None
    if len(rest) > 3 and (kind, rest[2]) != (NODE, "proxy"):  # what follows there is a path of the node's own
        return None
    if kind.namespaced and not in_namespace and len(rest) > 1:
        return None
    name, subresource = (rest[1] if len(rest) > 1 else ""), (rest[2] if len(rest) > 2 else "")
    return Target(kind, namespace, name, subresource), in_namespace or not kind.namespaced


def _verb(method: str, target: Target, whole: bool) -> str:
    kind = target.kind
    if target.subresource == "status" and kind.status:
        verbs = STATUS
    elif target.subresource:
        found = SUBRESOURCES.get((kind, target.subresource))
        if found is None:
            raise errors.not_found(kind, target.name) if kind.custom else not_found()
        verbs = found
    elif target.name:
        verbs = {**OBJECT, "POST": "create"} if kind.custom else OBJECT
    else:
        if kind.custom and method in ("PUT", "PATCH"):
            raise errors.bad_request("name must be provided")
        verbs = COLLECTION if whole else {"GET": "list"}
    verb = verbs.get(method)
    if verb is None or (verb == "deletecollection" and kind is NAMESPACE):
        raise not_allowed()
    return verb
