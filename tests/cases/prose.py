"""Cases that are written for people: rows of tables, and sentences that begin with an id.

No program can read them.  Somebody has: each became cases in the file of the same name in `tests/data`, or stands in
decision 2 among the rows that were left out.  `tests/data/rows.json` remembers which rows were read, by a digest of
their words, so that a row that is new or has changed is told instead of being passed over.

`python -m tests.cases.prose FILE...` prints what `rows.json` should hold.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0002-deliberate-differences.md"
PREFIXES = {"hami_cases.md": "", "volcano_cases.md": "V-", "koordinator_cases.md": "K-"}

_SECTION = re.compile(r"^## ([A-Z])\. ")
_ID = re.compile(r"[A-Z]\d+\b")
_SENTENCE = re.compile(r"(?:^|[.,;:] )([A-Z]\d{2})(?=[. ])")


@dataclass(frozen=True, slots=True)
class Row:
    """A case in prose: where it stands, its id, and a digest of its words."""

    file: str
    line: int
    id: str
    digest: str


def rows(path: Path) -> list[Row]:
    """The cases in prose of a file, in its order.

    A table whose first column is `id` names its rows; rows of other tables are numbered within their section, and a
    section that has nothing else is a case itself.
    """
    found: list[Row] = []
    section, content, unnamed = "", 0, 0
    heading = (0, "")

    def add(line: int, id: str, text: str) -> None:
        digest = hashlib.sha256(" ".join([id, *text.split()]).encode()).hexdigest()[:12]
        found.append(Row(path.name, line, id, digest))

    for line, text, cells in _lines(path.read_text(encoding="utf-8")):
        opened = _SECTION.match(text)
        if opened or text.startswith("## "):
            if section and not content:
                add(heading[0], section, heading[1])
            section, content, unnamed = opened[1] if opened else "", 0, 0
            heading = (line, text)
        elif cells is not None:
            named, row = cells
            unnamed += not named
            match = _ID.match(row[0])
            add(line, match[0] if named and match else f"{section}{unnamed}" if not named else row[0], text)
            content += 1
        elif text == "```":
            content += 1
        else:
            for id in _SENTENCE.findall(text) if section else ():
                add(line, id, text)
                content += 1
    if section and not content:
        add(heading[0], section, heading[1])
    return found


def _lines(text: str) -> Iterator[tuple[int, str, tuple[bool, list[str]] | None]]:
    """Each line with its number, and for the row of a table whether it is named, and its cells.

    Of a fenced block only the end is told, as "```"; the head of a table is no line.
    """
    lines = text.splitlines()
    fenced, named = False, False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
            if not fenced:
                yield number, "```", None
        elif fenced:
            continue
        elif not line.startswith("|"):
            yield number, line, None
        elif number < len(lines) and lines[number].startswith("|--"):
            named = line.strip("| ").split("|")[0].strip() == "id"
        elif not line.startswith("|--"):
            yield number, line, (named, [cell.strip() for cell in line.strip("| ").split("|")])


def read_before(path: Path = DATA / "rows.json") -> Mapping[str, Mapping[str, str]]:
    """The rows that were read, as digest and id, by the name of their file."""
    read: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return read


def left_out(file: str, page: str) -> frozenset[str]:
    """The ids, or letters of whole sections, that decision 2 names among the rows that are not cases."""
    system = file.removesuffix("_cases.md")
    _, _, rest = page.partition("\n## Rows that are not among the cases\n")
    found: set[str] = set()
    for part in rest.split("\n### ")[1:]:
        if part.partition("\n")[0].strip().lower() == system:
            cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| ")]
            found |= {id for cell in cells for id in re.findall(r"\b[A-Z]\d*\b", cell)}
    return frozenset(found)


def main(paths: list[str]) -> int:
    """Print what `rows.json` should hold for these files."""
    found = {Path(path).name: {row.digest: row.id for row in rows(Path(path))} for path in paths}
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
