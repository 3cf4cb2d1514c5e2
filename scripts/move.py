"""Move modules or packages to other rooms, with their tests, and change every import and path that names them.

    python scripts/move.py subak.local.turns=subak.node.turns subak.local.api=tinykube.server

`src/` and `tests/` mirror each other, so `tests/local/test_turns.py` goes to `tests/node/test_turns.py`.  Nothing else
inside the files changes.  What the script cannot see (a path that is put together from parts) the tests will tell.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = {".py", ".md", ".toml", ".c", ".h", ".yaml", ".yml", ".json", ".ambr"}


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def source(name: str) -> Path:
    """The file or folder of a module, relative to the root."""
    path = Path("src", *name.split("."))
    return path if (ROOT / path).is_dir() else path.with_suffix(".py")


def tests(name: str) -> Path:
    """Where the tests of a module are, a package's in a folder; relative to the root."""
    parts = name.split(".")
    return Path("tests", *(parts[1:] if parts[0] == "subak" else parts))


def renames(old: str, new: str) -> list[tuple[Path, Path]]:
    """What goes where."""
    was = source(old)
    will = Path("src", *new.split("."))
    pairs = [(was, will if (ROOT / was).is_dir() else will.with_suffix(".py"))]
    there, here = tests(old), tests(new)
    if (ROOT / there).is_dir():
        pairs.append((there, here))
    alone = there.with_name(f"test_{there.name}.py")
    if (ROOT / alone).exists():
        pairs.append((alone, here.with_name(f"test_{here.name}.py")))
    return pairs


def relocate(was: Path, will: Path) -> None:
    """Move a file, or what is in a folder into one that may be there already."""
    (ROOT / will).parent.mkdir(parents=True, exist_ok=True)
    if (ROOT / was).is_dir() and (ROOT / will).is_dir():
        for line in git("ls-files", str(was)).splitlines():
            relocate(Path(line), will / Path(line).relative_to(was))
    else:
        git("mv", str(was), str(will))


def reworded(text: str, moves: dict[str, str], python: bool) -> str:
    """The text with the new names."""
    if python:
        text = split_imports(text, moves)
    for old, new in sorted(moves.items(), key=lambda move: -len(move[0])):
        text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, text)
        old_tests, new_tests = (".".join(tests(name).parts) for name in (old, new))
        text = re.sub(rf"(?<![\w.]){re.escape(old_tests)}(?!\w)", new_tests, text)
        for was, will in paths(old, new):
            text = re.sub(rf"(?<![\w/]){re.escape(was)}(?![\w])", will, text)
    return text


def paths(old: str, new: str) -> list[tuple[str, str]]:
    """The ways in which a page or a string names the place."""
    pairs = [(f"src/{old.replace('.', '/')}", f"src/{new.replace('.', '/')}")]
    there, here = tests(old), tests(new)
    pairs.append((str(there), str(here)))
    pairs.append((str(there.with_name(f"test_{there.name}.py")), str(here.with_name(f"test_{here.name}.py"))))
    return pairs


def split_imports(text: str, moves: dict[str, str]) -> str:
    """`from package import a, b` becomes two lines if only one of them has moved."""
    lines = text.splitlines(keepends=True)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module]
    for node in sorted(found, key=lambda node: -node.lineno):
        moved = [each for each in node.names if f"{node.module}.{each.name}" in moves]
        if not moved or node.end_lineno is None:
            continue
        indent = " " * node.col_offset
        kept = [each for each in node.names if each not in moved]
        made = [f"{indent}from {node.module} import {', '.join(map(spelled, kept))}\n"] if kept else []
        for each in moved:
            package, _, name = moves[f"{node.module}.{each.name}"].rpartition(".")
            alias = each.asname or (each.name if each.name != name else None)
            as_said = ast.alias(name, alias)
            made.append(
                f"{indent}from {package} import {spelled(as_said)}\n" if package else f"{indent}import {name}\n"
            )
        lines[node.lineno - 1 : node.end_lineno] = made
    return "".join(lines)


def spelled(name: ast.alias) -> str:
    """As an import writes it."""
    return name.name if name.asname in (None, name.name) else f"{name.name} as {name.asname}"


def main(words: list[str]) -> None:
    """Carry out the moves.  Ends with a sentence if one of them cannot be."""
    if not words or any(not re.fullmatch(r"[\w.]+=[\w.]+", word) for word in words):
        sys.exit("usage: python scripts/move.py OLD.MODULE=NEW.MODULE ...")
    moves = dict(word.split("=") for word in words)
    for old, new in moves.items():
        if not (ROOT / source(old)).exists():
            sys.exit(f"error: there is no {source(old)}: name a module or a package under src/ by its dotted name")
        if (ROOT / source(new)).is_file():
            sys.exit(f"error: {source(new)} is there already: choose another name, or remove it first")
    pairs = [pair for old, new in moves.items() for pair in renames(old, new)]
    for was, will in pairs:
        print(f"{was} -> {will}")
        relocate(was, will)
    for name in git("ls-files").splitlines():
        file = ROOT / name
        if file.suffix in TEXT and file.exists() and file != Path(__file__).resolve():
            text = file.read_text(encoding="utf-8")
            changed = reworded(text, moves, file.suffix == ".py")
            if changed != text:
                file.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
