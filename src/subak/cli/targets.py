"""Which objects are meant: `pods`, `pod gpu-pod1`, `po/gpu-pod1 node/p40`, `pods,nodes`, `all`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from subak.kube.discovery import Discovery, Known


@dataclass(frozen=True, slots=True)
class Target:
    """A kind, and one object of it or all."""

    known: Known
    name: str = ""


def targets(discovery: Discovery, words: Sequence[str]) -> list[Target]:
    """What the words of a command line mean.  Raises UsageError, or UnknownKind for a kind that the server lacks."""
    if not words:
        raise click.UsageError("say which objects: TYPE, TYPE NAME or TYPE/NAME, such as: pods")
    if any("/" in word for word in words):
        return [_slashed(discovery, word) for word in words]
    kinds = [known for word in words[0].split(",") if word for known in _kinds(discovery, word)]
    if len(words) > 1:
        return [Target(known, name) for known in kinds for name in words[1:]]
    return [Target(known) for known in kinds]


def _slashed(discovery: Discovery, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not name:
        raise click.UsageError(f"{word!r}: with TYPE/NAME, give every object so")
    return Target(discovery.find(kind), name)


def _kinds(discovery: Discovery, word: str) -> list[Known]:
    """A kind, or those of a category."""
    return discovery.category(word) or [discovery.find(word)]
