"""`python -m tests.cases FILE...`: asks the product every case of the files, and prints each that differs.

Cases in prose are answered by those that stand for them (`tests.cases.prose`).  What cannot be read is named.  In the
end comes `N of M`.  Exit 1 if a case without `quirk` differs, something could not be read, or a file has no cases.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cases.answers import ANSWERS
from tests.cases.prose import DATA, PAGE, PREFIXES, left_out, read_before, rows
from tests.cases.runner import Case, read, run


def main(paths: list[str]) -> int:
    """Run the files; the exit code."""
    if not paths:
        print("usage: python -m tests.cases FILE...", file=sys.stderr)
        return 2
    asked: list[Case] = []
    problems: list[str] = []
    for path in paths:
        try:
            cases, unreadable = collect(Path(path))
        except (OSError, UnicodeDecodeError) as error:
            cases, unreadable = [], [f"{path}: {error}"]
        asked += cases
        problems += unreadable
    results = [run(case, ANSWERS) for case in asked]
    differing = [result for result in results if not result.agrees]
    for result in differing:
        mark = " (quirk)" if result.case.quirk else ""
        print(f"{result.case.id} {result.case.fn}{mark}\n  got  {result.got!r}\n  want {result.case.want!r}")
    for problem in problems:
        print(f"cannot be read: {problem}")
    print(f"{len(results) - len(differing)} of {len(results)}")
    return 1 if problems or any(not result.case.quirk for result in differing) else 0


def collect(path: Path) -> tuple[list[Case], list[str]]:
    """The cases of a file, those included that stand for its prose, and what could not be read."""
    cases, problems = read(path)
    prose = rows(path)
    if not cases and not problems and not prose:
        return [], [f"{path}: no cases found"]
    home = DATA / path.name
    written = read(home)[0] if prose and home.exists() else []
    read_once, ours = read_before().get(path.name, {}), left_out(path.name, PAGE.read_text(encoding="utf-8"))
    known = {case.id for case in cases}
    spoken = skipped = 0
    for row in prose:
        name = PREFIXES.get(path.name, "") + row.id
        standing = [case for case in written if case.id == name or case.id.startswith(f"{name}-")]
        spoken += bool(standing)
        skipped += not standing
        if row.digest not in read_once:
            problems.append(f"{row.file}:{row.line}: {row.id} is prose that nobody has turned into a case yet")
        elif not standing and not {row.id, row.id[:1]} & ours:
            problems.append(f"{row.file}:{row.line}: {row.id} is prose, and neither a case nor decision 2 speaks of it")
        cases += [case for case in standing if case.id not in known]
        known |= {case.id for case in standing}
    if prose:
        print(f"{path.name}: {len(prose)} cases in prose; {spoken} stand in tests/data, {skipped} are left out")
    return cases, problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
