"""One process that takes card memory in one way until it is refused; memory.py starts it under libsubak.

    python3 consumer.py KIND [CHUNK_MIB]

Prints one JSON line (MiB taken, the code of the refusal, what CUDA told before and after), waits for a line on its
input, and ends.  Kinds are the ways a program can get memory: the driver's, and those of the frameworks.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

MIB = 1 << 20
OUT_OF_MEMORY = 2
MOST_MIB = 40 * 1024  # far above every limit here: whoever gets this far is not limited


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Prop(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", Location), ("win", c_void_p), ("flags", c_uint64)]


class PoolProps(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handles", c_int),
        ("location", Location),
        ("win", c_void_p),
        ("max", c_size_t),
        ("rest", ctypes.c_char * 56),
    ]


class Array3D(ctypes.Structure):
    _fields_ = [
        ("w", c_size_t),
        ("h", c_size_t),
        ("d", c_size_t),
        ("format", c_int),
        ("channels", c_uint),
        ("flags", c_uint),
    ]


class AllocNode(ctypes.Structure):
    _fields_ = [("pool", PoolProps), ("access", c_void_p), ("count", c_size_t), ("bytes", c_size_t), ("ptr", c_uint64)]


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


class Driver:
    """The driver API as a plain program uses it."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = c_void_p()
        for result in (
            self.cuda.cuInit(0),
            self.cuda.cuDevicePrimaryCtxRetain(byref(context), 0),
            self.cuda.cuCtxSetCurrent(context),
        ):
            if result:
                sys.exit(f"start: error {result}")
        self.pool = c_void_p()

    def told(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self.cuda.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value // MIB, total.value // MIB

    def nothing(self, mib: int) -> int:
        return 0

    def alloc(self, mib: int) -> int:
        return int(self.cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(mib * MIB)))

    def alloc_small(self, mib: int) -> int:
        """Pages are shared by small blocks."""
        for _ in range(mib * 4):
            if result := self.cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(MIB // 4)):
                return int(result)
        return 0

    def pitch(self, mib: int) -> int:
        """Rows of one byte: 512 bytes each, in truth."""
        return int(
            self.cuda.cuMemAllocPitch_v2(byref(c_uint64()), byref(c_size_t()), c_size_t(1), c_size_t(mib * 2048), 4)
        )

    def managed(self, mib: int) -> int:
        pointer = c_uint64()
        result = self.cuda.cuMemAllocManaged(byref(pointer), c_size_t(mib * MIB), 1)
        return int(result or self.cuda.cuMemsetD8_v2(pointer, 1, c_size_t(mib * MIB)))

    def ordered(self, mib: int) -> int:
        return int(self.cuda.cuMemAllocAsync(byref(c_uint64()), c_size_t(mib * MIB), None))

    def ordered_ptsz(self, mib: int) -> int:
        """The per-thread default stream's flavour, as CuPy's and Numba's PTDS modes call it."""
        return int(self.cuda.cuMemAllocAsync_ptsz(byref(c_uint64()), c_size_t(mib * MIB), None))

    def own_pool(self, mib: int) -> int:
        if not self.pool:
            self.cuda.cuMemPoolCreate(byref(self.pool), byref(PoolProps(type=1, location=Location(1, 0))))
        return int(self.cuda.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(mib * MIB), self.pool, None))

    def physical(self, mib: int) -> int:
        """Mapped, and the handle released at once: nothing but the mapping keeps it."""
        handle, address = c_uint64(), c_uint64()
        prop = Prop(type=1, location=Location(1, 0))
        result = self.cuda.cuMemCreate(byref(handle), c_size_t(mib * MIB), byref(prop), c_uint64(0))
        if not result:
            self.cuda.cuMemAddressReserve(byref(address), c_size_t(mib * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
            self.cuda.cuMemMap(address, c_size_t(mib * MIB), c_size_t(0), handle, c_uint64(0))
            self.cuda.cuMemRelease(handle)
        return int(result)

    def physical_unmapped(self, mib: int) -> int:
        prop = Prop(type=1, location=Location(1, 0))
        return int(self.cuda.cuMemCreate(byref(c_uint64()), c_size_t(mib * MIB), byref(prop), c_uint64(0)))

    def array(self, mib: int) -> int:
        shape = Array3D(1024, 256 * mib, 0, 0x20, 1, 0) if mib <= 128 else Array3D(4096, 4096, mib // 64, 0x20, 1, 1)
        return int(self.cuda.cuArray3DCreate_v2(byref(c_void_p()), byref(shape)))

    def cube(self, mib: int) -> int:
        return int(self.cuda.cuArray3DCreate_v2(byref(c_void_p()), byref(Array3D(512, 512, mib * 4, 0x01, 1, 0))))

    def mipmap(self, mib: int) -> int:
        shape = Array3D(4096, 4096, 0, 0x20, 1, 0)  # 86 MiB with its levels
        return int(self.cuda.cuMipmappedArrayCreate(byref(c_void_p()), byref(shape), 13))

    def graph(self, mib: int) -> int:
        """A graph with an allocation node, never freed in it."""
        graph, node, instance = c_void_p(), c_void_p(), c_void_p()
        self.cuda.cuGraphCreate(byref(graph), 0)
        node_parameters = AllocNode(pool=PoolProps(type=1, location=Location(1, 0)), bytes=mib * MIB)
        self.cuda.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), byref(node_parameters))
        self.cuda.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0))
        return int(self.cuda.cuGraphLaunch(instance, None))

    def captured(self, mib: int) -> int:
        """cuMemAllocAsync on a stream that is captured, then the graph launched."""
        stream, graph, instance = c_void_p(), c_void_p(), c_void_p()
        self.cuda.cuStreamCreate(byref(stream), 1)
        self.cuda.cuStreamBeginCapture_v2(stream, 2)
        self.cuda.cuMemAllocAsync(byref(c_uint64()), c_size_t(mib * MIB), stream)
        self.cuda.cuStreamEndCapture(stream, byref(graph))
        self.cuda.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0))
        return int(self.cuda.cuGraphLaunch(instance, stream))

    def contexts(self, mib: int) -> int:
        """More contexts of the same process, each with memory: what the driver takes for itself counts."""
        result = self.cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(mib * MIB))
        return int(result or self.cuda.cuCtxCreate_v2(byref(c_void_p()), 0, 0))

    def mixed(self, mib: int) -> int:
        """Every way in turn."""
        self.turn = getattr(self, "turn", -1) + 1
        ways = (self.alloc, self.managed, self.ordered, self.own_pool, self.physical, self.array, self.graph)
        return ways[self.turn % len(ways)](mib)


def torch_ways() -> tuple[Callable[[int], Any], Callable[[], tuple[int, int]]]:
    import torch

    held: list[Any] = []

    def take(mib: int) -> None:
        try:
            held.append(torch.empty(mib * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            raise MemoryError from None

    def told() -> tuple[int, int]:
        free, total = torch.cuda.mem_get_info()
        return free // MIB, total // MIB

    return take, told


def cupy_ways(asynchronous: bool) -> tuple[Callable[[int], Any], Callable[[], tuple[int, int]]]:
    import cupy

    if asynchronous:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    held: list[Any] = []

    def take(mib: int) -> None:
        try:
            held.append(cupy.empty(mib * MIB, dtype=cupy.uint8))
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError):
            raise MemoryError from None

    def told() -> tuple[int, int]:
        free, total = cupy.cuda.runtime.memGetInfo()
        return free // MIB, total // MIB

    return take, told


def jax_ways() -> tuple[Callable[[int], Any], Callable[[], tuple[int, int]]]:
    import jax
    import jax.numpy as jnp

    held: list[Any] = []

    def take(mib: int) -> None:
        try:
            held.append(jax.block_until_ready(jnp.zeros(mib * MIB, dtype=jnp.uint8) + 1))
        except Exception as error:
            if "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower():
                raise MemoryError from None
            raise

    def told() -> tuple[int, int]:
        limit = jax.devices()[0].memory_stats() or {}
        return 0, int(limit.get("bytes_limit", 0)) // MIB

    return take, told


def framework(kind: str) -> tuple[Callable[[int], Any], Callable[[], tuple[int, int]]]:
    if kind.startswith("torch"):
        return torch_ways()
    if kind.startswith("cupy"):
        return cupy_ways(kind == "cupy_async")
    return jax_ways()


def main() -> None:
    kind, chunk = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 256
    taken = code = 0
    if hasattr(Driver, kind):
        driver = Driver()
        way, told = getattr(driver, kind), driver.told
        before = told()
        if "SUBAK_TOGETHER" in os.environ:  # start when all are there
            print("ready", flush=True)
            sys.stdin.readline()
        while chunk and taken < MOST_MIB and not (code := way(chunk)):
            taken += chunk
    else:
        take, told = framework(kind)
        before = told()
        try:
            while taken < MOST_MIB:
                take(chunk)
                taken += chunk
        except MemoryError:
            code = OUT_OF_MEMORY
    after = told()
    print(json.dumps({"pid": os.getpid(), "taken": taken, "code": code, "before": before, "after": after}), flush=True)
    sys.stdin.readline()
    os._exit(0)  # frameworks take their time to end, and nothing is left to see


if __name__ == "__main__":
    main()
