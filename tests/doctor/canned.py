"""An API server that gives prepared answers: each request is looked up by its method and path."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tinykube.client import Client
from tinykube.status import ApiError
from tinykube.transport import Request, Response

Answer = dict[str, Any] | ApiError | Callable[[dict[str, Any]], Any]

SUBAK = "/api/v1/namespaces/subak-system"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/subak-system/leases"
VERSION = {"gitVersion": "v1.36.3"}


class Canned:
    """Carries requests to the answers; whatever is not prepared is not found.  `asked` are the requests so far."""

    def __init__(self, answers: Mapping[str, Answer], date: str = "") -> None:
        self.answers = dict(answers)
        self.date = date
        self.asked: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.asked.append(request)
        answer = self.answers.get(f"{request.method} {request.path}", _not_found(request.path))
        if callable(answer) and not isinstance(answer, ApiError):
            answer = answer(json.loads(request.body or b"{}"))
        if isinstance(answer, ApiError):
            return Response(answer.code, {}, json.dumps(answer.status()).encode())
        return Response(200, {"date": self.date}, json.dumps(answer).encode())

    async def close(self) -> None:
        pass


def client(answers: Mapping[str, Answer], date: str = "") -> Client:
    """A client of such a server, which is a Kubernetes 1.36 unless another version is prepared."""
    return Client(Canned({"GET /version": VERSION, **answers}, date))


def items(*objects: Mapping[str, Any]) -> dict[str, Any]:
    """A list of objects."""
    return {"metadata": {"resourceVersion": "1"}, "items": list(objects)}


def forbidden(what: str) -> ApiError:
    """The refusal of a request for which the user has no right."""
    return ApiError(403, "Forbidden", f'{what} is forbidden: User "jane" cannot list resource "{what}"')


def _not_found(path: str) -> ApiError:
    return ApiError(404, "NotFound", f"{path} not found")
