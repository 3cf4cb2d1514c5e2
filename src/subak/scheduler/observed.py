"""Counts what an API server refuses, and tells an administrator once about each right that is missing."""

from __future__ import annotations

import logging
from collections import Counter

from tinykube.transport import Request, Response, Transport

NO_ANSWER = "none"
"""Stands for a code where no answer came."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

log = logging.getLogger(__name__)


class Observed:
    """A transport that keeps count: `errors` by verb and code.

    `role` is the ClusterRole of whoever uses it, and `manifest` the file of deploy/manifests that has it.
    """

    def __init__(self, transport: Transport, role: str, manifest: str = "controller-rbac.yaml") -> None:
        self.errors: Counter[tuple[str, str]] = Counter()
        self._transport = transport
        self._role = role
        self._manifest = manifest
        self._told: set[tuple[str, str]] = set()

    async def send(self, request: Request) -> Response:
        try:
            response = await self._transport.send(request)
        except (OSError, TimeoutError):
            self.errors[asked(request)[0], NO_ANSWER] += 1
            raise
        if response.status >= 400:
            verb, resource = asked(request)
            self.errors[verb, str(response.status)] += 1
            if response.status == 403:
                self._tell(verb, resource)
        return response

    async def close(self) -> None:
        await self._transport.close()

    def _tell(self, verb: str, resource: str) -> None:
        if (verb, resource) not in self._told:
            self._told.add((verb, resource))
            log.error(
                "the API server forbids to %s %s: the ClusterRole or Role %s lacks that right "
                "(kubectl apply -f deploy/manifests/%s)",
                verb,
                resource,
                self._role,
                self._manifest,
            )


def asked(request: Request) -> tuple[str, str]:
    """The verb and the resource of a request, as RBAC names them: `create`, `pods/binding`."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    resource = "/".join(parts[0:1] + parts[2:3]) or request.path
    if request.method in _VERBS:
        return _VERBS[request.method], resource
    if request.query.get("watch"):
        return "watch", resource
    return "get" if len(parts) > 1 else "list", resource
