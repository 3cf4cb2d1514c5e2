"""A PyTorch tenant with the same orders as tenant.c: `run WORK[/ON/OFF] WARMUP SECONDS START`, JSON in answer.

gemm: 8192^3 in bf16, four in flight. Its GPU time is also measured, by events around each kernel, because an H200's
clock rises when it is not fully loaded and work alone would then overstate the share.
train: forward, backward and AdamW of a small transformer, bound by the CPU that launches it.
feed: the same with 2 MiB copied from pinned host memory before each step, without waiting for it.
load: the same with 4 MiB copied from pageable host memory, for which the program waits. haul: with 32 MiB.
"""

import json
import sys
import time

import torch


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


class Gemm:
    def __init__(self) -> None:
        self.a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(4)]
        self.kernel_ms: list[float] = []
        self.number = 0

    def step(self) -> None:
        begin, end = self.events[self.number % 4]
        if self.number >= 4:
            end.synchronize()
            self.kernel_ms.append(begin.elapsed_time(end))
        begin.record()
        torch.mm(self.a, self.b, out=self.out)
        end.record()
        self.number += 1

    def busy(self, done: int, seconds: float) -> float:
        """GPU time as a share of the wall time; a kernel that was held at the gate says nothing of its length."""
        times = sorted(self.kernel_ms[-done:]) if done else []
        median = times[len(times) // 2] if times else 0.0
        kept = [t for t in times if t < 1.25 * median]
        return sum(kept) / len(kept) * done / 1e3 / seconds if kept else 0.0


class Train:
    def __init__(self) -> None:
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
        self.model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
        self.x = torch.randn(16, 64, 256, device="cuda")
        self.y = torch.randn(16, 64, 256, device="cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.number = 0

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        self.number += 1
        if self.number % 10 == 0:
            loss.item()

    def busy(self, done: int, seconds: float) -> float:
        return 0.0


class Feed(Train):
    def __init__(self) -> None:
        super().__init__()
        self.batch = [torch.randn(16, 64, 256).pin_memory() for _ in range(2)]

    def step(self) -> None:
        self.x.copy_(self.batch[0], non_blocking=True)
        self.y.copy_(self.batch[1], non_blocking=True)
        super().step()


class Load(Train):
    def __init__(self, mebibytes: int) -> None:
        super().__init__()
        self.images = torch.randn(mebibytes * 16, 64, 256)

    def step(self) -> None:
        self.x = self.images.cuda()[:16]
        super().step()


def run(work: Gemm | Train, warmup: float, seconds: float, start: float, on: float, off: float) -> None:
    while time.monotonic() < start:
        time.sleep(0.0002)
    begin, end = start + warmup, start + warmup + seconds
    done, longest, last = 0, 0.0, 0.0
    awake = time.monotonic()
    while (t := time.monotonic()) < end:
        if off and t - awake >= on:
            torch.cuda.synchronize()
            time.sleep(off)
            awake = time.monotonic()
        work.step()
        t = time.monotonic()
        if begin <= t < end:
            done += 1
            longest = max(longest, t - last) if last else longest
        last = t if t >= begin else 0.0
    torch.cuda.synchronize()
    say(work=done, rate=done / seconds, longest_ms=longest * 1e3, busy=work.busy(done, seconds))


def capture() -> None:
    """A graph captured and replayed under the limit gives what the same work gives without a graph."""
    x = torch.randn(256, 256, device="cuda")
    for _ in range(3):
        wanted = torch.relu(x @ x) @ x
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = torch.relu(x @ x) @ x
    for _ in range(200):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got, wanted), "a graph's result differs"


def main() -> None:
    works = {"gemm": Gemm(), "train": Train(), "feed": Feed(), "load": Load(4), "haul": Load(32)}
    for work in [*works.values()] * 3:
        work.step()
    capture()
    torch.cuda.synchronize()
    say(ready=True)
    for line in sys.stdin:
        _, what, warmup, seconds, start = line.split()
        what, *rest = what.split("/")
        on, off = (float(milliseconds) / 1e3 for milliseconds in rest or (0, 0))
        run(works[what], float(warmup), float(seconds), float(start), on, off)


main()
