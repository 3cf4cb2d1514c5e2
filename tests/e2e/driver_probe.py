"""`python -m tests.e2e.driver_probe NAMES REQUESTS...`: what a program finds in the driver's libraries, as JSON.

Every function that they or the file NAMES have is looked up in every way; an answer is named by the library and the
function that it points to.  Then a few are called.  The tests run it with libsubak and without it and compare.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

LOOK_UPS = ("cuGetProcAddress", "cuGetProcAddress_v2", "cuGetProcAddress_v2_ptsz")


class _Info(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_c = ctypes.CDLL(None)
_c.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Info)]
_c.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_c.dlsym.restype = ctypes.c_void_p


def _pointee(address: int | None) -> str:
    info = _Info()
    if not address or not _c.dladdr(address, ctypes.byref(info)):
        return ""
    named = info.name.decode() if info.name and info.address == address else hex(address - (info.base or 0))
    return f"{os.path.basename(info.file.decode()).split('.so')[0]} {named}"


def _exported(library: str) -> list[str]:
    with open("/proc/self/maps") as maps:
        path = next(line.split(maxsplit=5)[5].strip() for line in maps if f"/{library}." in line)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, env=environment)
    names = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}
    return sorted(name for name in names if name.startswith(("cu", "nvml")))


def _requests(files: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for file in files:
        with open(file) as lines:
            for line in lines:
                words = line.split()
                if len(words) == 4 and words[0] == "GPA2":
                    yield words[1], int(words[2]), int(words[3].removeprefix("flags="))


def _look_up(cuda: ctypes.CDLL, files: Sequence[str]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for name, version, flags in set(_requests(files)):
        for way in LOOK_UPS:
            if not hasattr(cuda, way):
                continue
            pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
            more = [ctypes.byref(status)] if "_v2" in way else []
            asked = [name.encode(), ctypes.byref(pointer), version, ctypes.c_uint64(flags), *more]
            result = getattr(cuda, way)(*asked)
            found[f"{way} {name} {version} {flags}"] = [result, status.value, _pointee(pointer.value)]
    return found


def _calls(cuda: ctypes.CDLL, nvml: ctypes.CDLL) -> dict[str, object]:
    number, word, size = ctypes.c_int(-1), ctypes.c_uint64(), ctypes.c_size_t()
    pointer = ctypes.c_void_p()
    return {
        "cuInit": cuda.cuInit(0),
        "cuDeviceGetCount": cuda.cuDeviceGetCount(ctypes.byref(number)),
        "cuDriverGetVersion": [cuda.cuDriverGetVersion(ctypes.byref(number)), number.value],
        "cuDevicePrimaryCtxRetain": cuda.cuDevicePrimaryCtxRetain(ctypes.byref(pointer), 0),
        "cuMemAlloc": cuda.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(1 << 20)),
        "cuMemAllocManaged": cuda.cuMemAllocManaged(ctypes.byref(word), ctypes.c_size_t(1 << 20), 1),
        "cuMemGetInfo": cuda.cuMemGetInfo_v2(ctypes.byref(size), ctypes.byref(size)),
        "cuMemcpy": cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(0), None, ctypes.c_size_t(0)),
        "cuCtxSynchronize": cuda.cuCtxSynchronize(),
        "nvmlInit": nvml.nvmlInit_v2(),
        "nvmlDeviceGetCount": nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)),
    }


def main(names: str, files: Sequence[str]) -> None:
    """Print it all."""
    cuda, nvml = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL), ctypes.CDLL("libnvidia-ml.so.1", ctypes.RTLD_GLOBAL)
    with open(names) as more:
        wanted = {*more.read().split(), *_exported("libcuda.so"), *_exported("libnvidia-ml.so")}
    symbols = {
        name: [_pointee(_c.dlsym(scope, name.encode())) for scope in (cuda._handle, nvml._handle, None)]
        for name in wanted
    }
    early = _look_up(cuda, files)
    found = {"symbols": symbols, "early": early, "calls": _calls(cuda, nvml), "late": _look_up(cuda, files)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
