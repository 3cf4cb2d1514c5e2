"""`subak up` on a real card: its containers are confined, CUDA starts in them all the same, and their limits hold.

    PYTHONPATH=src:. python3 native/tests/gpu/up.py [confined] [memory] [torch] [shares]       (build libsubak first)

Pods in the words of three systems share the card.  `shares` also needs the tenant (`make -C native build/gpu-tenant`).
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import table
from slices import Spin
from table import row

from tests.support.live import Live, live

BUILD = Path(os.environ.get("SUBAK_BUILD", Path(__file__).resolve().parents[2] / "build")).absolute()
PATIENCE = 60.0
KEPT = ("LD_LIBRARY_PATH", "MOCK_MACHINE")
"""Variables by which programs find the driver where the loader does not."""

ISOLATED = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
PODS: Mapping[str, tuple[dict[str, int], dict[str, str]]] = {
    "hami": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2048, "nvidia.com/gpucores": 30}, {}),
    "volcano": ({"volcano.sh/gpu-memory": 1536}, {}),
    "koordinator": ({"koordinator.sh/gpu-core": 25, "koordinator.sh/gpu-memory-ratio": 25}, ISOLATED),
    "hami-45": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2048, "nvidia.com/gpucores": 45}, {}),
}

TENANT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
for began in (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)):
    if began:
        raise SystemExit(f"error {began}")
free, total = ctypes.c_size_t(), ctypes.c_size_t()
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
def take(mib): return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(mib << 20))
print(total.value >> 20, take(total.value >> 20), take(256))
"""
"""Prints the memory of its card in MiB, and CUDA's answers to a request for all of it and for 256 MiB."""

TORCH = """
import torch
x = torch.randn(2048, 2048, device="cuda")
y = float((x @ x).abs().mean())
try:
    torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    print("got 3 GiB")
except torch.cuda.OutOfMemoryError:
    print("multiplied, and was refused 3 GiB")
"""


def pod(name: str) -> dict[str, Any]:
    """A pod whose container waits, and sees what programs here need to find the driver and the tenant."""
    limits, labels = PODS[name]
    folders = sorted({str(BUILD), *(str(_folder(Path(os.environ[each]))) for each in KEPT if os.environ.get(each))})
    container = {
        "name": "c",
        "image": "any",
        "command": ["sleep", "100000"],
        "env": [{"name": each, "value": os.environ[each]} for each in KEPT if os.environ.get(each)],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": f"v{number}", "mountPath": path} for number, path in enumerate(folders)],
    }
    volumes = [{"name": f"v{number}", "hostPath": {"path": path}} for number, path in enumerate(folders)]
    spec = {"containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def said(cluster: Live, name: str, *command: str) -> str:
    """What a program in a pod prints."""
    ran = cluster.subak("exec", name, "--", *command, check=False)
    return (ran.stdout or ran.stderr).strip()


def confined(cluster: Live) -> None:
    """Not the machine's root, no new privileges, and system calls filtered."""
    status = said(cluster, "hami", "cat", "/proc/self/status")
    outside = int(said(cluster, "hami", "cat", "/proc/self/uid_map").split()[1])
    good = outside != 0 or os.geteuid() != 0
    row("root in a container is, outside", "", f"user {outside}", "not the machine's root", good)
    for field, wanted in (("NoNewPrivs", "1"), ("Seccomp", "2")):
        found = re.search(rf"^{field}:\s*(\d+)", status, re.MULTILINE)
        row(
            f"/proc/self/status: {field}", "", found[1] if found else "none", wanted, bool(found and found[1] == wanted)
        )
    devices = said(cluster, "hami", "sh", "-c", "ls /dev | tr '\\n' ' '")
    row("devices of the container", "", devices, "", None)


def memory(cluster: Live) -> None:
    """Each container sees its part of the card, and gets no more."""
    parts = {"hami": 2048, "volcano": 1536, "koordinator": whole(cluster) * 25 // 100}
    for name, part in parts.items():
        answer = said(cluster, name, sys.executable, "-c", TENANT)
        good = answer == f"{part} 2 0"
        row(f"container of {name}", f"{part} MiB", answer[-200:], "its part; all: 2, 256 MiB: 0", good)


def whole(cluster: Live) -> int:
    """All of the card's memory in MiB."""
    nodes = json.loads(cluster.subak("top", "-o", "json").stdout)["nodes"]
    (size,) = {card["memory_mib"] for node in nodes for card in node["cards"] if card["vendor"] == "nvidia"}
    return int(size)


def torch(cluster: Live) -> None:
    """A framework works, and its own errors say when its part is used up."""
    answer = said(cluster, "hami", sys.executable, "-c", TORCH)
    row(
        "PyTorch",
        "2048 MiB",
        answer[-120:],
        "multiplied, and refused",
        answer.startswith("multiplied, and was refused"),
    )


def shares(cluster: Live) -> None:
    """Two containers that want all of the card's time."""
    free = Spin()
    free.begin(1.0)
    full = free.rate()
    tenants = [(30, _spin(cluster, "hami")), (45, _spin(cluster, "hami-45"))]
    for _, tenant in tenants:
        tenant.begin(2.5)
    got = [(cores, tenant.rate() / full * 100) for cores, tenant in tenants]
    good = all(abs(share - cores) <= 2 for cores, share in got)
    row("two containers, 2 ms kernels", "30+45", "  ".join(f"{share:.1f}" for _, share in got), "2 points", good)
    for _, tenant in tenants:
        tenant.end()
    free.end()


def _spin(cluster: Live, name: str) -> Spin:
    return Spin("env", f"KUBECONFIG={cluster.kubeconfig}", "subak", "exec", "-i", name, "--")


SECTIONS: Mapping[str, Callable[[Live], None]] = {
    "confined": confined,
    "memory": memory,
    "torch": torch,
    "shares": shares,
}


def main(sections: list[str]) -> None:
    with TemporaryDirectory(prefix="subak-up-") as name:
        hardware = Path(name, "hardware.yaml")
        hardware.write_text("nodes: [{profile: moore-threads}]")
        with live("--hardware", hardware) as cluster:
            pods = {"apiVersion": "v1", "kind": "List", "items": [pod(name) for name in PODS]}
            cluster.run("subak", "apply", "-f", "-", stdin=json.dumps(pods))
            deadline = time.monotonic() + PATIENCE
            while (found := cluster.subak("get", "pods").stdout).count("Running") < len(PODS):
                if time.monotonic() > deadline:
                    sys.exit(f"the pods do not run after {PATIENCE:.0f} s:\n{found}")
                time.sleep(0.1)
            for each in sections or SECTIONS:
                SECTIONS[each](cluster)
    sys.exit(bool(table.missed))


if __name__ == "__main__":
    main(sys.argv[1:])
