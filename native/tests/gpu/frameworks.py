"""Frameworks under libsubak: the same results with and without it, and the limit as the size of the card.

    python3 native/tests/gpu/frameworks.py [PROGRAM...]      (build libsubak first)

Programs: torch, triton, jax, cupy; without any, all of them.  Each runs three times at once: without the library, with
a memory limit, and with a limit of memory and of time.  It prints the bits of its results, which must be the same, and
the memory it believes the card has.  A framework that is not installed is named and left out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import table
from table import row

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("SUBAK_BUILD", HERE.parent.parent / "build")).absolute()
LIMIT = 10240
LIMITS: dict[str, dict[str, str]] = {
    "none": {},
    "memory": {"CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT}m"},
    "memory, 50 %": {"CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT}m", "CUDA_DEVICE_SM_LIMIT": "50"},
}
PATIENCE_S = 240


def say(what: str, content: bytes) -> None:
    """One result of a program, as a digest of its bits."""
    print(json.dumps([what, hashlib.sha256(content).hexdigest()[:16]]), flush=True)


def say_memory(total: int) -> None:
    print(json.dumps(["memory", total >> 20]), flush=True)


# ---- programs ----------------------------------------------------------------------------------------------------


def use_torch() -> None:
    """Training, CUDA graphs, torch.compile, memory shared with another process, and running out of memory."""
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    say_memory(torch.cuda.mem_get_info()[1])
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 64, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    ).cuda()
    images, labels = torch.randn(64, 3, 32, 32, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        losses = [step().item() for _ in range(50)]
    torch.cuda.synchronize()
    say("training, 50 steps", str([loss.hex() for loss in losses]).encode())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(200):
        graph.replay()
    say("training step as a CUDA graph, 200 times", bits(captured.detach()))
    part = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda()
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(part, (x,))
    for _ in range(20):
        graphed(x).sum().backward()
    say("make_graphed_callables", bits(x.grad))
    torch.use_deterministic_algorithms(False)
    compiled = torch.compile(lambda a: torch.nn.functional.softmax(a @ a.T, -1).relu().sum(0), mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(30):
            result = compiled(x).clone()
    say("torch.compile, reduce-overhead", bits(result))
    run_out_of_memory(torch)
    say("after running out of memory", bits(net(images).detach()))
    share_with_another_process(torch)


def bits(tensor: Any) -> bytes:
    return bytes(tensor.cpu().contiguous().numpy().tobytes())


def run_out_of_memory(torch: Any) -> None:
    """More than any card has: the program catches it and goes on."""
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    raise RuntimeError("4 TiB were granted")


def double(tensor: Any) -> None:
    tensor.mul_(2)
    import torch

    torch.cuda.synchronize()


def share_with_another_process(torch: Any) -> None:
    spawn = torch.multiprocessing.get_context("spawn")
    tensor = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    child = spawn.Process(target=double, args=(tensor,))
    child.start()
    child.join(120)
    say("a tensor shared by CUDA IPC", bits(tensor) + str(child.exitcode).encode())


def use_triton() -> None:
    """A kernel with autotuning, through Triton's own launcher."""
    import torch
    import triton
    import triton.language as tl

    @triton.autotune(configs=[triton.Config({"BLOCK": n}) for n in (256, 1024)], key=["n"])
    @triton.jit
    def scaled_sum(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, 2 * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

    torch.manual_seed(2)
    n = 1 << 22
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    for _ in range(200):
        scaled_sum[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    say_memory(torch.cuda.get_device_properties(0).total_memory)
    say("autotuned kernel, 200 times", bits(out))


def use_jax() -> None:
    """jit and grad, with XLA's own memory and graphs."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x**2).mean()

    keys = jax.random.split(jax.random.key(3), 5)
    weights = [jax.random.normal(key, (256, 256)) / 16 for key in keys[:4]]
    x = jax.random.normal(keys[4], (512, 256))
    update = jax.jit(lambda w, x: [a - 0.1 * g for a, g in zip(w, jax.grad(loss)(w, x), strict=True)])
    for _ in range(50):
        weights = update(weights, x)
    say_memory(int(jax.devices()[0].memory_stats()["bytes_limit"]))
    say("jit and grad, 50 steps", b"".join(bytes(jax.device_get(weight).tobytes()) for weight in weights))


def use_cupy() -> None:
    """RawKernel, reductions and products, with the plain and the stream-ordered pool, and a graph."""
    import cupy

    say_memory(int(cupy.cuda.Device().mem_info[1]))
    kernel = cupy.RawKernel(
        'extern "C" __global__ void twice(float *x, int n)'
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }",
        "twice",
    )
    for pool in (cupy.get_default_memory_pool(), cupy.cuda.MemoryAsyncPool()):
        cupy.cuda.set_allocator(pool.malloc)
        x = cupy.arange(1 << 20, dtype=cupy.float32) / 7
        for _ in range(100):
            kernel(((1 << 20) // 256,), (256,), (x, 1 << 20))
            x /= 2
        product = x.reshape(1024, 1024) @ x.reshape(1024, 1024).T
        say(f"kernels and products, {type(pool).__name__}", product.get().tobytes())
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        kernel(((1 << 20) // 256,), (256,), (x, 1 << 20))
        graph = stream.end_capture()
        for _ in range(10):
            graph.launch(stream)
    stream.synchronize()
    say("graph", x.get().tobytes())


PROGRAMS: dict[str, Callable[[], None]] = {"torch": use_torch, "triton": use_triton, "jax": use_jax, "cupy": use_cupy}

# ---- comparing ---------------------------------------------------------------------------------------------------


def start(program: str, folder: Path, number: int, limits: dict[str, str]) -> subprocess.Popen[str]:
    env = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
    if limits:
        env |= {
            "LD_PRELOAD": str(BUILD / "libsubak.so"),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(folder / f"{program}{number}.cache"),
            "SUBAK_TURNS": str(folder / "turns"),
            **limits,
        }
    else:
        env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # leave room on the card for the others
    command = [sys.executable, str(Path(__file__)), "--inside", program]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def results(process: subprocess.Popen[str]) -> dict[str, object]:
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"not done after {PATIENCE_S} s"
    found = dict(json.loads(line) for line in out.splitlines() if line.startswith('["'))
    if process.returncode:
        found["failed"] = (err.strip().splitlines() or [f"exit {process.returncode}"])[-1]
    return found


def compare(program: str, by_limit: dict[str, dict[str, object]]) -> None:
    plain = by_limit["none"]
    if "failed" in plain:
        row(program, "none", f"does not run here at all: {plain['failed']}"[:90], "", None)
        return
    for limit, got in by_limit.items():
        if limit == "none":
            continue
        differing = [what for what in plain if what != "memory" and got.get(what) != plain[what]]
        told = f"{len(plain) - 1 - len(differing)} of {len(plain) - 1} results the same, sees {got.get('memory')} MiB"
        if differing:
            told += f"; not {', '.join(differing)}: {got.get('failed', 'other bits')}"
        # JAX tells how much it takes for itself: three quarters of what is free
        seen = got.get("memory")
        right = seen == LIMIT if program != "jax" else isinstance(seen, int) and LIMIT // 2 < seen < LIMIT
        row(program, limit, told, f"all, {LIMIT} MiB", not differing and right)


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        PROGRAMS[sys.argv[2]]()
        return
    with tempfile.TemporaryDirectory(prefix="subak-frameworks-") as name:
        running = {}
        for program in sys.argv[1:] or PROGRAMS:
            if importlib.util.find_spec(program) is None:
                row(program, "", "not installed", "", None)
                continue
            running[program] = {
                limit: start(program, Path(name), number, limits)
                for number, (limit, limits) in enumerate(LIMITS.items())
            }
        for program, processes in running.items():
            compare(program, {limit: results(process) for limit, process in processes.items()})
    sys.exit(1 if table.missed else 0)


if __name__ == "__main__":
    main()
