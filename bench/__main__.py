"""`python -m bench`: run every benchmark, or those named; options after a single name are that benchmark's.

`rate` needs a real Kubernetes, which Go builds: it is run only if it is named.
"""

from __future__ import annotations

import importlib
import sys
from itertools import takewhile

import click

BENCHMARKS = ("decisions", "neighbours", "gangs", "starts", "cluster", "churn")
BY_NAME = ("rate",)


def main(arguments: list[str]) -> int:
    """Run the benchmarks; the exit code."""
    names = list(takewhile(lambda each: not each.startswith("-"), arguments))
    options = arguments[len(names) :]
    unknown = sorted(set(names) - set(BENCHMARKS) - set(BY_NAME))
    if unknown or (options and len(names) != 1):
        wrong = f"no such benchmark: {', '.join(unknown)}" if unknown else "options belong to one benchmark"
        print(f"{wrong}; there are: {', '.join(BENCHMARKS + BY_NAME)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        try:
            importlib.import_module(f"bench.{name}").main(options, f"python -m bench {name}", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
