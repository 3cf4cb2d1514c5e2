"""What fields the served kinds have: types, defaults, and how lists and maps merge.

The schemas are Kubernetes' own, cut down to the kinds that we serve; `schema.json` is made from them by
`python -m tests.e2e.schema`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from subak.local.api.kinds import Kind


@dataclass(frozen=True, slots=True)
class Field:
    """The schema of a value.

    `type` is object, array, string, integer, number, boolean, int-or-string, quantity, or any.  An object has either
    `properties` or, as a map, `values`; neither means that anything goes.  How it merges: `list_type` (atomic, set, map
    with `keys`) and `atomic` (an object or a map that is replaced as a whole) are what server-side apply looks at,
    `merge_key` and `strategies` (merge, replace, retainKeys) what a strategic merge patch looks at.
    """

    type: str = "any"
    format: str = ""
    properties: dict[str, Field] | None = None
    items: Field | None = None
    values: Field | None = None
    required: tuple[str, ...] = ()
    default: Any = None
    list_type: str = ""
    keys: tuple[str, ...] = ()
    atomic: bool = False
    merge_key: str = ""
    strategies: tuple[str, ...] = ()
    preserve_unknown: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


ANY = Field()


def of(kind: Kind) -> Field:
    """The schema of a kind's objects, `apiVersion`, `kind` and `metadata` included."""
    raise NotImplementedError
