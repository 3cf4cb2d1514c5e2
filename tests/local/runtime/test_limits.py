"""Limits of memory and of processes, with the cgroups of this machine if there are any."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from subak.local.runtime import cgroups, namespaces, sealed
from subak.local.runtime.cgroups import Cgroup, Cgroups
from subak.local.runtime.launcher import ids
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec, StartError
from tests.local.runtime.containers import PATIENCE, execute, printed, run, running, shell, until

MIB = 1 << 20

EAT = "import sys; data = bytearray(int(sys.argv[1])); print(len(data))"
FORK = """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except BlockingIOError:
    print("refused at", made, flush=True)
else:
    print("never refused", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def trees() -> list[Path]:
    """The directories of cgroups below which ours are made; the reason if there are none."""
    found = Cgroups()
    if found.obstacle:
        pytest.skip(f"no cgroups can be made here: {found.obstacle}")
    found.close()
    return [place.directory for place in cgroups.places(Path("/proc"))]


@pytest.fixture
def made(trees: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[Cgroup]:
    """The cgroups that the test's own runtimes have made; other runs have theirs in the same trees."""
    found: list[Cgroup] = []

    class Recorded(Cgroups):
        def make(self, memory: int) -> Cgroup | None:
            cgroup = super().make(memory)
            if cgroup is not None:
                found.append(cgroup)
            return cgroup

    monkeypatch.setattr(namespaces, "Cgroups", Recorded)
    return found


def directories(made: list[Cgroup]) -> list[Path]:
    return [directory for each in made for directory in each.directories]


async def eat(runtime: Namespaces, size: int, memory: int) -> tuple[int, bool, str]:
    with tempfile.TemporaryDirectory() as directory:
        spec = Spec("a", [sys.executable, "-c", EAT, str(size)], memory=memory, log=Path(directory, "log"))
        container = await runtime.start(spec)
        code = await asyncio.wait_for(container.wait(), PATIENCE)
        return code, container.out_of_memory, printed(Path(directory, "log"), "stdout")


async def test_a_container_that_uses_more_than_its_memory_is_killed(trees: list[Path], runtime: Namespaces) -> None:
    assert await eat(runtime, 128 * MIB, memory=64 * MIB) == (137, True, "")
    assert await eat(runtime, 128 * MIB, memory=256 * MIB) == (0, False, f"{128 * MIB}\n")
    assert await eat(runtime, 128 * MIB, memory=0) == (0, False, f"{128 * MIB}\n")
    assert await eat(runtime, MIB, memory=10**30) == (0, False, f"{MIB}\n")


async def test_files_in_memory_count(trees: list[Path], runtime: Namespaces) -> None:
    container = await runtime.start(shell("head -c 128M /dev/zero >/tmp/file; exit 7", memory=64 * MIB))
    await asyncio.wait_for(container.wait(), PATIENCE)
    assert container.out_of_memory


async def test_a_further_program_counts_to_the_container(trees: list[Path], runtime: Namespaces) -> None:
    async with running(runtime, memory=64 * MIB) as container:
        outcome = await execute(container, f"{shlex.join([sys.executable, '-c', EAT, str(128 * MIB)])}; echo $?")
        assert outcome.stdout.splitlines()[-1:] in (["137"], []), outcome


@pytest.mark.parametrize("limited_by", ["cgroups", "the user namespace"])
async def test_a_fork_bomb_ends_at_the_limit_and_the_container_can_be_stopped(
    able: None, limited_by: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cgroups, "PROCESSES", 60)
    monkeypatch.setattr(namespaces, "PROCESSES", 60)
    if limited_by == "cgroups":
        request.getfixturevalue("trees")
    else:
        if os.geteuid() == 0 and not ids.shifted():
            pytest.skip("the kernel counts no processes of the machine's root")
        monkeypatch.setattr(Cgroups, "obstacle", "none are wanted")
    runtime = Namespaces()
    try:
        container = await runtime.start(Spec("a", [sys.executable, "-c", FORK], log=tmp_path / "log"))
        await until(lambda: printed(tmp_path / "log", "stdout"))
        word, _, number = printed(tmp_path / "log", "stdout").rpartition(" ")
        assert word == "refused at", printed(tmp_path / "log", "stdout")
        assert 50 <= int(number) <= 60
        if limited_by == "cgroups":
            with pytest.raises(StartError, match="cannot enter the container: Resource temporarily unavailable"):
                await container.execute(["true"], {}, stdin=False, tty=False)
        async with running(runtime) as neighbour:
            assert (await execute(neighbour, "echo well | cat")).stdout == "well\n"
        await container.stop(0)
    finally:
        await runtime.close()


async def test_the_user_is_told_what_is_not_limited(able: None) -> None:
    runtime = Namespaces()
    other = Cgroups()
    problem = other.obstacle
    other.close()
    expected = f"memory limits of containers are not enforced, since no cgroups can be made ({problem})"
    assert [note for note in runtime.notes() if "memory" in note] == ([expected] if problem else [])
    await runtime.close()


async def test_a_container_that_cannot_be_launched_leaves_nothing(
    made: list[Cgroup], able: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise StartError("no")

    runtime = Namespaces()
    monkeypatch.setattr(sealed, "interpreter", refuse)
    with pytest.raises(StartError, match="no"):
        await runtime.start(Spec("a", ["true"], memory=64 * MIB))
    assert len(made) == 1
    assert [each for each in directories(made) if each.exists()] == []
    await runtime.close()


async def test_nothing_is_left_of_a_container_that_has_ended(made: list[Cgroup], able: None) -> None:
    runtime = Namespaces()
    try:
        await run(runtime, "true", memory=64 * MIB)
        with pytest.raises(StartError, match="not found"):
            await runtime.start(Spec("a", ["no-such-program"], memory=64 * MIB))
        assert len(made) == 2
        assert [each for each in directories(made) if each.exists()] == []
        assert [each for each in directories(made) if not each.parent.exists()] == []
    finally:
        await runtime.close()
    assert [each for each in directories(made) if each.parent.exists()] == []


def test_the_next_run_removes_what_a_killed_one_has_left(trees: list[Path]) -> None:
    """A run that lives keeps its own; the lock of a dead one is free."""
    alive = Cgroups()
    kept = alive.make(MIB)
    assert kept is not None
    abandoned = [tree / f"subak-{uuid.uuid4()}" for tree in trees]
    for each in abandoned:
        (each / "7").mkdir(parents=True)
    other = Cgroups()
    assert other.obstacle == ""
    assert [each for each in abandoned if each.exists()] == []
    assert [each for each in kept.directories if not each.exists()] == []
    other.close()
    alive.close()
    assert [each for each in kept.directories if each.parent.exists()] == []
