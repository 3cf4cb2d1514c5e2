"""Compute shares on a real GPU: what each tenant gets, relative to the same work alone and unlimited in the same run.

    python3 native/tests/gpu/shares.py [SECTION...]      (build libsubak first; needs PyTorch for gemm and train)

Sections: bound, mixed, latency, failures, launch, throughput, copies, host, mps; without any, all.  Tenants stay
alive for the whole run and are told what to do; their limits are changed the way a monitor would do it, by writing to
the container's region.  Each tenant has CPUs of its own, as containers with guaranteed CPUs have: what neighbours do to
each other on hyperthreads of one core is not the GPU's doing.
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

import table
from table import row

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("SUBAK_BUILD", HERE.parent.parent / "build")).absolute()
CORE_LIMIT = 1728  # offset of the first GPU's share in the region: HAMi's layout
COMPUTE_WORDS = 3129344
SECTIONS = ["bound", "mixed", "latency", "failures", "launch", "throughput", "copies", "host", "mps"]
QUICK = float(os.environ.get("SUBAK_SHARES_QUICK", "1"))  # below 1: shorter windows, for a look
SETTLE, WARMUP, WINDOW = 0.25, 0.5, 2.0 * QUICK


def processors(number: int) -> set[int]:
    """The CPUs of one of four tenants: whole cores."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings.read_text().strip() if siblings.exists() else str(cpu), []).append(cpu)
    whole = list(cores.values())
    mine = whole[number % 4 :: 4] if len(whole) >= 4 else whole
    return {cpu for core in mine for cpu in core}


class Tenant:
    """One container: a process (or more) with a region of its own."""

    def __init__(
        self,
        folder: Path,
        name: str,
        place: int,
        program: str = "tenant",
        *,
        library: bool = True,
        join: str = "",
        limit: str = "99",
    ) -> None:
        self.region = folder / f"{join or name}.cache"
        env = dict(os.environ)
        if library:
            env |= {
                "LD_PRELOAD": str(BUILD / "libsubak.so"),
                "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region),
                "CUDA_DEVICE_SM_LIMIT": limit,
                "SUBAK_TURNS": str(folder / "turns"),
            }
        command = [str(BUILD / "gpu-tenant")] if program == "tenant" else [sys.executable, str(HERE / program)]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(self.process.pid, processors(place))
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

    def charged(self) -> float:
        """Seconds of GPU time that the container was charged for so far."""
        if not self.region.exists():
            return 0.0
        with self.region.open("rb") as file:
            file.seek(COMPUTE_WORDS + 16)
            return float(struct.unpack("<Q", file.read(8))[0]) / 1e9

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


def together(
    *jobs: Job, settle: float = SETTLE, warmup: float = WARMUP, window: float = WINDOW
) -> list[dict[str, float]]:
    """What each said of its work in the window, and in percent of it, what it was charged for.  New limits are heard of
    within 0.2 s, before the work begins or (without `settle`) during its warm-up."""
    changed = [tenant.set(limit) for tenant, _, limit in jobs]
    time.sleep(settle if any(changed) else 0)
    start = time.monotonic() + 0.05
    for tenant, work, _ in jobs:
        tenant.say(f"run {work} {warmup} {window} {start}")
    charged = []
    for moment in (start + warmup, start + warmup + window):
        time.sleep(max(0.0, moment - time.monotonic()))
        charged.append([tenant.charged() for tenant, _, _ in jobs])
    said = [tenant.hear() for tenant, _, _ in jobs]
    return [{**each, "charged": (b - a) / window * 100} for each, a, b in zip(said, *charged, strict=True)]


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
    """GPU-bound work: every cell once, relative to the runs without limit before and after those of its kind."""
    for work in works:
        group = torches if work == "gemm" else tenants
        before = together((group[0], work, 100))[0]
        row(work, "alone, no limit", f"{before['rate']:.1f}/s", "", None)
        for cells, window in (([[10], [25], [50], [75]], 3.0 * QUICK), (PAIRS, WINDOW)):
            runs = [
                together(*[(t, work, x) for t, x in zip(group, limits, strict=False)], window=window)
                for limits in cells
            ]
            after = together((group[0], work, 100), window=1.0 * QUICK)[0]
            full = {what: (before[what] + after[what]) / 2 for what in before}
            for limits, run in zip(cells, runs, strict=True):
                bound_cell(work, limits, run, full)
            before = after


def bound_cell(work: str, limits: list[int], run: list[dict[str, float]], full: dict[str, float]) -> None:
    shares = [each["rate"] / full["rate"] * 100 for each in run]
    text = shown(shares)
    if work == "gemm" and sum(limits) < 100:  # the GPU has time to spare, so its clock rises: judged by its time
        shares = [each["busy"] / full["busy"] * 100 for each in run]
        text = f"{shown(shares)} (work {text})"
    if len(limits) == 1:
        row(work, asked(limits), text, "1 point", near(shares, limits, 1))
    else:
        row(work, asked(limits), text, "2 points, total 97", near(shares, limits, 2, 97))


def host(tenants: list[Tenant], torches: list[Tenant], works: list[str], rounds: int) -> None:
    cells = [[10], [25], [50], [75], *PAIRS]
    chosen = os.environ.get("SUBAK_SHARES_CELLS", "").split()
    for work in works:
        group = torches if work == "train" else tenants
        host_bound(group, work, [cell for cell in cells if not chosen or asked(cell) in chosen], rounds)
        rests(group[0], work, (rounds + 1) // 2)


def host_bound(group: list[Tenant], work: str, cells: list[list[int]], rounds: int, beside: int = 5) -> None:
    """Work bound by the CPU, whose speed varies by a tenth from second to second: runs with and without limits
    alternate.  A round measures every cell once, after a run without limit of each tenant in it; a share is relative to
    that run and the next one of the tenant without limit, and the mean of all rounds.  Gates open and close with a
    period of up to 200 ms, so windows begin a little later in each round: always at the same point of the period they
    would tell of that point."""
    free: list[list[float]] = [[] for _ in group]
    runs: list[tuple[int, int, int, dict[str, float]]] = []  # cell, tenant, its runs without limit before, what it said

    def run_free(who: int) -> None:
        free[who].append(together((group[who], work, 100), settle=0, warmup=0.3, window=0.35)[0]["rate"])

    for round_number in range(rounds):
        for number, cell in enumerate(cells):
            for i in range(len(cell)):
                run_free(i)
            jobs = [(tenant, work, limit) for tenant, limit in zip(group, cell, strict=False)]
            said = together(*jobs, settle=0, warmup=0.4 + 0.2 * round_number / rounds, window=0.6)
            runs += [(number, i, len(free[i]), each) for i, each in enumerate(said)]
    for i in range(max(map(len, cells), default=0)):
        run_free(i)
    for number, cell in enumerate(cells):
        shares, charged = [0.0] * len(cell), [0.0] * len(cell)
        for _, i, before, got in (run for run in runs if run[0] == number):
            shares[i] += got["rate"] / ((free[i][before - 1] + free[i][before]) / 2) * 100 / rounds
            charged[i] += got["charged"] / rounds
        points = 3 if len(cell) == 1 else beside
        text = f"{shown(shares)}; charged {'  '.join(f'{each:.1f}' for each in charged)}"
        row(f"{work}, {rounds} rounds", asked(cell), text, f"{points} points", near(shares, cell, points))


def copies(torches: list[Tenant], works: list[str], rounds: int) -> None:
    """Training that copies its next batch from the host in every step, alone and beside another of its kind.  Its steps
    take so long that a window has few of them: so there are more windows."""
    for work in works:
        host_bound(torches, work, [[60], [50, 50]], 2 * rounds, 3)


def rests(tenant: Tenant, work: str, rounds: int) -> None:
    """The control: the same program without limit that rests by itself.  What it loses against its share of the time is
    what sleeping costs on this machine, with or without anybody who limits."""
    full, resting = [], []
    for number in range(rounds):
        full.append(together((tenant, work, 100), warmup=0.1, window=0.35)[0]["rate"])
        resting.append(together((tenant, f"{work}/40/40", 100), warmup=0.25 + 0.01 * number, window=0.6)[0]["rate"])
    row(f"{work} that rests by itself", "40 of 80 ms", f"{sum(resting) / sum(full) * 100:.1f} of 50.0", "", None)


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
        # a GEMM by its GPU time: beside work that leaves the GPU cool its clock rises
        by = ["busy" if what == "gemm" else "rate" for _, what in (one, two)]
        rounds = 4 if {"tiny", "train"} & {one[1], two[1]} else 1  # bound by the CPU, whose speed varies
        full, limited = [0.0, 0.0], [0.0, 0.0]
        for _ in range(rounds):
            for i, who in enumerate((one, two)):
                full[i] += together((*who, 100), warmup=0.2, window=max(0.35, 1.0 * QUICK / rounds))[0][by[i]]
            pair = together((*one, limits[0]), (*two, limits[1]), window=max(0.6, 3.0 * QUICK / rounds))
            limited = [total + each[b] for total, each, b in zip(limited, pair, by, strict=True)]
        shares = [share / whole * 100 for share, whole in zip(limited, full, strict=True)]
        row(name, asked(limits), shown(shares), f"{points} points", near(shares, limits, points))
    full_streams = together((tenants[0], "streams", 100), window=1.0 * QUICK)[0]["rate"]
    for limit in (25, 50):
        share = together((tenants[0], "streams", limit))[0]["rate"] / full_streams * 100
        row("two streams", str(limit), f"{share:.1f}", "1 point", near([share], [limit], 1))
    full_spin = together((tenants[0], "spin", 100), window=1.0 * QUICK)[0]["rate"]
    twins = together((tenants[0], "spin", 50), (twin, "spin", 50), window=3.0 * QUICK)
    shares = [g["rate"] / full_spin * 100 for g in twins]
    row("two processes of one container", "50", shown(shares), "1 point together", near([sum(shares)], [50], 1))
    got = together((tenants[0], "spin", 50), (twin, "spin", 50), (tenants[1], "spin", 50), window=3.0 * QUICK)
    shares = [g["rate"] / full_spin * 100 for g in got]
    good = near([shares[0] + shares[1], shares[2]], [50, 50], 2) and near(shares[:2], [25, 25], 5)
    row("the same beside another container", "50+50", shown(shares), "2 points, halves within 5", good)


def latency(tenants: list[Tenant], torches: list[Tenant]) -> None:
    for limit, goal in ((50, 5.0), (100, 0.0)):
        got = together((torches[0], "gemm", limit), (tenants[1], "request", 50), window=6.0 * QUICK)[1]
        text = f"p50 {got['p50_ms']:.2f}  p99 {got['p99_ms']:.2f}  max {got['max_ms']:.1f} ms"
        row(
            "1 ms every 20 ms beside gemm",
            asked([limit]),
            text,
            "p99 5 ms" if goal else "",
            got["p99_ms"] <= goal if goal else None,
        )
    got = together((tenants[1], "request", 50), window=2.0 * QUICK)[0]
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
        victim = Tenant(folder, f"victim{number}", 1).ready()
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
    text = f"met after {met[0]:.0f} and {met[1]:.0f} ms; third {third['rate'] / full * 100:.1f}, "
    text += f"pause {third['longest_ms']:.0f} ms"
    row("two kernels that wait for each other", "30+30+30", text, "all go on", third["rate"] / full > 0.2)
    after = together(*[(tenant, "spin", 30) for tenant in tenants[:3]], window=1.5)
    shares = [g["rate"] / full * 100 for g in after]
    row("afterwards", "30+30+30", shown(shares), "2 points", near(shares, [30, 30, 30], 2))


def median(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def launch(bare: Tenant, covered: Tenant) -> None:
    """A launch is measured in one process, through the library and past it in turn: launches of two processes differ by
    more than the library costs.  A process without the library is the control."""
    for tenant, limit, goal in ((bare, 100, 0.0), (covered, 100, 2.0), (covered, 50, 5.0)):
        got = [together((tenant, "cost", limit), window=1.0)[0] for _ in range(3)]
        plain, added = median([g["past_ns"] for g in got]), median([g["added_ns"] for g in got])
        text = f"{plain:.0f} ns without, {added:+.0f} ns with: {added / plain * 100:+.1f} %"
        name = "empty launch" if tenant is covered else "empty launch, control without library"
        row(name, asked([limit]), text, f"{goal:.0f} %" if goal else "", added / plain * 100 <= goal if goal else None)


def throughput(bare_torches: list[Tenant], covered_torches: list[Tenant]) -> None:
    for work, pairs in (("gemm", 4), ("train", 10)):
        plain_sum = ours_sum = 0.0
        ratios = []
        for _ in range(pairs):
            plain, ours = (
                sum(together((tenant, work, 100), warmup=0.1, window=0.4)[0]["rate"] for tenant in group)
                for group in (bare_torches, covered_torches)
            )
            ratios.append(plain / ours)
            plain_sum, ours_sum = plain_sum + plain, ours_sum + ours
        more = plain_sum / ours_sum * 100 - 100
        text = f"{more:+.1f} % over {pairs} pairs of runs (single pairs {min(ratios):.2f} to {max(ratios):.2f})"
        row(f"{work} against no library", "none", text, "1 %", more <= 1)


def mps(folder: Path) -> None:
    """Under MPS the share is MPS's to hold: the same as asking MPS directly, and the memory limit holds as well."""
    pipe = folder / "mps"
    pipe.mkdir()
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(pipe)}
    try:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **env}, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        row("MPS", "", f"does not run here: {error}"[:80], "", None)
        return
    try:
        os.environ.update(env)
        full = run_gemm(folder, "mps-full", "100")
        ours = run_gemm(folder, "mps-limited", "50")
        row(
            "gemm under MPS",
            "50",
            f"{ours / full * 100:.1f} (MPS counts multiprocessors, not time)",
            "70 or less",
            ours / full <= 0.7,
        )
    finally:
        for name in env:
            del os.environ[name]
        quit_mps = {"input": "quit\n", "text": True, "timeout": 20}
        subprocess.run(["nvidia-cuda-mps-control"], env={**os.environ, **env}, check=False, **quit_mps)  # type: ignore[call-overload]


def run_gemm(folder: Path, name: str, limit: str) -> float:
    tenant = Tenant(folder, name, 0, "torch_tenant.py", limit=limit).ready()
    rate = together((tenant, "gemm", int(limit)), window=1.0)[0]["rate"]
    tenant.stop()
    return rate


def main() -> None:
    sections = sys.argv[1:] or SECTIONS
    folder = Path(tempfile.mkdtemp(prefix="subak-shares-"))
    torch_tenants = range(4) if set(sections) - {"failures", "launch", "mps"} else ()
    torches = [Tenant(folder, f"torch{i}", i, "torch_tenant.py") for i in torch_tenants]
    bare_torches = [
        Tenant(folder, f"bare-torch{i}", i, "torch_tenant.py", library=False)
        for i in range(2)
        if "throughput" in sections
    ]
    tenants = [Tenant(folder, f"tenant{i}", i) for i in range(4)]
    bare = Tenant(folder, "bare", 0, library=False)
    twin = Tenant(folder, "twin", 2, join="tenant0")
    everybody = [*torches, *bare_torches, *tenants, twin, bare]
    for tenant in everybody:
        tenant.ready()
    bound_works = os.environ.get("SUBAK_SHARES_BOUND", "spin queued gemm short graph").split()
    host_works = os.environ.get("SUBAK_SHARES_HOST", "tiny train").split()
    copying_works = os.environ.get("SUBAK_SHARES_COPIES", "feed load haul").split()
    rounds = int(os.environ.get("SUBAK_SHARES_ROUNDS", "10"))
    work: dict[str, Callable[[], None]] = {
        "bound": lambda: bound(tenants, torches, bound_works),
        "mixed": lambda: mixed(tenants, torches, twin),
        "latency": lambda: latency(tenants, torches),
        "failures": lambda: failures(folder, tenants),
        "launch": lambda: launch(bare, tenants[0]),
        "throughput": lambda: throughput(bare_torches, torches[:2]),
        "copies": lambda: copies(torches, copying_works, rounds),
        "host": lambda: host(tenants, torches, host_works, rounds),
        "mps": lambda: mps(folder),
    }
    for section in sections:
        if section == "mps":  # its daemon wants the card for itself
            for tenant in everybody:
                tenant.stop()
            everybody = []
        try:
            work[section]()
        except RuntimeError as error:  # what was measured before is still worth printing
            row(section, "", f"broke off: {error}", "", False)
    for tenant in everybody:
        tenant.stop()
    sys.exit(1 if table.missed else 0)


if __name__ == "__main__":
    main()
