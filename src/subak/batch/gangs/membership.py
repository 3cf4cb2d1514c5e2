"""What a pod says of its group, and how such texts are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from subak.model.reason import Refusal

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_is_name = re.compile(rf"{_LABEL}(\.{_LABEL})*").fullmatch
_LONGEST_NAME = 253

_is_natural = re.compile(r"[0-9]{1,9}").fullmatch

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(ns|us|µs|μs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Membership:
    """The group of a pod: in whose words, and its `namespace/name`.

    What the pod does not say itself, because an object does, is None.  `role` is the kind of member, of which the group
    may want so many (`min_roles`).  `timeout` are seconds that a part of the group may run alone.  `warnings` say what
    means something else here than elsewhere; `field` is where the pod names its group.
    """

    words: str
    name: str
    min_member: int | None = None
    min_roles: tuple[tuple[str, int], ...] = ()
    role: str = ""
    timeout: float | None = None
    warnings: tuple[str, ...] = ()
    field: str = field(default="", compare=False)


def annotation(key: str) -> str:
    """The field of an annotation."""
    return f"metadata.annotations[{key}]"


def label(key: str) -> str:
    """The field of a label."""
    return f"metadata.labels[{key}]"


def check_name(field: str, name: str) -> str:
    """The name of a group.  Raises Refusal if no object can have it: the pod would wait for ever."""
    if len(name) <= _LONGEST_NAME and _is_name(name):
        return name
    raise Refusal(
        field,
        name,
        f"{field} is {_short(name)}, which is no name of a group: use lower case letters, digits, '-' and '.'",
    )


def natural(field: str, text: str) -> int:
    """A whole number from 0.  Raises Refusal."""
    if _is_natural(text):
        return int(text)
    raise Refusal(field, text, f"{field} is {_short(text)}: give a whole number such as 4")


def duration(field: str, text: str) -> float:
    """Seconds of a duration as Go writes it (`90s`, `1h30m`), more than none.  Raises Refusal."""
    parts = [(float(part[1]), part[2]) for part in _PART.finditer(text)]
    whole = "".join(part[0] for part in _PART.finditer(text)) == text
    seconds = sum(number * _UNITS[unit] for number, unit in parts)
    if whole and seconds > 0:
        return seconds
    raise Refusal(field, text, f"{field} is {_short(text)}: give a duration such as 90s, 10m or 1h30m")


def one_of(field: str, text: str, choices: Mapping[str, str]) -> str:
    """One of these words; their values say what is wrong with them, empty if nothing.  Raises Refusal."""
    wrong = choices.get(text)
    if wrong == "":
        return text
    good = " or ".join(repr(word) for word, objection in choices.items() if not objection)
    if wrong is None:
        raise Refusal(field, text, f"{field} is {_short(text)}: give {good}, or remove it")
    raise Refusal(field, text, f"{field} is {text!r}, but {wrong}: give {good}, or remove it")


def _short(text: str) -> str:
    """A value as it stands in a message."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
