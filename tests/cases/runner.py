"""Reads cases from the fenced `yaml` blocks of a Markdown file (or from plain YAML) and compares got with want."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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


def cases(path: Path) -> Iterator[Case]:
    """The cases of a file."""
    text = path.read_text(encoding="utf-8")
    blocks = _BLOCK.findall(text) if path.suffix == ".md" else [text]
    for block in blocks:
        for entry in yaml.safe_load(block) or ():
            yield Case(str(entry["id"]), entry["fn"], entry.get("in") or {}, entry.get("out"), bool(entry.get("quirk")))


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
