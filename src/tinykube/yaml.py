"""YAML as Kubernetes reads it: what JSON could say too, within bounds.

    text ── libyaml ──> events ──> values, and the keys that a mapping has twice

PyYAML's own loaders build a tree by recursion in C, and share what an alias stands for, however often it is
used.  So 100,000 opening brackets end the process, and 300 bytes of aliases can stand for gigabytes.  Here nothing
recurses, and levels, aliases and digits are counted while they are read.  The bounds of go-yaml, which Kubernetes
uses, are of the same kind; so are the words.

A moment and a number to the base of 60 are texts, as in Kubernetes.  A number beyond 64 bits becomes a float.  Tags
that JSON has no value for are refused.  All errors are `yaml.YAMLError`, nearly all of them with the place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from tinykube.depth import LEVELS

ALIASED = 1_000_000
"""How much aliases may stand for, in characters; each value counts for some more."""

DIRECTIVES = 100
"""The most lines that begin with `%`: libyaml compares each tag directive with all others."""

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VALUE = 8
_NOTHING = object()
_MERGE = object()

_TAG = "tag:yaml.org,2002:"
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((form for word in ("yes", "true", "on") for form in (word, word.title(), word.upper())), True),
    **dict.fromkeys((form for word in ("no", "false", "off") for form in (word, word.title(), word.upper())), False),
}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*|0[0-7_]+)")
_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_NUMBER_BEGINS = frozenset("+-.0123456789")


class Unfit(yaml.MarkedYAMLError):
    """Proper YAML that says something that no JSON could, or more than is allowed."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A key that its mapping has already, and where it stands again, counted from 1."""

    key: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """What a document says.  Of a key that is there twice, the last value counts."""

    content: Any
    repeated: tuple[Repeated, ...]


def read(text: str | bytes, *, only_first: bool = False, most_values: int | None = None) -> Document:
    """The document in a text, None if there is none.  More documents are refused, or not looked at.

    Raises yaml.YAMLError.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise yaml.YAMLError("the text has half a character") from None
    if data.count(b"\n%") > DIRECTIVES:
        raise yaml.YAMLError(f"more than {DIRECTIVES} lines begin with %")
    parser = _PARSER(data)
    try:
        parser.get_event()  # the stream begins
        if parser.check_event(yaml.StreamEndEvent):
            return Document(None, ())
        found = _Document(parser, most_values).read()
        if not only_first and not parser.check_event(yaml.StreamEndEvent):
            mark = parser.peek_event().start_mark
            raise Unfit("expected a single document in the stream", None, "but found another document", mark)
        return found
    finally:
        parser.dispose()


class _Open:
    """A list or mapping that is being read.  `weight` is what it says so far, aliases counted in full."""

    def __init__(self, content: list[Any] | dict[Any, Any], event: Any) -> None:
        self.content = content
        self.mark = event.start_mark
        self.anchor = event.anchor
        self.weight = _VALUE
        self.key: Any = _NOTHING
        self.seen: set[str] = set()
        self.merged: list[dict[Any, Any]] = []


class _Document:
    """Reads the next document of a stream."""

    def __init__(self, parser: Any, most_values: int | None) -> None:
        self._parser = parser
        self._most = math.inf if most_values is None else most_values
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        self._repeated: list[Repeated] = []
        self._values = 0
        self._aliased = 0
        self._result: Any = None

    def read(self) -> Document:
        while True:
            event = self._parser.get_event()
            match type(event):
                case yaml.ScalarEvent:
                    self._count(event)
                    self._put(_scalar(event), len(event.value) + _VALUE, event)
                case yaml.MappingStartEvent:
                    self._begin({}, "map", event)
                case yaml.SequenceStartEvent:
                    self._begin([], "seq", event)
                case yaml.MappingEndEvent | yaml.SequenceEndEvent:
                    self._end()
                case yaml.AliasEvent:
                    self._refer(event)
                case yaml.DocumentEndEvent:
                    return Document(self._result, tuple(self._repeated))

    def _count(self, event: Any) -> None:
        self._values += 1
        if self._values > self._most:
            raise Unfit(problem=f"the document has more than {self._most:,} values", problem_mark=event.start_mark)

    def _begin(self, content: list[Any] | dict[Any, Any], kind: str, event: Any) -> None:
        self._count(event)
        if len(self._open) == LEVELS:
            raise Unfit(problem=f"exceeded max depth of {LEVELS}", problem_mark=event.start_mark)
        if event.tag not in (None, "!", _TAG + kind):
            raise _strange(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # until it is complete
        self._open.append(_Open(content, event))

    def _end(self) -> None:
        done = self._open.pop()
        for each in done.merged:
            for key, value in each.items():
                done.content.setdefault(key, value)  # type: ignore[union-attr]
        self._put(done.content, done.weight, done)

    def _refer(self, event: Any) -> None:
        """Take what an anchor stands for once more."""
        if event.anchor not in self._anchors:
            raise Unfit(problem="found undefined alias", problem_mark=event.start_mark)
        found = self._anchors[event.anchor]
        if found is None:
            raise Unfit(problem=f"anchor '{event.anchor}' value contains itself", problem_mark=event.start_mark)
        value, weight = found
        self._aliased += weight
        if self._aliased > ALIASED:
            message = f"document contains excessive aliasing: more than {ALIASED:,} characters"
            raise Unfit(problem=message, problem_mark=event.start_mark)
        self._put(value, weight, None, event.start_mark)

    def _put(self, value: Any, weight: int, source: Any, mark: Any = None) -> None:
        """A complete value goes to where it belongs; `source` may have an anchor."""
        if source is not None and source.anchor is not None:
            self._anchors[source.anchor] = value, weight
        if not self._open:
            self._result = value
            return
        here = self._open[-1]
        here.weight += weight
        if isinstance(here.content, list):
            here.content.append(value)
        elif here.key is _NOTHING:
            here.key = self._key(here, value, source, mark or _mark(source))
        elif here.key is _MERGE:
            here.merged += _mappings(value, mark or _mark(source))
            here.key = _NOTHING
        else:
            here.content[here.key] = value
            here.key = _NOTHING

    def _key(self, here: _Open, value: Any, source: Any, mark: Any) -> Any:
        if isinstance(value, list | dict):
            raise Unfit("while constructing a mapping", here.mark, "found unhashable key", mark)
        if not isinstance(source, yaml.ScalarEvent):  # an alias
            text = str(value)
        elif source.implicit[0] and source.value == "<<":
            return _MERGE
        else:
            text = source.value
        if text in here.seen:
            self._repeated.append(Repeated(text, mark.line + 1, mark.column + 1))
        here.seen.add(text)
        return value


def _mark(source: Any) -> Any:
    return source.mark if isinstance(source, _Open) else source.start_mark


def _mappings(value: Any, mark: Any) -> list[dict[Any, Any]]:
    """What `<<` brings in: of several mappings the first counts most."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise Unfit(problem="map merge requires map or sequence of maps as the value", problem_mark=mark)
    return found


def _scalar(event: Any) -> Any:
    text = event.value
    if (event.tag is None and not event.implicit[0]) or event.tag == "!":
        return text  # in quotes, or a block of text
    if event.tag is None:
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in _NUMBER_BEGINS:
            return text
        return _number(text, event) if _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text) else text
    construct = _TAGS.get(event.tag)
    if construct is None:
        raise _strange(event)
    return construct(text, event)


def _strange(event: Any) -> Unfit:
    return Unfit(problem=f"could not determine a constructor for the tag {event.tag!r}", problem_mark=event.start_mark)


def _number(text: str, event: Any) -> int | float:
    """A number that JSON has; what 64 bits cannot hold is a float, as in Go."""
    plain = text.replace("_", "").lower()
    digits = plain.lstrip("+-")
    try:
        if _FLOAT.fullmatch(text):
            number = math.nan if ".inf" in plain or ".nan" in plain else float(plain)
        else:
            base = {"0b": 2, "0x": 16}.get(digits[:2], 8 if digits[:1] == "0" and digits != "0" else 10)
            whole = int(plain, base) if len(plain) <= 80 else None
            if whole is not None and -(2**63) <= whole < 2**64:
                return whole
            number = float(whole if whole is not None else plain)
    except (OverflowError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        shown = text if len(text) <= 20 else f"{text[:20]}..."
        message = f"not usable: no number in JSON is {shown}; a text belongs in quotes"
        raise Unfit(problem=message, problem_mark=event.start_mark)
    return number


def _tagged_number(pattern: re.Pattern[str]) -> Callable[[str, Any], Any]:
    def construct(text: str, event: Any) -> int | float:
        if not pattern.fullmatch(text):
            raise Unfit(problem=f"{text[:40]!r} is not what its tag {event.tag!r} says", problem_mark=event.start_mark)
        return _number(text, event)

    return construct


def _tagged_word(kind: type) -> Callable[[str, Any], Any]:
    def construct(text: str, event: Any) -> Any:
        if text not in _WORDS or not isinstance(_WORDS[text], kind):
            raise Unfit(problem=f"{text[:40]!r} is not what its tag {event.tag!r} says", problem_mark=event.start_mark)
        return _WORDS[text]

    return construct


_TAGS: dict[str, Callable[[str, Any], Any]] = {
    _TAG + "str": lambda text, _: text,
    _TAG + "int": _tagged_number(_INTEGER),
    _TAG + "float": _tagged_number(re.compile(f"{_INTEGER.pattern}|{_FLOAT.pattern}")),
    _TAG + "bool": _tagged_word(bool),
    _TAG + "null": _tagged_word(type(None)),
}
