"""What can be asked of an API server, in Python.

    client = Client(transport)
    pod = await client.get(PODS, "web-1", "default", type=manifest.Pod)
    await client.patch(PODS, "web-1", "default", {"metadata": {"labels": {"a": "b"}}})

Every refusal is an `ApiError`; OSError or TimeoutError mean that no answer came, so that the outcome is not known.  A
request is sent again only where that cannot do harm: the server asked for it (429), or has not seen it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic

import msgspec

from tinykube.answers import chunks, events, refused
from tinykube.codec import RAW, Body, Bookmark, Header, T, Unreadable, WatchEvent, codec, decode, encode
from tinykube.resource import PODS, BadName, Resource
from tinykube.status import ApiError
from tinykube.transport import Request, Response, Transport, Unreachable

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

PAGE = 500
TRIES = 5
FIRST_PAUSE = 0.05
LONGEST_RETRY_AFTER = 30.0

Query = dict[str, str | None]
Unreadables = list[Unreadable]


class Listing(msgspec.Struct, Generic[T]):
    """All objects of a list, the revision of which it is, and what of it could not be read."""

    items: list[T]
    revision: str
    unreadable: list[Unreadable] = []


class Client:
    """Speaks to one API server.  `manager` is the name under which the fields that it writes are owned."""

    def __init__(self, transport: Transport, manager: str = "tinykube") -> None:
        self.transport = transport
        self.manager = manager

    async def close(self) -> None:
        """Let go of connections."""
        await self.transport.close()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: Body = b"",
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Response:
        """Any request; parameters that are None are left out.  Raises ApiError if it is refused."""
        headers = {"accept": accept}
        if body != b"":
            headers["content-type"] = content_type
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return await self.send(Request(method, path, given, headers, encode(body)))

    async def send(self, request: Request) -> Response:
        """Send a request, again if that is safe.  Raises ApiError if it is refused."""
        pause = FIRST_PAUSE
        for tries_left in reversed(range(TRIES)):
            try:
                response = await self.transport.send(request)
            except Unreachable:
                if not tries_left:
                    raise
                await asyncio.sleep(pause)
                pause *= 2
                continue
            if response.status < 400:
                return response
            wait = response.headers.get("retry-after", "")
            if response.status != 429 or not wait.isdecimal() or not tries_left:
                break
            await asyncio.sleep(min(float(wait), LONGEST_RETRY_AFTER))
        raise await refused(response)

    async def get(self, resource: Resource, name: str, namespace: str = "", *, type: type[T] = RAW) -> T:
        """One object."""
        response = await self.request("GET", resource.path(namespace, _named(resource, name)))
        return decode(type, response.body)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str | None = None,
        fields: str | None = None,
        strict: bool = True,
        type: type[T] = RAW,
    ) -> Listing[T]:
        """All objects, of one namespace or of all.

        One that has other fields than `type` is raised as Unreadable; if not `strict`, the others are given without it.
        """
        query: Query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        items: list[T] = []
        unreadable: Unreadables = []
        while True:
            try:
                response = await self.request("GET", resource.path(namespace), query)
            except ApiError as error:
                if error.code != 410 or "continue" not in query:
                    raise
                # The server no longer has the revision of the first page: all at once needs no memory of it.
                items, unreadable = [], []
                query = {**query, "limit": None, "continue": None}
                continue
            page, problems = codec(type).page(response.body)
            items += page.items or ()
            unreadable += problems
            if strict and unreadable:
                raise unreadable[0]
            if not page.metadata.next:
                return Listing(items, page.metadata.resource_version, unreadable)
            query = {**query, "continue": page.metadata.next}

    async def latest(self, resource: Resource, namespace: str = "") -> str:
        """The latest revision of a kind of objects: those of one kind can be compared as numbers."""
        response = await self.request("GET", resource.path(namespace), {"limit": "1"})
        return decode(Header, response.body).metadata.resource_version

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        revision: str,
        labels: str | None = None,
        fields: str | None = None,
        timeout: int | None = None,
        type: type[T] = RAW,
    ) -> AsyncGenerator[WatchEvent[T] | Bookmark | Unreadable, None]:
        """What happens after `revision`, with bookmarks, until the server ends it; `Reflector` goes on from there.

        Raises ApiError 410 if the server no longer knows what happened after `revision`.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": revision,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": None if timeout is None else str(timeout),
        }
        response = await self.request("GET", resource.path(namespace), query)
        return events(codec(type), response)

    async def create(
        self,
        resource: Resource,
        body: Body,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        validation: str | None = None,
        type: type[T] = RAW,
    ) -> T:
        """A new object; with a name and a subresource, something that is posted there."""
        if resource.namespaced and not namespace:
            raise BadName(f"{resource}: the namespace is missing")
        query = self._writing(dry_run, validation)
        response = await self.request("POST", resource.path(namespace, name, subresource), query, body)
        return decode(type, response.body)

    async def update(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        body: Body,
        *,
        subresource: str = "",
        dry_run: bool = False,
        validation: str | None = None,
        type: type[T] = RAW,
    ) -> T:
        """Another content for an object; refused with 409 if `metadata.resourceVersion` is given and not the latest."""
        path = resource.path(namespace, _named(resource, name), subresource)
        response = await self.request("PUT", path, self._writing(dry_run, validation), body)
        return decode(type, response.body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        body: Body,
        *,
        kind: str = MERGE_PATCH,
        subresource: str = "",
        dry_run: bool = False,
        validation: str | None = None,
        type: type[T] = RAW,
    ) -> T:
        """A change: `kind` is MERGE_PATCH, JSON_PATCH or STRATEGIC_PATCH.

        It is refused if `metadata.resourceVersion` (409) or `metadata.uid` (409 or 422) in a merge patch are others.
        """
        path = resource.path(namespace, _named(resource, name), subresource)
        response = await self.request("PATCH", path, self._writing(dry_run, validation), body, kind)
        return decode(type, response.body)

    async def patch_status(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        status: Mapping[str, Any],
        *,
        uid: str = "",
        kind: str = STRATEGIC_PATCH,
    ) -> None:
        """Change the status of an object; a strategic patch, not for custom kinds, merges conditions by type."""
        path = resource.path(namespace, _named(resource, name), "status")
        body = {"metadata": {"uid": uid} if uid else {}, "status": dict(status)}
        await self.request("PATCH", path, self._writing(), body, kind)

    async def apply(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        body: Body,
        *,
        manager: str = "",
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        validation: str | None = None,
        type: type[T] = RAW,
    ) -> T:
        """Server-side apply: the fields of `body` become ours; refused with 409 if others own them, unless forced."""
        query = {**self._writing(dry_run, validation), "force": "true" if force else None}
        query["fieldManager"] = manager or self.manager
        path = resource.path(namespace, _named(resource, name), subresource)
        response = await self.request("PATCH", path, query, body, APPLY_PATCH)
        return decode(type, response.body)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace: int | None = None,
        propagation: str | None = None,
        uid: str = "",
        revision: str = "",
        dry_run: bool = False,
        type: type[T] = RAW,
    ) -> T:
        """Delete an object; gives the object if it takes time to go, else a Status.

        `propagation` is Foreground, Background or Orphan; `uid` and `revision` are preconditions.
        """
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", revision)) if value}
        options = {
            "gracePeriodSeconds": grace,
            "propagationPolicy": propagation,
            "preconditions": preconditions or None,
            "dryRun": ["All"] if dry_run else None,
        }
        body = {key: value for key, value in options.items() if value is not None}
        if body:
            body = {"apiVersion": "v1", "kind": "DeleteOptions", **body}
        path = resource.path(namespace, _named(resource, name))
        response = await self.request("DELETE", path, None, body or b"")
        return decode(type, response.body)

    async def bind(
        self,
        name: str,
        namespace: str,
        node: str,
        *,
        uid: str = "",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Give a pod its node, annotations and labels in one write; refused if it has a node, or another UID."""
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if uid:
            metadata["uid"] = uid
        if annotations:
            metadata["annotations"] = dict(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.request("POST", PODS.path(namespace, name, "binding"), self._writing(), body)

    async def logs(
        self,
        name: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        since_seconds: int | None = None,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What a container printed, in chunks as they come."""
        query = {
            "container": container,
            "follow": "true" if follow else None,
            "previous": "true" if previous else None,
            "timestamps": "true" if timestamps else None,
            "sinceSeconds": None if since_seconds is None else str(since_seconds),
            "tailLines": None if tail_lines is None else str(tail_lines),
            "limitBytes": None if limit_bytes is None else str(limit_bytes),
        }
        response = await self.request("GET", PODS.path(namespace, name, "log"), query, accept="*/*")
        return chunks(response)

    def _writing(self, dry_run: bool = False, validation: str | None = None) -> Query:
        return {
            "fieldManager": self.manager,
            "dryRun": "All" if dry_run else None,
            "fieldValidation": validation,
        }


def _named(resource: Resource, name: str) -> str:
    if not name:
        raise BadName(f"{resource}: the name is missing")
    return name
