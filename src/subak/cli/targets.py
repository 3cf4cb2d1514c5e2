"""Objects named on the command line: `pods`, `pod gpu-pod1`, `po/gpu-pod1 node/p40`, `pods,nodes`, `all`.

An object may be named in every form that our own commands print: `gpu-pod1`, `default/gpu-pod1` (as `top` and `why`
do), `pod/gpu-pod1` (as `apply` does), and `pod/default/gpu-pod1`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import click

from subak.cli.connection import Connection
from tinykube.discovery import Discovery, Known, UnknownKind

_POD = ("pod", "pods", "po")
_GANG = ("podgroup", "podgroups", "pg", "gang", "gangs")


@dataclass(frozen=True, slots=True)
class Target:
    """A kind, and one object of it or all; `namespace` is empty if none is given."""

    known: Known
    name: str = ""
    namespace: str = ""

    def where(self, connection: Connection) -> str:
        """The namespace of the object; empty if its kind has none."""
        return (self.namespace or connection.namespace) if self.known.resource.namespaced else ""


def pod(connection: Connection, word: str) -> tuple[str, str]:
    """Namespace and name of the pod that the word names.  Raises UsageError."""
    namespace, name = _split(word, _POD)
    return namespace or connection.namespace, name


def gang(connection: Connection, word: str) -> tuple[str, str] | None:
    """Namespace and name of the gang that the word names; None if it names something else.  Raises UsageError."""
    if word.partition("/")[0].lower() not in _GANG:
        return None
    namespace, name = _split(word, _GANG)
    return namespace or connection.namespace, name


def targets(discovery: Discovery, words: Sequence[str]) -> list[Target]:
    """The objects that the words name.  Raises UsageError, or UnknownKind for a kind that the server lacks."""
    if not words or not all(words):
        raise click.UsageError("say which objects: TYPE, TYPE NAME or TYPE/NAME, such as: pods")
    if "/" in words[0]:
        return [_slashed(discovery, word) for word in words]
    kinds = [known for word in words[0].split(",") if word for known in _kinds(discovery, word)]
    if len(words) > 1:
        return [_named(known, word) for known in kinds for word in words[1:]]
    return [Target(known) for known in kinds]


def _slashed(discovery: Discovery, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name:
        raise click.UsageError(f"{word!r}: with TYPE/NAME, give every object so")
    try:
        return _named(discovery.find(kind), name)
    except UnknownKind as unknown:
        raise UnknownKind(f"{unknown.args[0]}; a pod in a namespace is: pod {word}") from None


def _named(known: Known, word: str) -> Target:
    namespace, name = _split(word, (known.resource.plural, known.singular, known.resource.kind.lower(), *known.short))
    if namespace and not known.resource.namespaced:
        raise click.UsageError(f"{word!r}: {known.resource.plural} are in no namespace: give the name alone")
    return Target(known, name, namespace)


def _split(word: str, types: Collection[str]) -> tuple[str, str]:
    """Namespace (or nothing) and name in a word that may also begin with the type."""
    parts = word.split("/")
    if len(parts) > 1 and parts[0].lower() in types:
        parts = parts[1:]
    if not all(parts) or len(parts) > 2:
        forms = "give NAME, NAMESPACE/NAME or TYPE/NAME, such as default/gpu-pod1"
        raise click.UsageError(f"{word!r} names no object: {forms}")
    return ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _kinds(discovery: Discovery, word: str) -> list[Known]:
    """The kind, or the kinds of a category."""
    return discovery.category(word) or [discovery.find(word)]
