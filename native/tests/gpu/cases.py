"""Memory in stories on a real card: what is shared counts once, what is kept makes room, what goes is free again.

    python3 native/tests/gpu/cases.py [CASE...]      (build libsubak first)

Each case is a process of its own under libsubak, with a region of its own, and compares what CUDA tells it of its use
with what its story should have used.  Prints a row for each; exits with 1 if one misses.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
from pathlib import Path

import table
from consumer import MIB, Driver, IpcHandle, Location, Prop
from memory import environment
from table import row

LIMIT = 4096
NEAR = 40  # MiB: pages, and what the driver takes for itself on the way
PEER = "SUBAK_PEER"


class Story(Driver):
    """The driver, and what this process thinks of it."""

    def __init__(self) -> None:
        super().__init__()
        self.start = self.used()

    def used(self) -> int:
        free, total = self.told()
        return total - free

    def must(self, result: int, what: str, wanted: int = 0) -> None:
        if result != wanted:
            sys.exit(f"{what}: {result}, wanted {wanted}")

    def expect(self, mib: int, what: str) -> None:
        """The use since the start, once what other processes do has arrived."""
        until = time.monotonic() + 5
        while abs(self.used() - self.start - mib) > NEAR and time.monotonic() < until:
            time.sleep(0.05)
        if abs(self.used() - self.start - mib) > NEAR:
            sys.exit(f"{what}: {self.used() - self.start} MiB in use, wanted {mib}")

    def take(self, mib: int) -> c_uint64:
        pointer = c_uint64()
        self.must(self.cuda.cuMemAlloc_v2(byref(pointer), c_size_t(mib * MIB)), f"cuMemAlloc of {mib} MiB")
        return pointer


def kept_by_a_pool(cuda: Story) -> None:
    """A pool that keeps everything gives it back before somebody else is refused."""
    pool, pointer, most = c_void_p(), c_uint64(), c_uint64(2**64 - 1)
    cuda.must(cuda.cuda.cuDeviceGetDefaultMemPool(byref(pool), 0), "pool")
    cuda.must(cuda.cuda.cuMemPoolSetAttribute(pool, 4, byref(most)), "release threshold")
    cuda.must(cuda.cuda.cuMemAllocAsync(byref(pointer), c_size_t(3000 * MIB), None), "from the pool")
    cuda.must(cuda.cuda.cuMemFreeAsync(pointer, None), "free")
    cuda.must(cuda.cuda.cuStreamSynchronize(None), "synchronize")
    cuda.expect(3008, "kept by the pool")
    cuda.take(3000)
    cuda.expect(3000, "the pool has given it back")


def on_the_host(cuda: Story) -> None:
    """Host memory is not the card's."""
    pointer, handle = c_void_p(), c_uint64()
    cuda.must(cuda.cuda.cuMemHostAlloc(byref(pointer), c_size_t(6000 * MIB), 0), "cuMemHostAlloc")
    cuda.expect(0, "host memory")
    prop = Prop(type=1, location=Location(3, 0))  # a NUMA node; NCCL and others probe for it
    result = cuda.cuda.cuMemCreate(byref(handle), c_size_t(512 * MIB), byref(prop), c_uint64(0))
    if result not in (0, 1, 801):
        sys.exit(f"cuMemCreate on the host: {result}")
    cuda.expect(0, "physical memory of the host")


def managed_to_and_fro(cuda: Story) -> None:
    """Managed memory counts once, wherever it is."""
    pointer = c_uint64()
    cuda.must(cuda.cuda.cuMemAllocManaged(byref(pointer), c_size_t(1024 * MIB), 1), "managed")
    for place in (0, -1, 0):
        result = cuda.cuda.cuMemPrefetchAsync(pointer, c_size_t(1024 * MIB), c_int(place), None)
        if result not in (0, 801):
            sys.exit(f"prefetch to {place}: {result}")
        cuda.must(cuda.cuda.cuCtxSynchronize(), "synchronize")
        cuda.expect(1024, f"after a prefetch to {place}")
    cuda.must(cuda.cuda.cuMemFree_v2(pointer), "free")
    cuda.expect(0, "freed")


def opened_by_another(cuda: Story) -> None:
    """CUDA IPC: the memory counts once; when its owner is killed, it is gone with the one who opened it."""
    pointer, handle = cuda.take(1024), create_string_buffer(64)
    cuda.must(cuda.cuda.cuIpcGetMemHandle(handle, pointer), "export")
    peer = start("open_it", handle.raw.hex())
    assert peer.stdout
    if (said := peer.stdout.readline()) != "opened\n":
        sys.exit(f"the other process: {said}{peer.communicate()[1]}")
    cuda.expect(1024 + cuda.start, "with the other's context")
    peer.kill()
    peer.wait()
    cuda.expect(1024, "when the other is gone")


def open_it(cuda: Story) -> None:
    """The other process of that story."""
    pointer = c_uint64()
    handle = IpcHandle.from_buffer_copy(bytes.fromhex(os.environ[PEER]))
    cuda.must(cuda.cuda.cuIpcOpenMemHandle_v2(byref(pointer), handle, c_uint(1)), "open")
    print("opened", flush=True)
    sys.stdin.readline()


def stacks_grow(cuda: Story) -> None:
    """What a larger stack takes of the card counts, or it is refused."""
    result = cuda.cuda.cuCtxSetLimit(0, c_size_t(16 << 10))
    if result not in (0, 2):
        sys.exit(f"cuCtxSetLimit: {result}")
    left, _ = cuda.told()
    if left > 300:
        cuda.take(left - 300)
    cuda.must(cuda.cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(400 * MIB)), "beyond the limit", 2)


def reset(cuda: Story) -> None:
    """A device that is reset has its whole limit again."""
    cuda.take(2000)
    cuda.must(cuda.cuda.cuDevicePrimaryCtxReset_v2(0), "reset")
    again = Story()
    again.take(3000)
    again.expect(3000, "after the reset")


def frees_that_are_none(cuda: Story) -> None:
    """Nonsense gets the driver's own answer and changes nothing."""
    pointer = cuda.take(256)
    for address in (0x1234, pointer.value + 512):
        if cuda.cuda.cuMemFree_v2(c_uint64(address)) == 0:
            sys.exit(f"{address:x} was freed")
    cuda.expect(256, "after frees of nonsense")
    cuda.must(cuda.cuda.cuMemFree_v2(pointer), "free")
    if cuda.cuda.cuMemFree_v2(pointer) == 0:
        sys.exit("freed twice")
    cuda.expect(0, "freed once")


def mapped_and_released(cuda: Story) -> None:
    """Physical memory lives as long as a handle or a mapping."""
    handle, address, again = c_uint64(), c_uint64(), c_uint64()
    size, zero = c_size_t(1024 * MIB), c_uint64(0)
    prop = Prop(type=1, location=Location(1, 0))
    cuda.must(cuda.cuda.cuMemCreate(byref(handle), size, byref(prop), zero), "create")
    cuda.must(cuda.cuda.cuMemAddressReserve(byref(address), size, c_size_t(0), zero, zero), "reserve")
    cuda.must(cuda.cuda.cuMemMap(address, size, c_size_t(0), handle, zero), "map")
    cuda.must(cuda.cuda.cuMemRelease(handle), "release")
    cuda.expect(1024, "mapped")
    cuda.must(cuda.cuda.cuMemRetainAllocationHandle(byref(again), address), "retain")
    cuda.must(cuda.cuda.cuMemUnmap(address, size), "unmap")
    cuda.expect(1024, "a handle is left")
    cuda.must(cuda.cuda.cuMemRelease(again), "release")
    cuda.expect(0, "nothing is left")


CASES: dict[str, Callable[[Story], None]] = {
    case.__name__: case
    for case in (
        kept_by_a_pool,
        on_the_host,
        managed_to_and_fro,
        opened_by_another,
        stacks_grow,
        reset,
        frees_that_are_none,
        mapped_and_released,
    )
}


def start(case: str, peer: str = "", env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__)), "--inside", case]
    pipe = subprocess.PIPE
    env = {**(env or os.environ), PEER: peer}
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        story = {**CASES, "open_it": open_it}[sys.argv[2]]
        story(Story())
        return
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            process = start(name, env=environment(Path(folder), LIMIT))
            _, errors = process.communicate(timeout=120)
            said = errors.strip().splitlines()[-1:] or [f"exit {process.returncode}"]
            got = said[0] if process.returncode else "as it should"
            row(name.replace("_", " "), f"{LIMIT} MiB", got[:90], "as it should", process.returncode == 0)
    sys.exit(1 if table.missed else 0)


if __name__ == "__main__":
    main()
