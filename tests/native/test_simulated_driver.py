"""The simulated driver itself: nvidia-smi, memory that all processes share, and which cards a program sees.

In the long run its programs are those with an address sanitizer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.hardware import driver
from tests.support import fuzz
from tests.support.machines import machine
from tests.support.native import ABLE, build, reach

VARIANT = "asan" if fuzz.long() else "plain"
PATIENCE = 60.0
CONTEXT_MIB = 100
NO_DRIVER, WRONG, NOT_FOUND = 9, 2, 6

pytestmark = pytest.mark.skipif(not ABLE, reason="gcc and make build the driver")

P40 = machine("koordinator")
ONE, OTHER = (each.id for each in P40.devices)


@dataclass(frozen=True)
class Node:
    """A folder as the node's agent makes it, and the driver that reads it."""

    programs: Path
    folder: Path

    def env(self, **more: str) -> dict[str, str]:
        """What a program needs to find the driver and the cards."""
        own = {"LD_LIBRARY_PATH": str(self.programs), "SUBAK_SIMULATED": str(self.folder), "PATH": os.environ["PATH"]}
        return own | {"ASAN_OPTIONS": "detect_leaks=0"} | more

    def describe(self, text: str | bytes) -> None:
        """Let the node have these cards."""
        (self.folder / driver.DESCRIPTION).write_bytes(text.encode() if isinstance(text, str) else text)

    def smi(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run nvidia-smi."""
        command = [str(self.programs / "nvidia-smi"), *arguments]
        return subprocess.run(command, env=self.env(**env), capture_output=True, text=True)

    def query(self, fields: str, **env: str) -> list[list[str]]:
        """The rows of a query without header and units."""
        ran = self.smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits", **env)
        assert (ran.returncode, ran.stderr) == (0, "")
        return [line.split(", ") for line in ran.stdout.splitlines()]

    def allocate(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a program that takes memory."""
        command = [str(self.programs / "subak-allocate"), *arguments]
        return subprocess.Popen(command, env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @contextmanager
    def holding(self, size: str) -> Iterator[subprocess.Popen[str]]:
        """A program that has taken so much and keeps it."""
        holder = self.allocate(size, "1000")
        try:
            assert holder.stdout is not None
            assert " given, " in holder.stdout.readline()
            yield holder
        finally:
            holder.kill()
            holder.communicate()

    def until_used(self, mib: int) -> None:
        """Wait until so much of the first card is in use."""
        deadline = time.monotonic() + PATIENCE
        while (used := self.query("memory.used")[0][0]) != str(mib):
            assert time.monotonic() < deadline, f"{used} MiB are in use, and not {mib}"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's libraries and programs."""
    if missing := build(VARIANT):
        pytest.skip(missing)
    return reach(VARIANT, tmp_path_factory.mktemp("built")) / "simulated"


@pytest.fixture
def node(programs: Path, tmp_path: Path) -> Node:
    """A node with two Tesla P40."""
    made = Node(programs, tmp_path)
    made.describe(driver.description(P40))
    return made


# nvidia-smi


def test_the_table_has_the_layout_that_people_know_and_says_that_it_is_simulated(node: Node) -> None:
    ran = node.smi()
    assert (ran.returncode, ran.stderr) == (0, "")
    _, *lines = ran.stdout.splitlines()
    assert {len(line) for line in lines} == {91, 0}
    assert lines[1] == ("| NVIDIA-SMI simulated by Subak   Driver Version: 580.00-simulated     CUDA Version: 13.0 |")
    assert lines[7].startswith("|   0  Tesla P40 (simulated)         Off  |   00000000:10:00.0 Off |")
    assert lines[8] == "| N/A   N/A   N/A             N/A /  N/A  |       0MiB /  23040MiB |      0%      Default |"
    assert "|  No running processes found" in ran.stdout


def test_cards_are_listed_with_their_uuids(node: Node) -> None:
    assert node.smi("-L").stdout == (
        f"GPU 0: Tesla P40 (simulated) (UUID: {ONE})\nGPU 1: Tesla P40 (simulated) (UUID: {OTHER})\n"
    )


def test_a_query_is_csv_with_units_and_a_header_unless_they_are_not_wanted(node: Node) -> None:
    fields = "--query-gpu=index,memory.total,temperature.gpu"
    assert node.smi(fields, "--format=csv").stdout == (
        "index, memory.total [MiB], temperature.gpu\n0, 23040 MiB, [N/A]\n1, 23040 MiB, [N/A]\n"
    )
    assert node.smi(fields, "--format=csv,noheader,nounits", "-i", OTHER).stdout == "1, 23040, [N/A]\n"


def test_processes_are_listed_with_what_they_hold(node: Node) -> None:
    with node.holding("1Gi") as holder:
        query = node.smi("--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader")
        assert query.stdout == f"{holder.pid}, {1024 + CONTEXT_MIB} MiB, {ONE}\n"
        table = node.smi().stdout.splitlines()
    (row,) = (line for line in table if str(holder.pid) in line)
    assert row.startswith("|    0   N/A  N/A")
    assert row.endswith(f"{1024 + CONTEXT_MIB}MiB |")
    assert len(row) == 91


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["-q"], WRONG, "Invalid option: -q. This is the nvidia-smi of simulated cards; see nvidia-smi --help."),
        (["--query-gpu=index,shoes", "--format=csv"], WRONG, 'Field "shoes" is not a valid field to query.'),
        (["--query-gpu=index", "--format=xml"], WRONG, '"xml" is not a valid format'),
        (["--query-gpu=index"], WRONG, "write --format=csv"),
        (["--format=csv"], WRONG, "needs --query-gpu"),
        (["-i", "7"], NOT_FOUND, "7 is no index, UUID or bus address of a card here"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(node: Node, arguments: list[str], code: int, sentence: str) -> None:
    ran = node.smi(*arguments)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert sentence in ran.stderr


def test_without_cards_it_says_who_has_some(node: Node) -> None:
    ran = node.smi(SUBAK_SIMULATED="/nowhere")
    assert ran.returncode == NO_DRIVER
    assert "only containers that Subak gave a simulated NVIDIA card have some" in ran.stderr


# Memory


def test_all_processes_share_the_memory_of_a_card(node: Node) -> None:
    with node.holding("16Gi"):
        assert node.query("memory.used") == [[str(16384 + CONTEXT_MIB)], ["0"]]
        refused = node.allocate("7Gi")
        assert refused.communicate()[0] == ("7168 MiB refused, 6456 of 23040 MiB were free: CUDA_ERROR_OUT_OF_MEMORY\n")
        assert refused.returncode == 1
        given = node.allocate("6Gi")
        given.communicate()
        assert given.returncode == 0


def test_what_a_killed_process_held_is_free(node: Node) -> None:
    with node.holding("16Gi") as holder:
        holder.kill()
        holder.wait()
        node.until_used(0)


FORKING = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
assert not cuda.cuInit(0) and not cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)
assert not cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 30))
if os.fork():
    print("ready", flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(VARIANT != "plain", reason="Python has no sanitizer")
def test_a_child_does_not_keep_what_its_dead_parent_held(node: Node) -> None:
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, env=node.env(), stdout=subprocess.PIPE, text=True, process_group=0) as parent:
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline() == "ready\n"
            node.until_used(1024 + CONTEXT_MIB)
            parent.kill()
            parent.wait()
            node.until_used(0)
        finally:
            os.killpg(parent.pid, 9)


WORKING = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, module, function = (ctypes.c_void_p() for _ in range(3))
assert not cuda.cuInit(0) and not cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
assert not cuda.cuModuleLoadData(ctypes.byref(module), b"")
assert not cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin_50000")
while True:
    assert not cuda.cuLaunchKernel(function, *[1] * 6, 0, None, None, None)
    assert not cuda.cuCtxSynchronize()
"""


@pytest.mark.skipif(VARIANT != "plain", reason="Python has no sanitizer")
def test_work_is_seen_as_load_of_the_card(node: Node) -> None:
    with subprocess.Popen([sys.executable, "-c", WORKING], env=node.env()) as worker:
        try:
            deadline = time.monotonic() + PATIENCE
            while int(node.query("utilization.gpu")[0][0]) == 0:
                assert worker.poll() is None
                assert time.monotonic() < deadline
        finally:
            worker.kill()


# Which cards a program sees


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        ("all", [ONE, OTHER]),
        ("", []),
        ("void", []),
        ("none", []),
        ("1", [OTHER]),
        (OTHER, [OTHER]),
        (f"{OTHER},{ONE}", [ONE, OTHER]),
        ("7,GPU-unknown", []),
    ],
)
def test_a_container_sees_the_cards_that_it_was_given(node: Node, visible: str, seen: list[str]) -> None:
    listed = node.smi("-L", NVIDIA_VISIBLE_DEVICES=visible)
    assert re.findall(r"UUID: (GPU-[0-9a-f-]+)", listed.stdout) == seen
    assert listed.returncode == (0 if seen else NOT_FOUND)


# The description

NAMES = st.text("aZ9 (-_.é%", min_size=1, max_size=40).map(str.strip).filter(bool)
CARDS = st.tuples(st.uuids().map(lambda uuid: f"GPU-{uuid}"), st.integers(1, 1 << 44), NAMES)


@fuzz.examples(quick=15, ci=200)
@given(st.lists(CARDS, max_size=70))
def test_what_is_described_is_listed(
    programs: Path, tmp_path_factory: pytest.TempPathFactory, cards: list[tuple[str, int, str]]
) -> None:
    node = Node(programs, tmp_path_factory.mktemp("node"))
    lines = [f"{uuid} {n} {memory} 00000000:{n:02X}:00.0 {name}\n" for n, (uuid, memory, name) in enumerate(cards)]
    node.describe("# cards\n" + "".join(lines))
    ran = node.smi("--query-gpu=uuid,memory.total,name", "--format=csv,noheader,nounits")
    if not 0 < len(cards) <= driver.MOST_CARDS:
        assert ran.returncode == NO_DRIVER
        return
    assert ran.returncode == 0
    assert ran.stdout.splitlines() == [f"{uuid}, {memory >> 20}, {name}" for uuid, memory, name in cards]


LINE = f"{ONE} 0 24159191040 00000000:10:00.0 Tesla P40\n".encode()


@fuzz.examples(quick=40, ci=1_000)
@given(st.binary(max_size=600), st.integers(0, len(LINE)))
def test_a_damaged_description_has_no_cards(
    programs: Path, tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    """It is believed as a whole or not at all, and it crashes no program."""
    node = Node(programs, tmp_path_factory.mktemp("node"))
    node.describe(LINE + LINE[:at] + noise)
    ran = subprocess.run([programs / "nvidia-smi", "-L"], env=node.env(), capture_output=True)
    assert ran.returncode in (0, NO_DRIVER), ran.stderr
    if ran.returncode == 0:
        assert ran.stdout.startswith(f"GPU 0: Tesla P40 (UUID: {ONE})\n".encode())


# Where it runs


@pytest.mark.skipif(VARIANT != "plain", reason="a sanitizer needs more")
@pytest.mark.parametrize("name", [*driver.LIBRARIES, *driver.PROGRAMS])
def test_an_old_libc_is_enough(programs: Path, name: str) -> None:
    """As for libsubak: images may be older than the machine on which all this was built."""
    needed = set(re.findall(r"GLIBC_[A-Z0-9_.]+", (programs / name).read_bytes().decode("latin-1")))
    assert needed
    assert not {version for version in needed if not re.match(r"GLIBC_2\.(\d|1[0-7])(\.|$)", version)}


def test_the_node_makes_the_file_that_the_driver_uses(node: Node) -> None:
    node.smi()
    assert sorted(each.name for each in node.folder.iterdir()) == [driver.DESCRIPTION, driver.MACHINE]
