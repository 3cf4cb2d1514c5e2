"""`python -m tests.e2e [arguments of pytest]`: the tests that need a real Kubernetes, the contracts on both servers.

Builds the parts if need be, then runs pytest in a network namespace of its own.  Without arguments there are two of
them side by side, each with a cluster of its own, since tests of a cluster mostly wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e import PARTS, debian, namespace, parts

HERE = Path("tests/e2e")
NODES = ("test_node_", "test_kubelet", "test_drivers", "test_musl", "test_preloads")
"""How the names of tests begin that need a real node or a real driver: about half of the time."""


def halves() -> tuple[list[str], list[str]]:
    """All tests, in two parts that take about as long."""
    files = sorted(str(path) for path in HERE.glob("test_*.py"))
    nodes = [path for path in files if Path(path).name.startswith(NODES)]
    return nodes, [*(path for path in files if path not in nodes), "tests/contracts"]


def main(arguments: list[str]) -> int:
    """Run pytest in a namespace, or in two of them; or run the tests if we are there."""
    if PARTS in os.environ:
        namespace.set_up()
        return int(pytest.main(["-p", "tests.e2e.fixtures", *arguments]))
    try:
        found = {PARTS: str(parts.parts()), debian.PACKAGES: _packages()}
        command = namespace.entering([sys.executable, "-m", "tests.e2e"])
    except (parts.CannotBuild, namespace.NoNamespace) as problem:
        print(problem, file=sys.stderr)
        return 1
    environment = os.environ | found
    if any(os.path.exists(each.split("::")[0]) for each in arguments):
        return subprocess.run([*command, *arguments], env=environment).returncode
    return _side_by_side([[*command, *arguments, *half] for half in halves()], environment)


def _packages() -> str:
    try:
        return str(debian.fetch(parts.cache()))
    except debian.CannotFetch as problem:
        return str(problem)


def _side_by_side(commands: list[list[str]], environment: dict[str, str]) -> int:
    """Run all at once; what the others print is shown when the first is done."""
    first, *others = commands
    sys.stdout.flush()
    with tempfile.TemporaryFile() as output:
        running = [subprocess.Popen(each, env=environment, stdout=output, stderr=output) for each in others]
        codes = [subprocess.run(first, env=environment).returncode, *(each.wait() for each in running)]
        output.seek(0)
        print(output.read().decode(errors="replace"), end="", flush=True)
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
