"""What the accounting assumes of the real driver, asked of the real driver.

Runs without libsubak. Prints one line for each fact: how much memory each kind of request takes according to NVML,
how pools grow, whether an importer is charged for imported memory, what outlives a context. When a new driver
changes one of these, this says so before the limits leak.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from consumer import MIB, AllocNode, Array3D, IpcHandle, Location, PoolProps, Prop

cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")


class Process(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("memory", c_uint64), ("gpu", c_uint), ("compute", c_uint)]


def must(result: int, what: str) -> None:
    if result:
        raise SystemExit(f"{what}: error {result}")


def seen(pid: int = 0) -> int:
    """NVML's figure for a process in bytes; -1 if it is not listed."""
    device = c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
    count = c_uint(64)
    processes = (Process * 64)()
    must(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, byref(count), processes), "processes")
    for process in processes[: count.value]:
        if process.pid == (pid or os.getpid()):
            return int(process.memory)
    return -1


def delta(what: str, call, *arguments) -> int:  # type: ignore[no-untyped-def]
    before = seen()
    result = call(*arguments)
    grown = seen() - before
    print(f"{what:58} result {result:3}  NVML {grown / MIB:+9.2f} MiB")
    return int(result)


def attribute(pool: c_void_p, number: int) -> int:
    value = c_uint64()
    cuda.cuMemPoolGetAttribute(pool, number, byref(value))
    return value.value


def linear() -> None:
    for size in (1, 512, 100_000, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 3 * MIB, 100 * MIB + 1):
        pointer = c_uint64()
        delta(f"cuMemAlloc {size}", cuda.cuMemAlloc_v2, byref(pointer), c_size_t(size))
    pointers = [c_uint64() for _ in range(64)]
    before = seen()
    for pointer in pointers:
        cuda.cuMemAlloc_v2(byref(pointer), c_size_t(MIB + MIB // 2))
    print(f"64 x cuMemAlloc 1.5 MiB: NVML {(seen() - before) / MIB:+.2f}")
    for pointer in pointers:
        cuda.cuMemFree_v2(pointer)
    print(f"  freed: NVML {(seen() - before) / MIB:+.2f}")
    pitch, pointer = c_size_t(), c_uint64()
    delta(
        "cuMemAllocPitch 1 x 1M", cuda.cuMemAllocPitch_v2, byref(pointer), byref(pitch), c_size_t(1), c_size_t(MIB), 4
    )
    print(f"  pitch {pitch.value}")
    cuda.cuMemFree_v2(pointer)
    delta("cuMemAllocManaged 256 MiB", cuda.cuMemAllocManaged, byref(pointer), c_size_t(256 * MIB), 1)
    delta("  touched on the device", cuda.cuMemsetD8_v2, pointer, 1, c_size_t(256 * MIB))
    cuda.cuCtxSynchronize()
    cuda.cuMemFree_v2(pointer)


def pools() -> None:
    pool = c_void_p()
    cuda.cuDeviceGetDefaultMemPool(byref(pool), 0)
    live = []
    for size in (1, MIB, 30 * MIB, 33 * MIB, 100 * MIB, 65 * MIB, 5 * MIB, 1000 * MIB):
        pointer = c_uint64()
        reserved = attribute(pool, 5)
        delta(f"cuMemAllocAsync {size / MIB:.1f} MiB", cuda.cuMemAllocAsync, byref(pointer), c_size_t(size), None)
        now, used = attribute(pool, 5), attribute(pool, 7)
        print(f"  reserved {(now - reserved) / MIB:+.2f} MiB to {now / MIB:.2f}, used {used / MIB:.2f}")
        live.append(pointer)
    for pointer in live:
        cuda.cuMemFreeAsync(pointer, None)
    print(f"freed, not synchronised: reserved {attribute(pool, 5) / MIB:.2f}, used {attribute(pool, 7) / MIB:.2f}")
    cuda.cuCtxSynchronize()
    print(f"synchronised: reserved {attribute(pool, 5) / MIB:.2f}, used {attribute(pool, 7) / MIB:.2f}")
    began = time.perf_counter_ns()
    for _ in range(2000):
        pointer = c_uint64()
        cuda.cuMemAllocAsync(byref(pointer), c_size_t(MIB), None)
        cuda.cuMemFreeAsync(pointer, None)
    print(f"async pair {(time.perf_counter_ns() - began) / 2000:.0f} ns (with ctypes)")
    cuda.cuCtxSynchronize()
    cuda.cuMemPoolTrimTo(pool, c_size_t(0))


def physical() -> None:
    prop = Prop(type=1, handles=1, location=Location(1, 0))
    handle, address = c_uint64(), c_uint64()
    delta("cuMemCreate 64 MiB", cuda.cuMemCreate, byref(handle), c_size_t(64 * MIB), byref(prop), c_uint64(0))
    cuda.cuMemAddressReserve(byref(address), c_size_t(64 * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
    delta("cuMemMap", cuda.cuMemMap, address, c_size_t(64 * MIB), c_size_t(0), handle, c_uint64(0))
    again = c_uint64()
    cuda.cuMemRetainAllocationHandle(byref(again), c_void_p(address.value + 4096))
    print(f"  retained handle {'equal' if again.value == handle.value else 'differs'}")
    cuda.cuMemRelease(again)
    delta("cuMemRelease while mapped", cuda.cuMemRelease, handle)
    other = c_uint64()
    cuda.cuMemCreate(byref(other), c_size_t(2 * MIB), byref(prop), c_uint64(0))
    print(f"  next handle {'is the released number' if other.value == handle.value else 'is new'}")
    cuda.cuMemRelease(other)
    retained = c_uint64()
    result = cuda.cuMemRetainAllocationHandle(byref(retained), c_void_p(address.value))
    print(f"  retain after release: result {result}, {'equal' if retained.value == handle.value else 'differs'}")
    cuda.cuMemRelease(retained)
    delta("cuMemUnmap", cuda.cuMemUnmap, address, c_size_t(64 * MIB))


def arrays() -> None:
    made = []
    for text, shape in {
        "2D float 4096 x 4096 (64 MiB)": Array3D(4096, 4096, 0, 0x20, 1, 0),
        "2D float4 1000 x 1000 (15.3 MiB)": Array3D(1000, 1000, 0, 0x20, 4, 0),
        "3D u8 512^3 (128 MiB)": Array3D(512, 512, 512, 0x01, 1, 0),
        "layered half 1024^2 x 10 (20 MiB)": Array3D(1024, 1024, 10, 0x10, 1, 1),
        "BC1 4096^2 (8 MiB)": Array3D(4096, 4096, 0, 0x91, 1, 0),
        "1D float 1000": Array3D(1000, 0, 0, 0x20, 1, 0),
    }.items():
        array = c_void_p()
        delta(f"array {text}", cuda.cuArray3DCreate_v2, byref(array), byref(shape))
        made.append(array)
    mipmap = c_void_p()
    shape = Array3D(4096, 4096, 0, 0x20, 1, 0)
    delta("mipmap float 4096^2, 13 levels (85 MiB)", cuda.cuMipmappedArrayCreate, byref(mipmap), byref(shape), 13)
    before = seen()
    for array in made:
        cuda.cuArrayDestroy(array)
    print(f"arrays destroyed: NVML {(seen() - before) / MIB:+.2f}")


def graphs() -> None:
    graph, node, executable = c_void_p(), c_void_p(), c_void_p()
    cuda.cuGraphCreate(byref(graph), 0)
    params = AllocNode(pool=PoolProps(type=1, location=Location(1, 0)), bytes=100 * MIB)
    must(cuda.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), byref(params)), "mem alloc node")
    free = c_void_p()
    dependency = (c_void_p * 1)(node)
    cuda.cuGraphAddMemFreeNode(byref(free), graph, dependency, c_size_t(1), c_uint64(params.ptr))
    delta(
        "graph with a 100 MiB node: instantiate",
        cuda.cuGraphInstantiateWithFlags,
        byref(executable),
        graph,
        c_uint64(0),
    )
    delta("  upload", cuda.cuGraphUpload, executable, None)
    delta("  launch", cuda.cuGraphLaunch, executable, None)
    cuda.cuCtxSynchronize()
    value = c_uint64()
    cuda.cuDeviceGetGraphMemAttribute(0, 2, byref(value))
    print(f"  graph memory reserved {value.value / MIB:.2f}")
    delta("  exec destroy", cuda.cuGraphExecDestroy, executable)
    delta("  trim", cuda.cuDeviceGraphMemTrim, 0)


def imports() -> None:
    """A child opens what this process made, by IPC handle and by file descriptor."""
    pointer, ipc = c_uint64(), IpcHandle()
    cuda.cuMemAlloc_v2(byref(pointer), c_size_t(128 * MIB))
    must(cuda.cuIpcGetMemHandle(byref(ipc), pointer), "cuIpcGetMemHandle")
    prop = Prop(type=1, handles=1, location=Location(1, 0))
    handle, fd = c_uint64(), c_int()
    cuda.cuMemCreate(byref(handle), c_size_t(64 * MIB), byref(prop), c_uint64(0))
    must(cuda.cuMemExportToShareableHandle(byref(fd), handle, 1, c_uint64(0)), "export")
    ours, theirs = socket.socketpair()
    child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, __file__, "import", str(inherit(theirs))])
    socket.send_fds(ours, [bytes(ipc)], [fd.value])
    ours.recv(1)
    before = seen()
    cuda.cuMemRelease(handle)
    os.close(fd.value)
    print(f"exporter releases what was imported: NVML of the exporter {(seen() - before) / MIB:+.2f}")
    ours.send(b"x")
    os.waitpid(child, 0)


def inherit(end: socket.socket) -> int:
    os.set_inheritable(end.fileno(), True)
    return end.fileno()


def importer(number: int) -> None:
    end = socket.socket(fileno=number)
    content, fds, _, _ = socket.recv_fds(end, 64, 1)
    ipc, pointer, handle = IpcHandle.from_buffer_copy(content), c_uint64(), c_uint64()
    delta("IPC open of 128 MiB: NVML of the importer", cuda.cuIpcOpenMemHandle_v2, byref(pointer), ipc, 1)
    delta(
        "fd import of 64 MiB: NVML of the importer",
        cuda.cuMemImportFromShareableHandle,
        byref(handle),
        c_void_p(fds[0]),
        1,
    )
    end.send(b"x")
    end.recv(1)
    print(f"importer after the exporter's release: NVML {seen() / MIB:.2f}", flush=True)


def contexts() -> None:
    prop = Prop(type=1, handles=0, location=Location(1, 0))
    handle, pointer, array = c_uint64(), c_uint64(), c_void_p()
    cuda.cuMemCreate(byref(handle), c_size_t(64 * MIB), byref(prop), c_uint64(0))
    cuda.cuMemAllocAsync(byref(pointer), c_size_t(100 * MIB), None)
    second = c_void_p()
    delta("a second context", cuda.cuCtxCreate_v2, byref(second), 0, 0)
    cuda.cuMemAlloc_v2(byref(pointer), c_size_t(100 * MIB))
    delta("  its destruction, with 100 MiB in it", cuda.cuCtxDestroy_v2, second)
    delta("cuCtxSetLimit printf 512 MiB", cuda.cuCtxSetLimit, 1, c_size_t(512 * MIB))
    before = seen()
    cuda.cuDevicePrimaryCtxReset_v2(0)
    print(f"primary context reset: NVML {before / MIB:.2f} -> {seen() / MIB:.2f}")
    pool = c_void_p()
    cuda.cuDeviceGetDefaultMemPool(byref(pool), 0)
    print(f"  default pool afterwards: reserved {attribute(pool, 5) / MIB:.2f}; array {array.value}")
    print(f"  release of the physical handle: {cuda.cuMemRelease(handle)}, NVML {seen() / MIB:.2f}")


def main() -> None:
    nvml.nvmlInit_v2()
    must(cuda.cuInit(0), "cuInit")
    context = c_void_p()
    must(cuda.cuDevicePrimaryCtxRetain(byref(context), 0), "context")
    cuda.cuCtxSetCurrent(context)
    if len(sys.argv) > 2:
        importer(int(sys.argv[2]))
        return
    print(f"context alone: NVML {seen() / MIB:.2f}")
    for part in (linear, pools, physical, arrays, graphs, imports, contexts):
        print(f"--- {part.__name__}", flush=True)
        part()
        sys.stdout.flush()


main()
