"""Reading a small YAML file field by field, with errors that name the file, the field, its value and the remedy.

A field that nobody knows is refused: it is a typing error, and to pass over it would give other hardware than meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from tinykube.quantity import Quantity, QuantityError
from tinykube.yaml import read


class BadDescription(ValueError):
    """A description that cannot be used; the text says where, and what would be right."""


def load(text: str, place: str) -> Any:
    """The content of a file.  Raises BadDescription if it is no YAML, or has a key twice (YAML would keep the last)."""
    try:
        found = read(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = place if mark is None else f"{place}:{mark.line + 1}:{mark.column + 1}"
        raise BadDescription(f"{where}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    for twice in found.repeated:
        raise BadDescription(f"{place}:{twice.line}: key {twice.key!r} is given twice: remove one of them")
    return found.content


class Fields:
    """The fields of one mapping.  `place` is the file, `path` where the mapping stands in it."""

    def __init__(self, content: Any, place: str, path: str, known: Sequence[str]) -> None:
        self.place, self.path = place, path
        if not isinstance(content, dict):
            raise self.wrong("", content, f"must be a mapping with {', '.join(known)}")
        for key in content:
            if key not in known:
                raise self.wrong(str(key), content[key], f"is unknown: use {', '.join(known)}")
        self._content: Mapping[str, Any] = content

    def wrong(self, key: str, value: object, problem: str) -> BadDescription:
        """The error about a field."""
        where = ".".join(part for part in (self.path, key) if part)
        return BadDescription(f"{self.place}: {where or 'the file'}: {value!r} {problem}")

    def __contains__(self, key: str) -> bool:
        return self._content.get(key) is not None

    def __getitem__(self, key: str) -> Any:
        return self._content.get(key)

    def text(self, key: str, pattern: str, remedy: str) -> str:
        """A text of a certain form."""
        value = self[key]
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.wrong(key, value, f"must be {remedy}")
        return value

    def one_of(self, key: str, words: Sequence[str], default: str = "") -> str:
        """One of a few words."""
        value = self[key]
        if value is None and default:
            return default
        if value not in words:
            raise self.wrong(key, value, f"must be one of {', '.join(words)}")
        return str(value)

    def whole(self, key: str, most: int, default: int) -> int:
        """A whole number from 1 on."""
        value = default if self[key] is None else self[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.wrong(key, value, f"must be a whole number from 1 to {most:,}")
        return value

    def quantity(self, key: str, example: str, default: str | None = None) -> Quantity:
        """An amount above 0, as Kubernetes writes it."""
        value = default if self[key] is None else self[key]
        try:
            amount = Quantity.parse(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
        except QuantityError:
            amount = None
        if amount is None or amount.value <= 0:
            raise self.wrong(key, value, f"must be an amount above 0, such as {example}")
        return amount

    def words(self, key: str, remedy: str) -> list[str]:
        """A list of texts, none twice."""
        value = self[key] if self[key] is not None else []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(key, value, f"must be a list of {remedy}")
        if len(set(value)) < len(value):
            raise self.wrong(key, value, "has an entry twice: remove one of them")
        return list(value)

    def texts(self, key: str) -> dict[str, str]:
        """A mapping of texts to texts."""
        value = self[key] if self[key] is not None else {}
        if not isinstance(value, dict):
            raise self.wrong(key, value, "must be a mapping of texts, such as {rack: a1}")
        for name, each in value.items():
            if not isinstance(name, str) or not isinstance(each, str):
                raise self.wrong(f"{key}[{name}]", each, "must be a text: put it in quotes")
        return dict(value)

    def indices(self, key: str, count: int, value: Any = None) -> list[int]:
        """A list of card numbers below `count`, none twice."""
        given = self[key] if value is None else value
        if given is None:
            return []
        numbers = [each for each in given if type(each) is int] if isinstance(given, list) else None
        if numbers is None or len(numbers) < len(given) or not _distinct(numbers, count):
            raise self.wrong(key, given, f"must be a list of card numbers from 0 to {count - 1}, each once")
        return numbers

    def groups(self, key: str, count: int) -> list[list[int]]:
        """Lists of card numbers below `count`; a card is in one of them at most."""
        value = self[key]
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, list) for each in value):
            raise self.wrong(key, value, "must be a list of groups of card numbers, such as [[0, 1], [2, 3]]")
        self.indices(key, count, [index for group in value for index in group])
        return [group for group in value if group]


def _distinct(numbers: Iterable[int], count: int) -> bool:
    found = list(numbers)
    return all(0 <= each < count for each in found) and len(set(found)) == len(found)
