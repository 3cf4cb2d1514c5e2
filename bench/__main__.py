"""`python -m bench`: run every benchmark, or those named."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = ("decisions", "cluster")


def main(names: list[str]) -> int:
    """Run the benchmarks; the exit code."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
