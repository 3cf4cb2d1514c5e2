"""Requests, good and bad: those of `cases.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.custom import CUSTOM
from tests.tinykube.server.rules.objects import REMOVED, changed
from tinykube.server.kinds import KINDS, Kind

Json = dict[str, Any]

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Case:
    """What is asked: create `object` (of any content, if it is bytes), and perhaps change what was stored."""

    kind: Kind
    object: Json | bytes
    then: dict[str, Any] | None = None
    subresource: str = ""


def cases() -> dict[str, Case]:
    """All of them by name."""
    return dict(each for group in yaml.load((HERE / "cases.yaml").read_text(), _LOADER) for each in _of(group))


def _of(group: Json) -> Iterator[tuple[str, Case]]:
    kind = next(each for each in (*KINDS, *CUSTOM) if each.resource == group["kind"])
    base = group["base"]
    for name, changes in group.get("create", {}).items():
        yield name, Case(kind, changed(base, _meant(changes)))
    for name, each in group.get("update", {}).items():
        before = changed(base, _meant(each.get("before", {})))
        yield f"update: {name}", Case(kind, before, _meant(each["after"]), each.get("subresource", ""))
    for name, text in group.get("content", {}).items():
        yield f"content: {name}", Case(kind, text.encode())


def _meant(value: Any) -> Any:
    """What a value of the file stands for."""
    if isinstance(value, dict):
        return {_meant(key): _meant(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_meant(each) for each in value]
    if value == "<removed>":
        return REMOVED
    long = re.fullmatch(r"<(.) x (\d+)>", value) if isinstance(value, str) else None
    return long[1] * int(long[2]) if long else value
