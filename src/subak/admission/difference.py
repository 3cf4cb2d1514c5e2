"""What has changed in an object, as a JSON Patch: the answer of a mutating webhook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]


def difference(before: Any, after: Any, path: str = "") -> Iterator[Operation]:
    """The operations that make `after` of `before`; lists of another length are replaced whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _member(before, after, key, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for position, pair in enumerate(zip(before, after, strict=True)):
            yield from difference(*pair, f"{path}/{position}")
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}


def _member(before: dict[str, Any], after: dict[str, Any], key: str, path: str) -> Iterator[Operation]:
    if key not in after:
        yield {"op": "remove", "path": path}
    elif key not in before:
        yield {"op": "add", "path": path, "value": after[key]}
    else:
        yield from difference(before[key], after[key], path)
