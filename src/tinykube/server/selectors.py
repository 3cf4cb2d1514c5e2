"""Which objects a request is about: label selectors (`app=web,tier in (a, b)`) and field selectors (`spec.host=n1`).

A selector becomes a list of requirements; an object must meet them all.  Text that is no selector is refused in the
words of the API server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tinykube.server import digits, errors
from tinykube.server.kinds import EVENT, JOB, NAMESPACE, NODE, POD, SECRET, SERVICE, Kind
from tinykube.server.memo import remembered
from tinykube.server.rules.problem import quote
from tinykube.server.rules.validation import names

Json = dict[str, Any]
Test = Callable[[Json], bool]

# What stands between blanks, commas and parentheses, or an operator.  `!` is only one before `=` or a key.
_TOKEN = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^ \t\r\n=!(),<>]+))")
_EXPECTED = "in, notin, =, ==, !=, gt, lt"

# Longer selectors are kept only while they are asked about: one request asks more than once.
_SHORT = 4096


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<"}


class _Unreadable(Exception):
    """Text that is no selector, and why."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one label must be: `operator` is one of = != in notin exists ! > <."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    _wanted: frozenset[str] = field(init=False, repr=False, compare=False)  # the values, found without a search

    def __post_init__(self) -> None:
        object.__setattr__(self, "_wanted", frozenset(self.values))

    def meets(self, labels: dict[str, str]) -> bool:
        """Whether labels are as required."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self._wanted
            case "notin":
                return value not in self._wanted
            case "exists":
                return value is not None
            case "!":
                return value is None
        number, wanted = digits.whole(value or ""), digits.whole(self.values[0])
        if number is None or wanted is None:
            return False
        return number > wanted if self.operator == ">" else number < wanted


class _Parser:
    """Reads a label selector as the API server's own parser does, so that it stumbles at the same places."""

    def __init__(self, text: str) -> None:
        self._tokens = [(match[1] or "", match[2] or "") for match in _TOKEN.finditer(text)]
        self._position = 0

    def parse(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            symbol, word = self._peek()
            if not symbol and not word:
                return found
            if symbol not in ("", "!"):
                raise _Unreadable(f"found '{symbol}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except _Unreadable as error:
                raise _Unreadable(f"unable to parse requirement: {error}") from None
            symbol, word = self._next()
            if symbol == ",":
                symbol, word = self._peek()
                if not word and symbol != "!":
                    raise _Unreadable(f"found '{symbol}', expected: identifier after ','")
            elif symbol or word:
                raise _Unreadable(f"found '{symbol or word}', expected: ',' or 'end of string'")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._position] if self._position < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._position += 1
        return token

    def _requirement(self) -> Requirement:
        symbol, key = self._next()
        absent = symbol == "!"
        if absent:
            symbol, key = self._next()
        if not key:
            raise _Unreadable(f"found '{symbol}', expected: identifier")
        if wrong := names.label_key(key):
            raise _Unreadable(f"<nil>: Invalid value: {quote(key)}: {'; '.join(wrong)}")
        symbol, word = self._peek()
        if absent:
            return Requirement(key, "!")
        if symbol == "," or not (symbol or word):
            return Requirement(key, "exists")
        operator = self._operator()
        values = self._set() if operator in ("in", "notin") else self._exact()
        _check(key, operator, values)
        operator = {"=": "in", "==": "in", "!=": "notin"}.get(operator, operator)
        return Requirement(key, operator, values)

    def _operator(self) -> str:
        symbol, word = self._next()
        if symbol in ("=", "==", "!=", ">", "<") or word in ("in", "notin"):
            return symbol or word
        raise _Unreadable(f"found '{symbol or word}', expected: {_EXPECTED}")

    def _exact(self) -> tuple[str, ...]:
        symbol, word = self._peek()
        if symbol == "," or not (symbol or word):
            return ("",)
        self._position += 1
        if symbol:
            raise _Unreadable(f"found '{symbol}', expected: identifier")
        return (word,)

    def _set(self) -> tuple[str, ...]:
        symbol, word = self._next()
        if symbol != "(":
            raise _Unreadable(f"found '{symbol or word}' expected: '('")
        symbol, word = self._peek()
        if not word and symbol not in (",", ")"):
            raise _Unreadable(f"found '{symbol}', expected: ',', ')' or identifier")
        values = [""]
        while True:
            symbol, word = self._next()
            if symbol == ")":
                return tuple(sorted(set(values)))
            if symbol == ",":
                values.append("")
                continue
            if symbol or not word:
                raise _Unreadable(f"found '{symbol}', expected: ',', or identifier")
            values[-1] = word
            symbol, after = self._peek()
            if symbol not in (",", ")"):
                raise _Unreadable(f"found '{symbol or after}', expected: ',' or ')'")


def _check(key: str, operator: str, values: tuple[str, ...]) -> None:
    wrong = []
    if operator in ("<", ">") and digits.whole(values[0]) is None:
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        wrong.append(f"values[0]: Invalid value: {quote(values[0])}: {detail}")
    for index, value in enumerate(values):
        if details := names.label_value(value):
            wrong.append(f"values[{index}][{key}]: Invalid value: {quote(value)}: {'; '.join(details)}")
    if wrong:
        raise _Unreadable(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


@remembered(256, _SHORT, long=1)
def labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector; none means that everything matches."""
    try:
        return tuple(_Parser(text).parse())
    except _Unreadable as error:
        raise errors.bad_request(str(error)) from None


def _path(*steps: str) -> Callable[[Json], str]:
    *outer, last = steps

    def value(object: Json) -> str:
        for step in outer:
            object = object.get(step) or {}
        return str(object.get(last) or "")

    return value


def _flag(*steps: str) -> Callable[[Json], str]:
    value = _path(*steps)
    return lambda object: "true" if value(object) == "True" else "false"


def _pod_ip(pod: Json) -> str:
    addresses = pod.get("status", {}).get("podIPs") or [{}]
    return str(addresses[0].get("ip", ""))


def _event_source(event: Json) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


_NAME = {"metadata.name": _path("metadata", "name")}
_BOTH = {**_NAME, "metadata.namespace": _path("metadata", "namespace")}
_POD_FIELDS = ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
               "status.nominatedNodeName")  # fmt: skip
_EVENT_FIELDS = tuple(f"involvedObject.{each}" for each in
                      ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"))  # fmt: skip
_EVENT = {
    **_BOTH,
    **{each: _path(*each.split(".")) for each in (*_EVENT_FIELDS, "reason", "reportingComponent", "type")},
    "source": _event_source,
}

_FIELDS: dict[Kind, dict[str, Callable[[Json], str]]] = {
    POD: {
        **_BOTH,
        **{each: _path(*each.split(".")) for each in _POD_FIELDS},
        "spec.host": _path("spec", "nodeName"),
        "spec.hostNetwork": _flag("spec", "hostNetwork"),
        "status.podIP": _pod_ip,
        "status.podIPs": lambda pod: "",
    },
    NODE: {**_NAME, "spec.unschedulable": _flag("spec", "unschedulable")},
    NAMESPACE: {**_NAME, "status.phase": _path("status", "phase")},
    EVENT: _EVENT,
    SECRET: {**_BOTH, "type": _path("type")},
    JOB: {**_BOTH, "status.successful": lambda job: str(job.get("status", {}).get("succeeded", 0))},
    SERVICE: {**_BOTH, "spec.clusterIP": _path("spec", "clusterIP"), "spec.type": _path("spec", "type")},
}


@dataclass(frozen=True, slots=True)
class Term:
    """What one field must be, or must not be."""

    field: str
    value: str
    equal: bool


@remembered(1024, _SHORT, long=1)
def fields(kind: Kind, text: str) -> tuple[Term, ...]:
    """The terms of a field selector, of fields that the kind can be selected by."""
    terms = []
    for part in sorted(re.findall(r"(?:\\.|[^,\\])+", text, re.DOTALL)):
        match = re.match(r"(.*?)(!=|==|=)(.*)", part, re.DOTALL)
        if not match:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append(Term(match[1], _unescaped(match[3]), match[2] != "!="))
    known = _known(kind)
    for term in terms:
        if term.field not in known:
            raise errors.bad_request(_unsupported(kind, term.field))
    return tuple(terms)


def _known(kind: Kind) -> dict[str, Callable[[Json], str]]:
    return _FIELDS.get(kind) or (_NAME if kind.custom and not kind.namespaced else _BOTH)


def _unsupported(kind: Kind, field: str) -> str:
    if kind is JOB:
        return f"field label {quote(field)} not supported for Job"
    if kind in _FIELDS or kind.custom:
        return f"field label not supported: {field}"
    return f'{quote(field)} is not a known field selector: only "metadata.name", "metadata.namespace"'


def _unescaped(text: str) -> str:
    for found in re.finditer(r"\\(.?)|([,=])", text, re.DOTALL):
        if found[2]:
            raise errors.bad_request(f"invalid field selector: unescaped character in value: {ord(found[2])}")
        if found[1] not in ("\\", ",", "=") or not found[1]:
            raise errors.bad_request(f"invalid field selector: invalid escape sequence: {found[0]}")
    return re.sub(r"\\(.)", r"\1", text)


@remembered(1024, _SHORT, long=1)
def test(kind: Kind, label_text: str, field_text: str) -> Test | None:
    """Tells whether an object is selected; None if all are."""
    requirements = labels(label_text)
    terms = [(_known(kind)[term.field], term.value, term.equal) for term in fields(kind, field_text)]
    if not requirements and not terms:
        return None

    def selected(object: Json) -> bool:
        for value, wanted, equal in terms:
            if (value(object) == wanted) is not equal:
                return False
        if not requirements:
            return True
        found = object["metadata"].get("labels") or {}
        return all(each.meets(found) for each in requirements)

    return selected


def exact(kind: Kind, field_text: str, field: str) -> str | None:
    """The one value that a field must have, if there is one."""
    for term in fields(kind, field_text):
        if term.field == field and term.equal:
            return term.value
    return None


def of(selector: Json | None) -> tuple[Requirement, ...]:
    """The requirements of a `labelSelector` that stands in an object."""
    selector = selector or {}
    found = [Requirement(key, "in", (value,)) for key, value in selector.get("matchLabels", {}).items()]
    for line in selector.get("matchExpressions", ()):
        operator = _OPERATORS.get(line["operator"], "!")
        found.append(Requirement(line["key"], operator, tuple(sorted(line.get("values", ())))))
    return tuple(found)


def selects(selector: Json | None, labels: dict[str, str]) -> bool:
    """Whether a `labelSelector` that stands in an object is met; none at all selects nothing."""
    return selector is not None and all(each.meets(labels) for each in of(selector))


def text(selector: Json | None) -> str:
    """The same selector as people write it."""
    equal = (selector or {}).get("matchLabels", {})
    terms = []
    for each in sorted(of(selector), key=lambda each: each.key):
        match each.operator:
            case "exists":
                terms.append(each.key)
            case "!":
                terms.append(f"!{each.key}")
            case "in" if (equal.get(each.key),) == each.values:
                terms.append(f"{each.key}={each.values[0]}")
            case _:
                terms.append(f"{each.key} {each.operator} ({','.join(each.values)})")
    return ",".join(terms)
