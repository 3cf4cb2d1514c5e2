"""Requests to a server in the same process, in few words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.support.custom import CUSTOM
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.transport import Request, Response, Transport

Json = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DEADLINE = 5.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    code: int
    body: Any
    headers: Mapping[str, str]


class Talk:
    """Speaks to one server; `way` may lead to another one."""

    def __init__(self, server: Server | None = None) -> None:
        self.server = server or Server(Store(custom=CUSTOM))
        self.way: Transport = self.server

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Any request; `headers`, `patch` and `user` apart, options are its query."""
        response = await self.raw(method, path, body, **options)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        found = msgspec.json.decode(response.body) if is_json else response.body
        return Answer(response.status, found, response.headers)

    async def raw(self, method: str, path: str, body: Any = None, **options: Any) -> Response:
        headers = options.pop("headers", {})
        patch, user = options.pop("patch", ""), options.pop("user", None)
        if patch:
            headers = {**headers, "content-type": PATCHES[patch]}
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        query = {key: str(value) for key, value in options.items()}
        return await self.way.send(Request(method, path, query, headers, content, user))

    async def get(self, path: str, **options: Any) -> Any:
        """What is there; it must be there."""
        answer = await self.send("GET", path, **options)
        assert answer.code == 200, answer.body
        return answer.body

    async def create(self, path: str, body: Json, **options: Any) -> Any:
        """A new object; it must not be refused."""
        answer = await self.send("POST", path, body, **options)
        assert answer.code == 201, answer.body
        return answer.body

    async def patch(self, path: str, patch: str, body: Any, **options: Any) -> Any:
        """A changed object; it must not be refused."""
        answer = await self.send("PATCH", path, body, patch=patch, **options)
        assert answer.code in (200, 201), answer.body
        return answer.body

    async def watch(self, path: str, **options: Any) -> Watching:
        """The events of a watch."""
        response = await self.raw("GET", path, watch="true", **options)
        assert response.status == 200, response.body
        assert response.stream is not None
        return Watching(response.stream)


class Watching:
    """Reads a watch event by event."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self.stream = stream
        self._events: list[Json] = []

    async def next(self) -> Json:
        """The next event; raises StopAsyncIteration at the end."""
        while not self._events:
            chunk = await asyncio.wait_for(anext(self.stream), DEADLINE)
            self._events += [msgspec.json.decode(line) for line in chunk.splitlines()]
        return self._events.pop(0)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """The next events, as type and name."""
        found = [await self.next() for _ in range(count)]
        return [(each["type"], each["object"]["metadata"].get("name", "")) for each in found]

    async def close(self) -> None:
        await self.stream.aclose()  # type: ignore[attr-defined]


def pod(name: str = "p", **spec: Any) -> Json:
    """The smallest pod."""
    containers = [{"name": "c", "image": "busybox"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def config_map(name: str = "c", labels: dict[str, str] | None = None, **data: str) -> Json:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def binding(name: str, node: str = "n1", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
