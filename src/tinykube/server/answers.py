"""Answers in the form that a client asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tinykube.server import documents, table
from tinykube.server.kinds import Kind
from tinykube.server.negotiation import JSON, PLAIN, Form
from tinykube.server.paging import Page
from tinykube.server.store import Stored, encode
from tinykube.server.watch import Shape
from tinykube.status import ApiError
from tinykube.transport import Response

Json = dict[str, Any]

_JSON_HEADERS = {"content-type": JSON, "cache-control": "no-cache, private"}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How one request wants to see objects of a kind.  `include` is what a Table's rows carry.

    `warnings` collects what is odd about the request; they come with the answer, even if that is a refusal.
    """

    kind: Kind
    form: Form = PLAIN
    include: str = "Metadata"
    clock: Callable[[], float] = time.time
    warnings: list[str] = field(default_factory=list)

    def object(self, stored: Stored, status: int = 200) -> Response:
        """One object."""
        form = self.form
        if not form.convert:
            return answer(stored.data, form, status, self.warnings)
        if form.convert == "PartialObjectMetadataList":
            raise table.not_a_list(self.kind)
        return answer(encode(self._converted(stored.object)), form, status, self.warnings)

    def said(self, status: Json, code: int = 200) -> Response:
        """A Status, which has one form only."""
        return answer(encode(status), _unconverted(self.form), code, self.warnings)

    def refused(self, error: ApiError) -> Response:
        """A refusal."""
        return refusal(error, _unconverted(self.form), self.warnings)

    def page(self, page: Page) -> Response:
        """A list."""
        form, metadata = self.form, page.metadata()
        if not form.convert:
            return answer(_list(self.kind, page), form)
        if form.convert == "PartialObjectMetadata":
            raise table.is_a_list(self.kind)
        objects = [each.object for each in page.items]
        if form.convert == "Table":
            return answer(encode(self._table(objects, metadata)), form)
        return answer(encode(table.partial_list(objects, metadata, form.version)), form)

    def shape(self) -> Shape | None:
        """How objects of a watch look; None if they look as they are."""
        if not self.form.convert:
            return None
        headers = True

        def shown(stored: Stored) -> bytes:
            nonlocal headers
            made = self._converted(stored.object, headers)
            headers = False
            return encode(made)

        return shown

    def _converted(self, object: Json, headers: bool = True) -> Json:
        if self.form.convert != "Table":
            return table.partial(object, self.form.version)
        metadata = {"resourceVersion": object["metadata"].get("resourceVersion", "")}
        return self._table([object], metadata, headers)

    def _table(self, objects: Sequence[Json], metadata: Json, headers: bool = True) -> Json:
        return table.table(
            self.kind,
            objects,
            metadata,
            include=self.include,
            version=self.form.version,
            now=self.clock(),
            headers=headers,
        )


def _unconverted(form: Form) -> Form:
    return replace(form, convert="") if form.convert else form


def answer(data: bytes, form: Form = PLAIN, status: int = 200, warnings: Sequence[str] = ()) -> Response:
    """JSON in the form that a client wants."""
    headers = _JSON_HEADERS
    if form.media != JSON or form.pretty:
        data = documents.print_as(data, form.media, form.pretty)
        headers = {**headers, "content-type": form.media}
    if warnings:
        headers = {**headers, "warning": ", ".join(f"299 - {_quoted(each)}" for each in dict.fromkeys(warnings))}
    return Response(status, headers, data)


def refusal(error: ApiError, form: Form = PLAIN, warnings: Sequence[str] = ()) -> Response:
    """What a client gets that is refused."""
    response = answer(encode(error.status()), form, error.code, warnings)
    seconds = error.details.get("retryAfterSeconds")
    if seconds:
        return Response(response.status, {**response.headers, "retry-after": str(seconds)}, response.body)
    return response


def _quoted(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


@cache
def _prefix(kind: Kind) -> bytes:
    """What the bytes of a stored object begin with."""
    return encode({"kind": kind.kind, "apiVersion": kind.api_version})[:-1] + b","


def _list(kind: Kind, page: Page) -> bytes:
    """A list, put together from bytes.  Only items of custom kinds say what they are."""
    name = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": page.metadata(kind.custom)}
    items = [each.data for each in page.items]
    if not kind.custom:
        cut = len(_prefix(kind))
        items = [b"{" + each[cut:] for each in items]
    return b'%b,"items":[%b]}' % (encode(name)[:-1], b",".join(items))
