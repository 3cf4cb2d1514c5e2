"""Which kinds a server has, and which of them people mean: `po`, `pod`, `pods.v1.`, `deploy.apps`, `Pod`.

A server tells all of it in two answers (aggregated discovery); older ones tell it group by group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tinykube.client import Client
from tinykube.codec import decode
from tinykube.resource import Resource

AGGREGATED = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)


class UnknownKind(LookupError):
    """The server has no such kind."""


@dataclass(frozen=True, slots=True)
class Known:
    """A kind that the server has."""

    resource: Resource
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()

    def called(self, name: str) -> bool:
        """Whether people call it so."""
        return name in (self.resource.plural, self.singular, self.resource.kind.lower())


class Camel(msgspec.Struct, rename="camel"):
    """A part of a discovery document."""


class Names(Camel):
    """The kind's name."""

    kind: str = ""


class AggregatedResource(Camel):
    """A kind, in aggregated discovery."""

    resource: str
    response_kind: Names | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: list[str] = []
    short_names: list[str] = []
    categories: list[str] = []


class AggregatedVersion(Camel):
    """A version of a group."""

    version: str
    resources: list[AggregatedResource] = []


class AggregatedGroup(Camel):
    """A group, its preferred version first."""

    metadata: dict[str, Any]
    versions: list[AggregatedVersion] = []


class Aggregated(Camel):
    """What `/api` or `/apis` say; without `items` the server knows only the old way."""

    kind: str = ""
    items: list[AggregatedGroup] = []
    versions: list[str] = []
    groups: list[dict[str, Any]] = []


class OldResource(Camel):
    """A kind, or with a slash a part of one."""

    name: str
    kind: str
    namespaced: bool = False
    singular_name: str = ""
    verbs: list[str] = []
    short_names: list[str] | None = None
    categories: list[str] | None = None


class OldList(Camel):
    """The kinds of one version of a group."""

    resources: list[OldResource] = []


@dataclass(frozen=True, slots=True)
class Discovery:
    """All kinds of a server, in its order of preference."""

    kinds: Sequence[Known]

    @classmethod
    async def of(cls, client: Client) -> Discovery:
        """Ask a server."""
        parts = await asyncio.gather(_kinds(client, "/api"), _kinds(client, "/apis"))
        return cls([known for part in parts for known in part])

    def find(self, text: str) -> Known:
        """The kind that a user means.  Raises UnknownKind.

        Of several with the same name the server's preferred one is taken, as kubectl does.
        """
        name, *rest = text.lower().split(".")
        if not name:
            raise UnknownKind("the name of a resource type is missing")
        version, group = (rest[0], ".".join(rest[1:])) if len(rest) > 1 else ("", "")
        for candidates in (
            [each for each in self.kinds if len(rest) > 1 and _is(each, version, group)],
            [each for each in self.kinds if not rest or each.resource.group == ".".join(rest)],
            [each for each in self.kinds if rest and each.resource.group.startswith(".".join(rest))],
        ):
            for known in (*_called(name, candidates), *(each for each in candidates if name in each.short)):
                return known
        raise UnknownKind(f'the server doesn\'t have a resource type "{text}"')

    def kind(self, api_version: str, kind: str) -> Known:
        """The kind of an object that says so of itself.  Raises UnknownKind."""
        for known in self.kinds:
            if known.resource.kind == kind and known.resource.api_version == api_version:
                return known
        raise UnknownKind(f'no matches for kind "{kind}" in version "{api_version}"')

    def category(self, name: str) -> list[Known]:
        """The kinds of a category such as `all`."""
        return [known for known in self.kinds if name in known.categories]


def _is(known: Known, version: str, group: str) -> bool:
    return known.resource.version == version and known.resource.group == group


def _called(name: str, candidates: Iterable[Known]) -> list[Known]:
    return sorted((each for each in candidates if each.called(name)), key=lambda each: each.resource.plural != name)


async def _kinds(client: Client, path: str) -> list[Known]:
    response = await client.request("GET", path, accept=f"{AGGREGATED},application/json")
    answer = decode(Aggregated, response.body)
    if answer.kind == "APIGroupDiscoveryList":
        return [
            _known(group.metadata.get("name", ""), version.version, each)
            for group in answer.items
            for version in group.versions
            for each in version.resources
        ]
    versions = [("", version) for version in answer.versions]
    for group in answer.groups:
        preferred = group.get("preferredVersion", {}).get("version")
        versions += [
            (group["name"], each["version"])
            for each in sorted(group["versions"], key=lambda each: each["version"] != preferred)
        ]
    parts = await asyncio.gather(*(_old_kinds(client, group, version) for group, version in versions))
    return [known for part in parts for known in part]


def _known(group: str, version: str, each: AggregatedResource) -> Known:
    kind = each.response_kind.kind if each.response_kind else ""
    resource = Resource(group, version, each.resource, each.scope == "Namespaced", kind)
    return Known(resource, each.singular_resource, tuple(each.short_names), tuple(each.categories), tuple(each.verbs))


async def _old_kinds(client: Client, group: str, version: str) -> list[Known]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    answer = decode(OldList, (await client.request("GET", path)).body)
    return [
        Known(
            Resource(group, version, each.name, each.namespaced, each.kind),
            each.singular_name,
            tuple(each.short_names or ()),
            tuple(each.categories or ()),
            tuple(each.verbs),
        )
        for each in answer.resources
        if "/" not in each.name
    ]
