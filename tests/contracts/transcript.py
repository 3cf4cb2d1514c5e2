"""Conversations with an API server: what is sent is written by hand, what it answered was recorded from a real one.

`requests/NAME.yaml` is a list of cases, each with a name and its steps.  A step is a method and a path, and the body:

    - case: two pods of one name
      steps:
        - POST pods: {metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}
        - POST pods?dryRun=All: {metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}

JSON, MERGE, STRATEGIC and APPLY are the kinds of PATCH; TABLE, METADATA and METADATA-LIST are a GET that asks for that
form.  A body that is text is sent as it stands, and `headers` may stand beside a step.  Every case runs in a namespace
of its own, called NS in requests and answers; names of cluster-wide objects begin with it.  Pods mount no token, since
the embedded server issues none.

`answers/NAME.json` holds what a real server said, less what differs from run to run.  `python -m tests.e2e --record
tests/contracts/test_transcripts.py` writes it anew.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from tests.contracts.client import JSON, METADATA, METADATA_LIST, TABLE, Answer
from tests.contracts.space import Space
from tests.support.wording import compared, reported

HERE = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FORMS = {"TABLE": f"{TABLE},{JSON}", "METADATA": METADATA, "METADATA-LIST": METADATA_LIST}

_VOLATILE = tuple(
    (re.compile(pattern, re.DOTALL), stands_for)
    for pattern, stands_for in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}(\.[0-9]+)?Z", "TIME"),
        (r"\b10\.96\.[0-9]+\.[0-9]+", "ADDRESS"),
        (r"(ResourceVersion in (?:object meta: |record \())[0-9]+", r"\1SOME"),
        (r"(?<=generated-)[bcdfghjklmnpqrstvwxz2456789]{5}\b", "xxxxx"),
        (r'(resourceVersion\\*":\\*")[0-9]+', r"\1SOME"),  # of an object that a message shows
    )
)
_AGE = re.compile(r"(?<![^(])([0-9]+[smhdy])+(?=$| ago)")


@dataclass(frozen=True)
class Case:
    """A conversation."""

    file: str
    name: str
    steps: tuple[dict[str, Any], ...]
    owners: bool = False
    """Whether its answers include managedFields."""

    def __str__(self) -> str:
        """As pytest names it."""
        return f"{self.file}: {self.name}"


def cases(file: str = "*") -> Iterator[Case]:
    """All of them, or those of one file."""
    for path in sorted((HERE / "requests").glob(f"{file}.yaml")):
        for each in yaml.load(path.read_text(), _LOADER):
            yield Case(path.stem, each["case"], tuple(each["steps"]), each.get("owners", False))


def played(case: Case, space: Space) -> list[Any]:
    """What a server answers to the steps of a case."""
    return [normal(sent(step, space), space, case.owners) for step in case.steps]


@lru_cache
def recorded(file: str) -> dict[str, Any]:
    """What a real server answered to the cases of a file."""
    path = HERE / "answers" / f"{file}.json"
    return dict(_cleaned(json.loads(path.read_text()), owners=True)) if path.exists() else {}


def record(file: str, said: dict[str, list[Any]]) -> None:
    """Write down what a real server answered, one line per answer."""
    known = recorded(file) | said
    lines = []
    for name in (each.name for each in cases(file) if each.name in known):
        answers = ",\n  ".join(json.dumps(each, sort_keys=True) for each in known[name])
        lines.append(f" {json.dumps(name)}: [\n  {answers}\n ]")
    (HERE / "answers").mkdir(exist_ok=True)
    (HERE / "answers" / f"{file}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def normal(answer: Answer, space: Space, owners: bool = True) -> Any:
    """An answer without what differs from run to run."""
    text = answer.body.decode(errors="replace").replace(space.name, "NS")
    kind = answer.headers.get("Content-Type", "")
    body = _cleaned(json.loads(text), owners) if kind.startswith(JSON) else _plain(text)
    said = {"code": answer.code, "body": body}
    warnings = reported(answer.warnings)
    if warnings:
        said["warnings"] = [each.replace(space.name, "NS") for each in warnings]
    return said if kind == JSON else {**said, "type": kind}


def steady(value: Any, space: Space) -> Any:
    """Any JSON without what differs from run to run."""
    return _cleaned(json.loads(json.dumps(value).replace(space.name, "NS")), owners=True)


def _cleaned(value: Any, owners: bool) -> Any:
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, list):
        return [_cleaned(each, owners) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _cleaned(each, owners) for key, each in value.items() if owners or key != "managedFields"}
    if kept.get("field") == "patch" and "message" in kept:
        kept["message"] = "WORDS"
    if kept.get("kind") == "Table":
        _clean_table(kept)
    if isinstance(kept.get("managedFields"), list):
        kept["managedFields"].sort(key=_owner)
    for key in ("resourceVersion", "continue"):
        if isinstance(kept.get(key), str) and kept[key]:
            kept[key] = "SOME"
    return kept


def _owner(entry: Any) -> tuple[str, ...]:
    """Entries stand in the order of their times, to the second, and two steps may or may not fall into one."""
    return tuple(str(entry.get(key, "")) for key in ("operation", "manager", "subresource", "apiVersion"))


def _plain(text: str) -> str:
    for pattern, stands_for in _VOLATILE:
        text = pattern.sub(stands_for, text)
    return compared(text)


def _clean_table(table: dict[str, Any]) -> None:
    """Ages go, and descriptions, which are prose that we write ourselves."""
    for column in table["columnDefinitions"] or ():
        column["description"] = "WORDS"
    for row in table["rows"] or ():
        row["cells"] = [_AGE.sub("AGE", each) if isinstance(each, str) else each for each in row["cells"]]


def sent(step: dict[str, Any], space: Space) -> Answer:
    """The answer to a step."""
    step = json.loads(re.sub(r"\bNS\b", space.name, json.dumps(step)))
    headers = step.pop("headers", {})
    ((request, body),) = step.items()
    method, what = request.split(" ", 1)
    if method in ("POST", "PUT", "APPLY") and re.fullmatch(r"pods(/[^/]*)?(\?.*)?", what) and isinstance(body, dict):
        with contextlib.suppress(KeyError, AttributeError):
            body["spec"].setdefault("automountServiceAccountToken", False)
    if method in FORMS:
        headers = {"Accept": FORMS[method], **headers}
        method = "GET"
    return space.send(method, _quoted(what), body, headers=headers)


def _quoted(what: str) -> str:
    """A path whose query is written plainly, as a URL has it; what is quoted already stays."""
    path, mark, query = what.partition("?")
    pairs = [each.partition("=") for each in query.split("&")]
    return path + mark + "&".join(f"{key}{equals}{quote(value, safe='%')}" for key, equals, value in pairs)
