"""A client that does nothing but send what it is told and show what comes back."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

PATIENCE = 60.0
"""How long, in seconds, to wait for what must happen."""

JSON = "application/json"
PATCHES = {
    "JSON": "application/json-patch+json",
    "MERGE": "application/merge-patch+json",
    "STRATEGIC": "application/strategic-merge-patch+json",
    "APPLY": "application/apply-patch+yaml",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    code: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of a refusal."""
        return str(self.json["message"])

    @property
    def reason(self) -> str:
        """Of a refusal."""
        return str(self.json["reason"])

    @property
    def warnings(self) -> list[str]:
        return self.headers.get_all("Warning") or []

    def must(self, code: int = 0) -> Any:
        """The object in an answer that has to be of this code, or of any that means success."""
        assert self.code == code if code else self.code < 300, f"{self.code}: {self.body.decode(errors='replace')}"
        return self.json


class Client:
    """Speaks HTTP to one server as one user."""

    def __init__(self, address: str, authority: str, token: str) -> None:
        self.address = address
        self.authority = authority
        self.token = token
        self.trust = ssl.create_default_context(cadata=authority)
        self._connection = self.connect()

    def connect(self) -> http.client.HTTPSConnection:
        where = urlsplit(self.address)
        return http.client.HTTPSConnection(where.hostname or "", where.port, timeout=PATIENCE, context=self.trust)

    def close(self) -> None:
        self._connection.close()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Any request.  A body that is not text or bytes is sent as JSON."""
        sent = _request(method, path, body, headers, query, self.token)
        try:
            self._connection.request(*sent)
            answer = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):  # an idle connection that the server has closed
            self._connection.close()
            self._connection.request(*sent)
            answer = self._connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())

    @contextmanager
    def watch(self, path: str, *, accept: str = JSON, **query: Any) -> Iterator[Watch]:
        """What happens to the objects at a path, until the block ends."""
        connection = self.connect()
        try:
            sent = _request("GET", path, None, {"Accept": accept}, {"watch": "true", **query}, self.token)
            connection.request(*sent)
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(Answer(answer.status, answer.headers, answer.read()))
            yield Watch(answer)
        finally:
            connection.close()


class Refused(Exception):
    """A watch that the server did not start."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body)
        self.answer = answer


class Watch:
    """The events of a watch."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer

    def next(self) -> Any:
        """The next event; waits for it."""
        line = self._answer.readline()
        assert line, "the watch has ended"
        return json.loads(line)

    def take(self, count: int) -> list[tuple[str, str]]:
        """The next events, as type and name."""
        found = [self.next() for _ in range(count)]
        return [(each["type"], each["object"]["metadata"].get("name", "")) for each in found]

    def rest(self) -> list[Any]:
        """All events until the server ends the watch."""
        return [json.loads(line) for line in self._answer.readlines()]


def eventually(check: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What `check` gives once it is true."""
    deadline = time.monotonic() + patience
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"after {patience} s it is still {found!r}"
        time.sleep(0.02)


def _request(
    method: str,
    path: str,
    body: Any,
    headers: Mapping[str, str] | None,
    query: Mapping[str, Any] | None,
    token: str,
) -> tuple[str, str, bytes | None, dict[str, str]]:
    given = {"Authorization": f"Bearer {token}", "Accept": JSON, "User-Agent": "contracts/1.0"}
    if method in PATCHES:
        given["Content-Type"] = PATCHES[method]
        method = "PATCH"
    elif body is not None:
        given["Content-Type"] = JSON
    content = body if body is None or isinstance(body, bytes) else _text(body).encode()
    asked = {key: value for key, value in (query or {}).items() if value is not None}
    if asked:
        path += ("&" if "?" in path else "?") + urlencode(asked)
    chosen = {**given, **(headers or {})}
    return method, path, content, {key: value for key, value in chosen.items() if value}


def _text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)
