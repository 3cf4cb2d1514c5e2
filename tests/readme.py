"""The README's "Try it", word for word: every line of its blocks, in shells that nobody has prepared.

`python -m tests.readme` does all of it, as on a fresh machine: a clone in a folder whose name has a space, a new home,
no virtual environment on the PATH, nothing cached.  `make test` is left out, for that is run anyway.
`tests/test_build.py` does the part that fits in some seconds.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATIENCE = 120.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Where packages come from, and whom to trust, is a matter of the machine.
_OF_THE_MACHINE = re.compile(r"PIP_.*|UV_(DEFAULT_INDEX|INDEX.*|FIND_LINKS|NATIVE_TLS)|SSL_CERT_.*|.*_(proxy|PROXY)")
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOREVER = "subak up"


def blocks() -> list[list[str]]:
    """The lines of each block of "Try it", comments cut off."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Try it\n")[2].partition("\n## ")[0]
    return [[line.partition("  #")[0].rstrip() for line in block.splitlines()] for block in _BLOCK.findall(section)]


def shell(home: Path) -> dict[str, str]:
    """The environment of a shell in which nothing was prepared."""
    kept = {name: value for name, value in os.environ.items() if _OF_THE_MACHINE.fullmatch(name)}
    return {**kept, "PATH": PATH, "HOME": str(home), "LC_ALL": "C.UTF-8"}


def follow(terminals: Sequence[Sequence[str]], folder: Path, env: Mapping[str, str]) -> str:
    """Run each block as in a terminal of its own, and give all that was printed.  A line that fails is an error.

    A block that ends with a command that runs for ever is left to it, once that is ready, until all others are through.
    """
    said: list[str] = []
    forever: list[subprocess.Popen[str]] = []
    try:
        for lines in terminals:
            script = "\n".join(["set -ex", *lines])
            if lines[-1] == FOREVER:
                script = "\n".join(["set -ex", *lines[:-1], f"exec {FOREVER}"])
            run = subprocess.Popen(
                ["bash", "-c", script],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert run.stdout is not None
            if lines[-1] == FOREVER:
                forever.append(run)
                for line in run.stdout:
                    said.append(line)
                    if line == "ready\n":
                        break
                else:
                    run.wait(PATIENCE)
            else:
                printed, _ = run.communicate(timeout=None)
                said.append(printed)
            failed = run.poll()
            assert not failed, f"a line of {list(lines)} failed with {failed}:\n{''.join(said)}"
    finally:
        for run in forever:
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=PATIENCE)
    assert [run.returncode for run in forever] == [0] * len(forever)
    return "".join(said)


def main() -> None:
    """All of it, on a machine that has nothing yet."""
    with tempfile.TemporaryDirectory() as place:
        home, clone = Path(place) / "home", Path(place) / "a clone"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)], check=True)
        wanted = [[line for line in lines if line != "make test"] for lines in blocks()]
        print(follow(wanted, clone, shell(home)))
        developers = [tool for tool in ("mypy", "pytest", "ruff") if (clone / ".venv" / "bin" / tool).exists()]
        assert not developers, f"`make demo` has installed what only developers need: {developers}"
    print("The README's commands work, word for word.")


if __name__ == "__main__":
    main()
