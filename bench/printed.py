"""The output of benchmarks: progress, and figures as in `docs/benchmarks.md`; `--write` puts them there."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def say(text: str) -> None:
    """Print progress, apart from the figures."""
    print(text, file=sys.stderr, flush=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns, but for the first, hold numbers."""
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def show(name: str, parts: Iterable[str], write: bool, page: Path = PAGE) -> None:
    """Print the figures of a benchmark; if asked, put them into the page, between the marks with its name."""
    text = "\n".join([f"{machine()}\n", *(part.rstrip("\n") + "\n" for part in parts)])
    print(text, end="")
    if write:
        page.write_text(pasted(page.read_text(), name, text))


def pasted(page: str, name: str, text: str) -> str:
    """The page with this text between `<!-- name -->` and `<!-- /name -->`."""
    first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    if page.count(first) != 1 or page.count(last) != 1 or page.index(first) > page.index(last):
        raise ValueError(f"the page needs one line {first.strip()} and below it one line {last.strip()}")
    head, rest = page.split(first)
    return head + first + text + last + rest.split(last)[1]


def machine() -> str:
    """Date and machine, and its load, since other work disturbs the figures."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.+)", info)
    now = datetime.now(UTC)
    return (
        f"Measured on {now.day} {now:%B %Y}: {os.cpu_count()} cores ({model[1] if model else platform.machine()}), "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.0f} at the end."
    )
