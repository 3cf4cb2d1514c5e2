"""Compute shares on a real GPU: what each tenant gets, relative to the same work alone and unlimited in the same run.

    python3 native/tests/gpu/shares.py [SECTION...]      (build libsubak first; needs PyTorch for gemm and train)

Sections: bound, host, mixed, latency, failures, overhead; without any, all of them.
Tenants stay alive for the whole run and are
told what to do; their limits are changed the way a monitor would do it, by writing to the container's region.
Prints one table; a row says what was asked, what was got and whether the goal is met.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("SUBAK_BUILD", HERE.parent.parent / "build")).resolve()
CORE_LIMIT = 1728  # offset of the first GPU's share in the region: HAMi's layout
COMPUTE_WORDS = 3129344
QUICK = float(os.environ.get("SUBAK_SHARES_QUICK", "1"))  # below 1: shorter windows, for a look
SETTLE, WARMUP, WINDOW = 0.25, 0.5, 2.0 * QUICK

rows: list[tuple[str, ...]] = []
results: dict[str, object] = {}
began = time.monotonic()


def row(what: str, asked: str, got: str, goal: str, good: bool | None) -> None:
    verdict = {True: "ok", False: "MISS", None: ""}[good]
    rows.append((what, asked, got, goal, verdict))
    results[f"{what} | {asked}"] = {"got": got, "goal": goal, "good": good}
    print(f"[{time.monotonic() - began:5.0f} s] {what:44} {asked:18} {got:44} {goal:22} {verdict}", flush=True)


class Tenant:
    """One container: a process (or more) with a region of its own."""

    def __init__(self, folder: Path, name: str, program: str = "tenant", library: bool = True, join: str = "") -> None:
        self.region = folder / f"{join or name}.cache"
        env = dict(os.environ)
        if library:
            env |= {
                "LD_PRELOAD": str(BUILD / "libsubak.so"),
                "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region),
                "CUDA_DEVICE_SM_LIMIT": "99",
                "SUBAK_TURNS": str(folder / "turns"),
            }
        command = [str(BUILD / "gpu-tenant")] if program == "tenant" else [sys.executable, str(HERE / program)]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name, self.limit = name, 0

    def ready(self) -> Tenant:
        self.hear()
        return self

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, float]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} died: {self.process.wait()}")
        said = json.loads(line)
        if "error" in said:
            raise RuntimeError(f"{self.name}: {said['error']}")
        return dict(said)

    def write(self, offset: int, value: int) -> None:
        with self.region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as region:
            region[offset : offset + 8] = struct.pack("<q", value)

    def set(self, limit: int) -> bool:
        changed, self.limit = limit != self.limit, limit
        if changed and self.region.exists():
            self.write(CORE_LIMIT, limit)
        return changed

    def stop(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(20)


Job = tuple[Tenant, str, int]  # who, what, at which limit


def together(*jobs: Job, warmup: float = WARMUP, window: float = WINDOW) -> list[dict[str, float]]:
    changed = [tenant.set(limit) for tenant, _, limit in jobs]
    time.sleep(SETTLE if any(changed) else 0.02)
    start = time.monotonic() + 0.05
    for tenant, work, _ in jobs:
        tenant.say(f"run {work} {warmup} {window} {start}")
    return [tenant.hear() for tenant, _, _ in jobs]


def near(shares: list[float], limits: list[int], points: float, total: float = 0) -> bool:
    asked = [100 - sum(x for x in limits if x < 100) if x == 100 else x for x in limits]
    enough = not total or sum(asked) < 100 or sum(shares) >= total
    return enough and all(abs(s - a) <= points for s, a in zip(shares, asked, strict=True))


def shown(shares: list[float]) -> str:
    text = "  ".join(f"{s:.1f}" for s in shares)
    return f"{text}  (total {sum(shares):.1f})" if len(shares) > 1 else text


PAIRS = [[30, 60], [50, 50], [25, 25, 25, 25], [10, 90], [30, 100]]


def asked(limits: list[int]) -> str:
    return "+".join("none" if x == 100 else str(x) for x in limits) if limits != [25] * 4 else "25x4"


def bound(tenants: list[Tenant], torches: list[Tenant], works: list[str]) -> None:
    """GPU-bound work: one baseline, then every cell once."""
    for work in works:
        group = torches if work == "gemm" else tenants
        full = together((group[0], work, 100))[0]
        row(work, "alone, no limit", f"{full['rate']:.1f}/s", "", None)
        for limit in (10, 25, 50, 75):
            got = together((group[0], work, limit), window=3.0 * QUICK)[0]
            by_work = got["rate"] / full["rate"] * 100
            by_time = got["busy"] / full["busy"] * 100 if work == "gemm" else by_work
            text = f"{by_time:.1f}" + (f" (work {by_work:.1f})" if work == "gemm" else "")
            row(work, str(limit), text, "1 point", near([by_time], [limit], 1))
        for limits in PAIRS:
            if len(limits) > len(group):
                continue
            got_all = together(*[(t, work, x) for t, x in zip(group, limits, strict=False)])
            shares = [g["rate"] / full["rate"] * 100 for g in got_all]
            text = shown(shares)
            if work == "gemm" and sum(limits) < 100:  # the GPU has time to spare, so its clock rises
                text = f"work {text}"
                shares = [g["busy"] / full["busy"] * 100 for g in got_all]
                text = f"{shown(shares)} ({text})"
            row(work, asked(limits), text, "2 points, total 97", near(shares, limits, 2, 97))


def host(tenants: list[Tenant], torches: list[Tenant], works: list[str], rounds: int) -> None:
    """Work bound by the CPU, whose speed varies by the second: every round measures each tenant without limit and each
    cell once, and a share is the sum over all rounds."""
    cells = [[10], [25], [50], [75], *PAIRS]
    for work in works:
        group = torches if work == "train" else tenants
        full, limited = [0.0] * 4, [[0.0] * len(cell) for cell in cells]
        for _ in range(rounds):
            for i, tenant in enumerate(group):
                full[i] += together((tenant, work, 100), warmup=0.1, window=0.35)[0]["rate"]
            for cell, sums in zip(cells, limited, strict=True):
                jobs = [(tenant, work, limit) for tenant, limit in zip(group, cell, strict=False)]
                for i, got in enumerate(together(*jobs, warmup=0.3, window=0.7)):
                    sums[i] += got["rate"]
        for cell, sums in zip(cells, limited, strict=True):
            shares = [part / full[i] * 100 for i, part in enumerate(sums)]
            points = 3 if len(cell) == 1 else 5
            row(f"{work}, {rounds} rounds", asked(cell), shown(shares), f"{points} points", near(shares, cell, points))


def mixed(tenants: list[Tenant], torches: list[Tenant], twin: Tenant) -> None:
    pairs = [
        ("short + queued", (tenants[0], "short"), (tenants[1], "queued"), [50, 50], 2),
        ("gap + queued", (tenants[0], "gap"), (tenants[1], "queued"), [50, 50], 2),
        ("long + spin", (tenants[0], "long"), (tenants[1], "spin"), [50, 50], 2),
        ("streams + spin", (tenants[0], "streams"), (tenants[1], "spin"), [50, 50], 2),
        ("copy + spin", (tenants[0], "copy"), (tenants[1], "spin"), [50, 50], 2),
        ("queued + tiny", (tenants[0], "queued"), (tenants[1], "tiny"), [50, 50], 5),
        ("gemm + train", (torches[0], "gemm"), (torches[1], "train"), [70, 30], 5),
    ]
    for name, one, two, limits, points in pairs:
        full = [together((*who, 100), warmup=0.2, window=1.0 * QUICK)[0]["rate"] for who in (one, two)]
        got = together((*one, limits[0]), (*two, limits[1]))
        shares = [g["rate"] / f * 100 for g, f in zip(got, full, strict=True)]
        row(name, asked(limits), shown(shares), f"{points} points", near(shares, limits, points))
    full_streams = together((tenants[0], "streams", 100), window=1.0 * QUICK)[0]["rate"]
    for limit in (25, 50):
        share = together((tenants[0], "streams", limit))[0]["rate"] / full_streams * 100
        row("two streams", str(limit), f"{share:.1f}", "1 point", near([share], [limit], 1))
    full_spin = together((tenants[0], "spin", 100), window=1.0 * QUICK)[0]["rate"]
    shares = [g["rate"] / full_spin * 100 for g in together((tenants[0], "spin", 50), (twin, "spin", 50))]
    row("two processes of one container", "50", shown(shares), "1 point together", near([sum(shares)], [50], 1))
    got = together((tenants[0], "spin", 50), (twin, "spin", 50), (tenants[1], "spin", 50))
    shares = [g["rate"] / full_spin * 100 for g in got]
    together_share = shares[0] + shares[1]
    row(
        "the same beside another container",
        "50+50",
        shown(shares),
        "2 points",
        near([together_share, shares[2]], [50, 50], 2),
    )


def latency(tenants: list[Tenant], torches: list[Tenant]) -> None:
    for limit, goal in ((50, 5.0), (100, 0.0)):
        got = together((torches[0], "gemm", limit), (tenants[0], "request", 50), window=5.0 * QUICK)[1]
        text = f"p50 {got['p50_ms']:.2f}  p99 {got['p99_ms']:.2f}  max {got['max_ms']:.1f} ms"
        row(
            "1 ms every 20 ms beside gemm",
            asked([limit]),
            text,
            "p99 5 ms" if goal else "",
            got["p99_ms"] <= goal if goal else None,
        )
    got = together((tenants[0], "request", 50), window=2.0 * QUICK)[0]
    row("the same alone at 50", "", f"p50 {got['p50_ms']:.2f}  p99 {got['p99_ms']:.2f} ms", "", None)


def failures(folder: Path, tenants: list[Tenant]) -> None:
    full = together((tenants[0], "spin", 100), window=1.0 * QUICK)[0]["rate"]
    normal = together((tenants[0], "spin", 50), (tenants[1], "spin", 50), window=1.5)
    row("longest pause of spin at 50+50", "", f"{max(g['longest_ms'] for g in normal):.1f} ms", "", None)
    for tenant in tenants[:2]:
        tenant.set(50)
    start = time.monotonic() + SETTLE
    for tenant in tenants[:2]:
        tenant.say(f"run spin 0.5 3.0 {start}")
    time.sleep(SETTLE + 1.0)
    tenants[1].process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    tenants[1].process.send_signal(signal.SIGCONT)
    other, stopped = tenants[0].hear(), tenants[1].hear()
    text = f"{other['rate'] / full * 100:.1f}, longest pause {other['longest_ms']:.1f} ms"
    row("SIGSTOP of the neighbour for 1 s", "50+50", text, "60 ms", other["longest_ms"] <= 60)
    row(
        "the one that was stopped",
        "50",
        f"{stopped['rate'] / full * 100:.1f} in 3 s, of which 1 s stopped",
        "30 or more",
        stopped["rate"] / full >= 0.29,
    )
    longest = 0.0
    for number in range(4):
        victim = Tenant(folder, f"victim{number}").ready()
        for tenant in (tenants[0], victim):
            tenant.set(50)
        start = time.monotonic() + SETTLE
        for tenant in (tenants[0], victim):
            tenant.say(f"run spin 0.2 1.5 {start}")
        time.sleep(SETTLE + 0.6 + number * 0.007)
        victim.process.kill()
        victim.process.wait()
        got = tenants[0].hear()
        longest = max(longest, got["longest_ms"])
    row("SIGKILL of the neighbour, 4 times", "50+50", f"longest pause {longest:.1f} ms", "60 ms", longest <= 60)
    after = together((tenants[0], "spin", 50), (tenants[1], "spin", 50), window=1.5)
    shares = [g["rate"] / full * 100 for g in after]
    row("the next pair", "50+50", shown(shares), "2 points", near(shares, [50, 50], 2, 97))
    meeting = Path(tempfile.mkdtemp(dir="/dev/shm")) / "meeting"  # pages of other files cannot be pinned
    for tenant in tenants[:3]:
        tenant.set(30)
    start = time.monotonic() + SETTLE
    tenants[2].say(f"run spin 0.3 5.0 {start}")
    time.sleep(SETTLE + 0.5)
    tenants[0].say(f"meet {meeting} 0")
    tenants[1].say(f"meet {meeting} 1")
    met = [tenants[0].hear()["met_after_ms"], tenants[1].hear()["met_after_ms"]]
    third = tenants[2].hear()
    other = f"third {third['rate'] / full * 100:.1f}, pause {third['longest_ms']:.0f} ms"
    text = f"met after {met[0]:.0f} and {met[1]:.0f} ms; {other}"
    row("two kernels that wait for each other", "30+30+30", text, "all go on", third["rate"] / full > 0.1)


def overhead(bare: Tenant, covered: Tenant, bare_torch: Tenant, covered_torch: Tenant) -> None:
    for limit, goal in ((100, 2.0), (50, 5.0)):
        plain, ours = [], []
        for _ in range(10):
            for tenant, costs in ((bare, plain), (covered, ours)):
                costs.append(together((tenant, "cost", limit if tenant is covered else 100), window=0.3)[0]["mean_ns"])
        ratios = sorted(b / a for a, b in zip(plain, ours, strict=True))
        more = (ratios[4] + ratios[5]) / 2 * 100 - 100
        text = (
            f"{sum(plain) / 10:.0f} -> {sum(ours) / 10:.0f} ns, median {more:+.1f} % ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        )
        row("empty launch against no library", str(limit), text, f"{goal:.0f} %", more <= goal)
    for work in ("gemm", "train"):
        plain, ours = [], []
        for _ in range(6):
            for tenant, rates in ((bare_torch, plain), (covered_torch, ours)):
                rates.append(together((tenant, work, 100), warmup=0.2, window=0.8)[0]["rate"])
        ratios = sorted(a / b for a, b in zip(plain, ours, strict=True))
        more = (ratios[2] + ratios[3]) / 2 * 100 - 100
        row(
            f"{work} against no library",
            "none",
            f"median {more:+.1f} % ({ratios[0]:.2f}-{ratios[-1]:.2f})",
            "1 %",
            more <= 1,
        )


def main() -> None:
    sections = sys.argv[1:] or ["bound", "mixed", "latency", "failures", "overhead", "host"]
    folder = Path(tempfile.mkdtemp(prefix="subak-shares-"))
    wants_torch = set(sections) - {"failures"}
    torches = [Tenant(folder, f"torch{i}", "torch_tenant.py") for i in range(4)] if wants_torch else []
    bare_torch = Tenant(folder, "bare-torch", "torch_tenant.py", library=False)
    tenants = [Tenant(folder, f"tenant{i}") for i in range(4)]
    bare = Tenant(folder, "bare", library=False)
    twin = Tenant(folder, "twin", join="tenant0")
    everybody = [*torches, *tenants, twin, bare, bare_torch]
    for tenant in everybody:
        tenant.ready()
    print(f"{time.monotonic() - began:.0f} s until all tenants were ready", flush=True)
    bound_works = os.environ.get("SUBAK_SHARES_BOUND", "spin queued gemm short graph").split()
    host_works = os.environ.get("SUBAK_SHARES_HOST", "tiny train").split()
    rounds = int(os.environ.get("SUBAK_SHARES_ROUNDS", "10"))
    work: dict[str, Callable[[], None]] = {
        "bound": lambda: bound(tenants, torches, bound_works),
        "mixed": lambda: mixed(tenants, torches, twin),
        "latency": lambda: latency(tenants, torches),
        "failures": lambda: failures(folder, tenants),
        "overhead": lambda: overhead(bare, tenants[0], bare_torch, torches[0]),
        "host": lambda: host(tenants, torches, host_works, rounds),
    }
    for section in sections:
        try:
            work[section]()
        except RuntimeError as error:  # what was measured before is still worth printing
            row(section, "", f"broke off: {error}", "", False)
    out = os.environ.get("OUT")
    if out:
        Path(out, "shares.json").write_text(json.dumps(results, indent=1))
    for tenant in everybody:
        tenant.stop()


if __name__ == "__main__":
    main()
