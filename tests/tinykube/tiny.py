"""An API server with pods only, which forgets, refuses and cuts connections as a test wishes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tinykube.status import ApiError
from tinykube.transport import Request, Response, Unreachable

Fault = str | int
"""What happens to the next request: `unreachable`, `lost`, `malformed`, `cut` (a watch in the middle of a line), or the
code of a refusal."""

Json = dict[str, Any]


class TinyServer:
    """Follows `Transport`."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.revision = 1
        self.history: list[tuple[int, str, Json]] = []
        self.compacted = 0
        self.faults: deque[Fault] = deque()
        self.requests: list[Request] = []
        self.page = 500
        self.absent = False
        self.hangs_up = False
        self.deaf = False
        self._uids = 0
        self._changed = asyncio.Event()
        self._generation = 0

    def put(self, name: str, **spec: Any) -> None:
        """Create or change a pod."""
        known = self.objects.get(name)
        self._uids += known is None
        uid = known["metadata"]["uid"] if known else f"uid-{self._uids}"
        self._write("MODIFIED" if known else "ADDED", name, uid, spec)

    def remove(self, name: str) -> None:
        """Delete a pod."""
        known = self.objects.get(name)
        if known is not None:
            self._write("DELETED", name, known["metadata"]["uid"], known["spec"])

    def compact(self) -> None:
        """Forget what happened so far."""
        self.compacted = self.revision
        self.history.clear()

    def hold_back(self) -> None:
        """Watches that there are now and will be tell nothing until `end_watches`."""
        self.deaf = True

    def end_watches(self) -> None:
        """End all watches in good order, as a server does when their time is over."""
        self.deaf = False
        self._generation += 1
        self._wake()

    def _write(self, change: str, name: str, uid: str, spec: Json) -> None:
        self.revision += 1
        metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(self.revision)}
        item = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}
        if change == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = item
        self.history.append((self.revision, change, item))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        await asyncio.sleep(0)
        fault = self.faults.popleft() if self.faults else None
        match fault:
            case "unreachable":
                raise Unreachable("connection refused")
            case "lost":
                raise ConnectionError("the connection broke")
            case "malformed":
                return Response(200, body=b'{"kind": "PodList", "items": [')
            case int(code):
                return _refusal(ApiError(code, "Injected", f"refused with {code}"))
        if self.absent:
            return _refusal(ApiError(404, "NotFound", "the server could not find the requested resource"))
        if request.query.get("watch"):
            since = int(request.query["resourceVersion"])
            return Response(200, stream=_nothing() if self.hangs_up else self._watch(since, fault == "cut"))
        return self._list(request)

    async def close(self) -> None:
        pass

    def _list(self, request: Request) -> Response:
        """One page; the token is the revision and the first name of the rest."""
        token = request.query.get("continue", "")
        revision, _, start = token.partition("/")
        if token and int(revision) <= self.compacted:
            return _refusal(ApiError(410, "Expired", "the provided continue parameter is too old"))
        size = min(int(request.query.get("limit", 10**6)), self.page)
        state = self._state_at(int(revision)) if token else self.objects
        names = [name for name in sorted(state) if name >= start]
        metadata = {"resourceVersion": revision or str(self.revision)}
        if len(names) > size and "limit" in request.query:
            metadata["continue"] = f"{metadata['resourceVersion']}/{names[size]}"
            names = names[:size]
        items = [state[name] for name in names]
        return Response(200, body=msgspec.json.encode({"kind": "PodList", "metadata": metadata, "items": items}))

    def _state_at(self, revision: int) -> dict[str, Json]:
        state = dict(self.objects)
        for at, _, item in reversed(self.history):
            if at > revision:
                name = item["metadata"]["name"]
                before = [old for when, change, old in self.history if when < at and old["metadata"]["name"] == name]
                state.pop(name, None)
                if before and before[-1] is not item:
                    state[name] = before[-1]
        return state

    async def _watch(self, since: int, cut: bool) -> AsyncIterator[bytes]:
        generation = self._generation
        if since < self.compacted:
            gone = ApiError(410, "Expired", f"too old resource version: {since} ({self.compacted})")
            yield _line("ERROR", gone.status())
            return
        while generation == self._generation:
            changed = self._changed
            for revision, change, item in [entry for entry in self.history if entry[0] > since and not self.deaf]:
                line, since = _line(change, item), revision
                if cut:
                    yield line[: len(line) // 2]
                    raise ConnectionError("the connection broke in the middle of a line")
                yield line[:20]  # lines come in pieces
                yield line[20:]
            await changed.wait()
            if since < self.compacted:
                # A watch that has seen everything before is told so by a bookmark, others have lost something.
                yield _line("ERROR", ApiError(410, "Expired", "too old resource version").status())
                return
        yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(since)}, "spec": {"containers": None}})


async def _nothing() -> AsyncIterator[bytes]:
    lines: list[bytes] = []
    for line in lines:
        yield line


def _line(change: str, item: Json) -> bytes:
    return msgspec.json.encode({"type": change, "object": item}) + b"\n"


def _refusal(error: ApiError) -> Response:
    return Response(error.code, body=msgspec.json.encode(error.status()))
