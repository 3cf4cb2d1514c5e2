"""A card for programs that use CUDA, on a computer without one: the simulated driver, as native/tests has it.

Programs find it through LD_LIBRARY_PATH, NVML included: to them and to Subak it is a real card of 8 GiB, and a context
takes 100 MiB of it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MIB, CONTEXT_MIB, MEMORY_MIB = 1 << 20, 100, 8192
UUID = "GPU-abababab-abab-abab-abab-ababababab00"

TENANT = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
for began in (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)):
    if began:
        print("error", began)
        sys.exit(1)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "take":
        print(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(int(rest[0]) << 20)), flush=True)
    if word == "total":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        print(total.value >> 20, flush=True)
"""
"""Takes so many MiB for each line `take MIB` and prints CUDA's answer; prints the memory of its card for `total`."""

TAKEN, OUT_OF_MEMORY = "0\n", "2\n"


@dataclass(frozen=True)
class Card:
    """Where the driver is, and the file that is the card."""

    driver: Path
    state: Path

    @property
    def env(self) -> dict[str, str]:
        """What a program needs to see the card."""
        return {"LD_LIBRARY_PATH": str(self.driver), "MOCK_MACHINE": str(self.state)}

    @property
    def tenant(self) -> tuple[str, ...]:
        """The command of a program that uses the card."""
        return sys.executable, "-c", TENANT


class Tenant:
    """A program on the card that follows commands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, words: str) -> str:
        """What CUDA answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self) -> int:
        """Let it end; gives its exit code."""
        self.process.communicate(timeout=60)
        return self.process.returncode


def driver(mock: Path, into: Path) -> Path:
    """The driver's libraries alone, in a folder without what they were made of."""
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(mock / name, into)
    return into
