"""The monitor and the real library, on the simulated driver: who must wait launches nothing, and reports are true."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from subak.dialects import isolation
from subak.model.device import Device
from subak.model.manifest import Container, EnvVar, Metadata, Pod, PodSpec
from subak.model.placement import Share
from subak.node import feedback, regions, usage
from subak.node.monitor import state
from subak.node.monitor.monitor import Moment, look, take_back
from subak.node.monitor.words import Word, Work
from subak.node.tenant import Held
from subak.node.tenant import Tenant as Watched
from tests.support.card import MEMORY_MIB, MIB, OUT_OF_MEMORY, TAKEN, UUID, Card, Tenant

PROGRAM = """
import ctypes, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
handle = ctypes.c_void_p
context, module, function = handle(), handle(), handle()
for began in (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)):
    assert not began, began
assert not cuda.cuModuleLoadData(ctypes.byref(module), b"")
assert not cuda.cuModuleGetFunction(ctypes.byref(function), module, b"kernel_500")
at_work, launched = threading.Event(), 0

def work():
    global launched
    cuda.cuCtxSetCurrent(context)
    while at_work.wait():
        assert not cuda.cuLaunchKernel(function, *[1] * 6, 0, handle(), handle(), handle())
        launched += 1
        time.sleep(0.005)

threading.Thread(target=work, daemon=True).start()
for line in sys.stdin:
    word, *rest = line.split()
    if word == "take":
        print(cuda.cuMemAlloc_v2(ctypes.byref(handle()), ctypes.c_size_t(int(rest[0]) << 20)), flush=True)
    if word in ("work", "rest"):
        at_work.set() if word == "work" else at_work.clear()
        print(word, flush=True)
    if word == "count":
        print(launched, flush=True)
"""
"""Launches a small kernel again and again while it is told to `work`, and prints how many for `count`."""

CARD = Device(UUID, 0, "nvidia", memory_bytes=MEMORY_MIB * MIB)


@dataclass
class Node:
    """A node with one card, whose monitor looks when a test says so."""

    folder: Path
    env: dict[str, str]

    def start(self, name: str, *, position: int = 0, region: str = "", **variables: str) -> tuple[Watched, Tenant]:
        """A container with 30 percent of the card's time and a GiB, held as the agent holds it, with a program."""
        env = [EnvVar(name=key, value=value) for key, value in variables.items()]
        container = Container(name="c", env=env)
        pod = Pod(metadata=Metadata(name=name, uid=name), spec=PodSpec(containers=[container] * (position + 1)))
        share = Share(UUID, 0, 1024 * MIB, 30)
        injection = isolation.limits(pod, position, [share])
        limits, _ = isolation.guard(pod, position, injection)
        places = {
            isolation.REGION: self.folder / (region or f"{name}.cache"),
            isolation.TURNS: self.folder,
            isolation.STATE_BY_NAME: self.folder / f"{name}.state",
        }
        lines = dict(line.split("=", 1) for line in limits.content.splitlines()) | {
            key: str(path) for key, path in places.items()
        }
        (self.folder / f"{name}.limits").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        places[isolation.STATE_BY_NAME].write_bytes(state.EMPTY)
        watched = Watched(
            pod,
            {position: "c"},
            (Held(0, CARD, share),),
            places[isolation.REGION],
            (places[isolation.STATE_BY_NAME],),
            isolation.policy(container, injection.env),
            isolation.priority(container, injection.env),
        )
        environment = self.env | {isolation.LIMITS_BY_NAME: str(self.folder / f"{name}.limits")}
        program = [sys.executable, "-c", PROGRAM]
        running = subprocess.Popen(program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return watched, Tenant(running)


@pytest.fixture
def node(card: Card, libsubak: Path, tmp_path: Path) -> Node:
    return Node(tmp_path, os.environ | card.env | {"LD_PRELOAD": str(libsubak)})


def until(true: Callable[[], bool], rounds: Callable[[], object] = lambda: None) -> None:
    """Let the monitor look until it is true; that must be within a minute."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        rounds()


def goes_on(program: Tenant) -> bool:
    """Whether it launches within the time of a few looks of its library."""
    before, deadline = int(program.ask("count")), time.monotonic() + 1
    while time.monotonic() < deadline:
        if int(program.ask("count")) > before:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.long
def test_who_is_less_important_waits_while_the_other_works_and_not_for_a_dead_agent(node: Node) -> None:
    high, important = node.start("high", CUDA_TASK_PRIORITY="0")
    low, other = node.start("low")

    def rounds() -> None:
        look([high, low], Moment.now())

    assert other.ask("work") == "work\n"
    until(lambda: state.read(low.states[0], time.monotonic_ns()).get(0) == Word.LIFTED, rounds)
    until(lambda: goes_on(other), rounds)
    assert important.ask("work") == "work\n"
    until(lambda: state.read(low.states[0], time.monotonic_ns()).get(0) == Word.BLOCKED, rounds)
    until(lambda: not goes_on(other), rounds)
    until(lambda: goes_on(important), rounds)
    assert important.ask("rest") == "rest\n"
    until(lambda: goes_on(other), rounds)
    assert important.ask("work") == "work\n"
    until(lambda: not goes_on(other), rounds)
    until(lambda: goes_on(other))  # nobody looks any more: the agent was killed
    for program in (important, other):
        program.process.kill()
        program.process.wait()


@pytest.mark.long
def test_what_programs_report_is_what_they_do(node: Node) -> None:
    watched, program = node.start("one")
    assert program.ask("take 300") == TAKEN
    (seen,) = look([watched], Moment.now())
    assert seen.work == {UUID: Work.NONE}
    assert program.ask("work") == "work\n"
    until(lambda: look([watched], Moment.now())[0].work == {UUID: Work.SOME})
    take_back([watched])  # so that its share holds, and time is charged

    def charged() -> int:
        glance = look_at(watched)
        return glance.charged_ns[UUID]

    until(lambda: charged() > 0)
    assert watched.region is not None
    use = usage.read(watched.region, time.monotonic_ns())[UUID]
    assert 300 * MIB <= use.memory_bytes <= 1024 * MIB
    assert program.ask("rest") == "rest\n"
    until(lambda: look([watched], Moment.now())[0].work == {UUID: Work.NONE})
    program.process.kill()
    program.process.wait()


def look_at(watched: Watched) -> feedback.Glance:
    assert watched.region is not None
    return feedback.glance(watched.region)


def test_containers_that_count_together_never_get_more_than_the_pod_and_are_told_apart(node: Node) -> None:
    _, first = node.start("a", position=0, region="pod.cache")
    watched, second = node.start("b", position=1, region="pod.cache")
    assert first.ask("take 500") == TAKEN
    assert second.ask("take 400") == OUT_OF_MEMORY, "the contexts of both take 200 MiB"
    assert second.ask("take 100") == TAKEN
    assert watched.region is not None
    region = regions.read(watched.region, time.monotonic_ns())
    uses = usage.by_container(region, [0, 1])
    assert uses[0][UUID].memory_bytes >= 600 * MIB
    assert 200 * MIB <= uses[1][UUID].memory_bytes < 300 * MIB
    first.process.kill()
    first.process.wait()
    feedback.silence(watched.region, 0)
    assert second.ask("take 600") == TAKEN, "what the ended container held is free at once"
    assert usage.by_container(regions.read(watched.region, time.monotonic_ns()), [0, 1])[0][UUID].memory_bytes == 0
    second.process.kill()
    second.process.wait()
