"""`python -m tests.cases FILE...`: prints each case that differs, then `N of M`; exit 1 if one without `quirk` does."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cases.answers import ANSWERS
from tests.cases.runner import cases, run


def main(paths: list[str]) -> int:
    """Run the files; the exit code."""
    if not paths:
        print("usage: python -m tests.cases FILE...", file=sys.stderr)
        return 2
    results = [run(case, ANSWERS) for path in paths for case in cases(Path(path))]
    differing = [result for result in results if not result.agrees]
    for result in differing:
        mark = " (quirk)" if result.case.quirk else ""
        print(f"{result.case.id} {result.case.fn}{mark}\n  got  {result.got!r}\n  want {result.case.want!r}")
    print(f"{len(results) - len(differing)} of {len(results)}")
    return 1 if any(not result.case.quirk for result in differing) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
