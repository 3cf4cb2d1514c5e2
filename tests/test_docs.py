"""The documentation is true: what a `console` block shows is run and compared, and links lead somewhere.

    ```console
    $ subak place -f pod.yaml --cluster nodes.yaml   # exit 1
    default/pod waits: ...
    ```

The commands of a page run one after the other, on a cluster of their own if they need one.  A command runs in bash at
the root of the repository and must exit with 0, or with the code of its `# exit` comment.
It goes on in the next line after a backslash.  The lines below it, if any, must be its output (standard error first);
`...` stands for anything.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.live import commands as environment
from tests.support.live import live

ROOT = Path(__file__).parent.parent
RUN = [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*RUN, *(ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"))]

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"# exit (\d+)$")
_NEEDS_CLUSTER = re.compile(
    r"\bkubectl\b|\bsubak (apply|create|delete|describe|doctor|exec|get|logs|nodes|top|wait|why)\b"
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SPAN = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A command of a page, and what the page says about it."""

    place: str
    line: str
    output: str

    @property
    def code(self) -> int:
        match = _EXIT.search(self.line)
        return int(match[1]) if match else 0


def commands(page: Path) -> Iterator[Command]:
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1)) + 1
        lines = block[1].splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
        assert starts[:1] == [0], f"{page}:{first}: a console block starts with a command"
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            place = f"{page.relative_to(ROOT)}:{first + start}"
            below = next(number for number in range(start, end) if not lines[number].endswith("\\")) + 1
            command = "\n".join(lines[start:below]).removeprefix("$ ")
            yield Command(place, command, "\n".join(lines[below:end]))


def agrees(got: str, shown: str) -> bool:
    pattern = r".*?".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, got, re.DOTALL) is not None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


SHOWN = [pytest.param(page, id=name_of(page)) for page in RUN if list(commands(page))]


# Each folder of examples is placed in test_examples.py, and each command tested in tests/cli.
@pytest.mark.long
@pytest.mark.parametrize("page", SHOWN)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    shown = list(commands(page))
    for entry in ROOT.iterdir():
        (tmp_path / entry.name).symlink_to(entry)  # so that what a page writes stays out of the project
    if any("kubectl" in command.line for command in shown) and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed, and the page shows it")
    if not any(_NEEDS_CLUSTER.search(command.line) for command in shown):
        for command in shown:
            _check(command, tmp_path, environment({}))
        return
    with live() as cluster:
        for command in shown:
            _check(command, tmp_path, cluster.env)


def _check(command: Command, folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", command.line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == command.code, f"{command.place}: {done.stdout}"
    assert "Traceback" not in done.stdout
    if command.output:
        assert agrees(done.stdout.strip("\n"), command.output.strip("\n")), f"{command.place}: {done.stdout}"


def test_the_pages_show_commands() -> None:
    shown = [command.line for page in RUN for command in commands(page)]
    assert any(line.startswith("subak place ") for line in shown)
    assert any(line.startswith("subak explain ") for line in shown)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = _SPAN.sub("", page.read_text(encoding="utf-8"))
    targets = [target.partition("#")[0] for target in _LINK.findall(text) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    ("got", "shown", "agree"),
    [
        ("a\nb", "a\nb", True),
        ("a\nb\nc", "a\n...", True),
        ("time: 12", "time: ...", True),
        ("a\nb", "a", False),
        ("a.b", "a...c", False),
        ("a+b", "a+b", True),
    ],
)
def test_dots_stand_for_anything(got: str, shown: str, agree: bool) -> None:
    assert agrees(got, shown) is agree
