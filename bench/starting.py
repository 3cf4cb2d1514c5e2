"""`python -m bench.starting COUNT`: one turn of `bench starts`.  Starts so many containers, one after the other."""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec

MEMORY = 256 << 20


class Turn(msgspec.Struct, frozen=True):
    """CPU seconds of all processes together, and the seconds until each container's program ran."""

    cpu: float
    waits: list[float]


async def measure(count: int, log: Path) -> Turn:
    """Start containers that end at once; the first is not counted, since it makes what all others share."""
    runtime, waits, before = Namespaces(), [], 0.0
    # The code before hardening has no limits.
    limits: dict[str, Any] = {"memory": MEMORY} if "memory" in Spec.__slots__ else {}
    for number in range(count + 1):
        if number == 1:
            before = spent()
        began = time.perf_counter()
        container = await runtime.start(Spec("bench", ["true"], {"PATH": "/usr/bin:/bin"}, log=log, **limits))
        waits.append(time.perf_counter() - began)
        await container.wait()
    cpu = spent() - before
    await runtime.close()
    return Turn(cpu, waits[1:])


def spent() -> float:
    """CPU seconds of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Measure one turn."""
    with tempfile.TemporaryDirectory() as directory:
        turn = asyncio.run(measure(int(sys.argv[1]), Path(directory, "log")))
    print(msgspec.json.encode(turn).decode())


if __name__ == "__main__":
    main()
