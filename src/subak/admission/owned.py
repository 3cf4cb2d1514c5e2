"""Which annotations and labels of a pod only writers of records may write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from subak.dialects import mark
from subak.dialects.interpreter import Interpreter

LABELS = frozenset({"hami.io/vgpu-node"})
"""Labels that come with a Binding: HAMi's agents find the pods of their node by it."""

RESERVED = frozenset({f"{mark.REQUIRED}*"})
"""Annotations that belong to us and to no dialect; a `*` at the end stands for any ending."""

Place = tuple[str, str]
"""`annotations` or `labels`, and a key."""


@dataclass(frozen=True, slots=True)
class Owned:
    """Keys; a `*` at the end of an annotation stands for any ending.

    `exact` are the annotations that are written out, `stems` the beginnings of the others, both in order.
    """

    annotations: frozenset[str]
    labels: frozenset[str] = LABELS
    exact: tuple[str, ...] = field(init=False, repr=False, compare=False)
    stems: tuple[str, ...] = field(init=False, repr=False, compare=False)

    @classmethod
    def by(cls, interpreter: Interpreter) -> Owned:
        """The keys of all dialects under their configuration, and those that are always ours."""
        return cls(interpreter.owned | RESERVED)

    def __post_init__(self) -> None:
        # Every write of a pod is looked at, so this is prepared once.
        stems = tuple(sorted(key[:-1] for key in self.annotations if key.endswith("*")))
        object.__setattr__(self, "stems", stems)
        object.__setattr__(self, "exact", tuple(sorted(key for key in self.annotations if not key.endswith("*"))))

    def among(self, object: Mapping[str, Any] | None) -> dict[Place, str]:
        """What an object carries under these keys."""
        return dict(self._found((object or {}).get("metadata") or {}))

    def _found(self, metadata: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        for key, text in (metadata.get("annotations") or {}).items():
            if key in self.annotations or key.startswith(self.stems):
                yield ("annotations", key), text
        for key, text in (metadata.get("labels") or {}).items():
            if key in self.labels:
                yield ("labels", key), text
