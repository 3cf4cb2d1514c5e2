"""Reads cases from the fenced `yaml` blocks of a Markdown file (or from plain YAML) and compares got with want."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)

Answer = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One case; a `quirk` records behaviour that we need not copy."""

    id: str
    fn: str
    given: dict[str, Any]
    want: Any
    quirk: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A case and what the product answered."""

    case: Case
    got: Any

    @property
    def agrees(self) -> bool:
        return agrees(self.got, self.case.want)


def read(path: Path) -> tuple[list[Case], list[str]]:
    """The cases of a file, and a sentence for all that should be one and cannot be read."""
    found: list[Case] = []
    problems: list[str] = []
    for line, block in _blocks(path):
        try:
            entries = yaml.load(block, _LOADER)
        except yaml.YAMLError as error:
            problems.append(f"{path.name}:{line}: no valid YAML: {' '.join(str(error).split())}")
            continue
        for number, entry in enumerate(entries if isinstance(entries, list) else [entries], 1):
            if isinstance(entry, dict) and {"id", "fn", "out"} <= entry.keys():
                given = entry.get("in") or {}
                found.append(Case(str(entry["id"]), entry["fn"], given, entry["out"], bool(entry.get("quirk"))))
            else:
                name = f"case {entry['id']}" if isinstance(entry, dict) and "id" in entry else f"entry {number}"
                problems.append(f"{path.name}:{line}: {name} of this block is no case: it needs id, fn and out")
    return found, problems


def _blocks(path: Path) -> Iterator[tuple[int, str]]:
    """The fenced blocks, each with the line on which it begins."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        yield 1, text
        return
    for block in _BLOCK.finditer(text):
        yield text.count("\n", 0, block.start()) + 1, block[1]


def run(case: Case, answers: Mapping[str, Answer]) -> Result:
    """Ask the product."""
    answer = answers.get(case.fn)
    if answer is None:
        return Result(case, f"no such function: {case.fn}")
    try:
        return Result(case, answer(case.given))
    except Exception as error:  # a crash is an answer too, and must not hide the other cases
        return Result(case, f"{type(error).__name__}: {error}")


def agrees(got: Any, want: Any) -> bool:
    """Whether the answer says what is wanted.  A wanted mapping may leave keys out; floats may differ a little."""
    if isinstance(want, Mapping):
        if not isinstance(got, Mapping):
            return False
        texts = {str(key): value for key, value in got.items()}
        return all(str(key) in texts and agrees(texts[str(key)], value) for key, value in want.items())
    if isinstance(want, list):
        return (
            isinstance(got, list)
            and len(got) == len(want)
            and all(agrees(mine, theirs) for mine, theirs in zip(got, want, strict=True))
        )
    if isinstance(want, bool) or isinstance(got, bool):
        return got is want
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        return math.isclose(got, want, rel_tol=1e-5, abs_tol=1e-5)
    return bool(got == want)
