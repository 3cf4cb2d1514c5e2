"""`python -m tests.e2e [arguments of pytest]`: the tests that need a real Kubernetes, the contracts on both servers.

Builds the parts if need be, then runs pytest in a network namespace of its own.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.e2e import PARTS, debian, namespace, parts

WHERE = ("tests/e2e", "tests/contracts")


def _packages() -> str:
    try:
        return str(debian.fetch(parts.cache()))
    except debian.CannotFetch as problem:
        return str(problem)


def main(arguments: list[str]) -> int:
    """Enter the namespace, or run the tests if we are there."""
    if PARTS not in os.environ:
        try:
            found = {PARTS: str(parts.parts()), debian.PACKAGES: _packages()}
            namespace.enter([sys.executable, "-m", "tests.e2e", *arguments], found)
        except (parts.CannotBuild, namespace.NoNamespace) as problem:
            print(problem, file=sys.stderr)
            return 1
    namespace.set_up()
    chosen = [each for each in arguments if os.path.exists(each.split("::")[0])]
    return int(pytest.main(["-p", "tests.e2e.fixtures", *arguments, *(() if chosen else WHERE)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
