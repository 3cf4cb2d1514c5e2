"""Which ids of the machine containers have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.runtime.launcher import ids
from subak.local.runtime.namespaces import Namespaces
from tests.local.runtime.containers import run, running

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has only the one id")

BOUND = 1 << 28


@given(
    st.lists(st.integers(0, 2**31 - 1), max_size=40),
    st.one_of(st.integers(1024, 1 << 17), st.just(BOUND)),
)
def test_whatever_ids_are_asked_for_are_there_and_no_two_are_one(asked: list[int], size: int) -> None:
    made = ids.extents(asked, 5000, size)
    outside = [first + step for _, first, count in made for step in (0, count - 1)]
    assert all(5000 <= each < 5000 + size for each in outside)
    given = {each: ids.outside(each, made) for each in (0, *asked)}
    assert len(set(given.values())) == len(given)
    assert given[0] == 5000


@given(st.integers(0, 2**31 - 1))
def test_an_id_is_the_same_in_every_container(each: int) -> None:
    alone, beside = (ids.extents(asked, 0, BOUND) for asked in ([each], [each, 1, 70000]))
    assert each == 70000 or ids.outside(each, alone) == ids.outside(each, beside)


class TestOwnIds:
    def ranged(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> tuple[int, int]:
        (tmp_path / "uid_map").write_text(text)
        monkeypatch.setattr(ids, "_OWN", str(tmp_path))
        return ids._range("uid_map")

    def test_the_machines_root_takes_those_that_belong_to_nobody(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert self.ranged(monkeypatch, tmp_path, "0 0 4294967295\n") == (ids.START, BOUND)

    def test_root_of_a_container_takes_those_that_it_has(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert self.ranged(monkeypatch, tmp_path, "0 1000 1\n1 100000 65536\n") == (1, 65536)
        assert self.ranged(monkeypatch, tmp_path, "0 231072 65536\n") == (1, 65535)

    def test_where_there_is_only_one_there_are_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert self.ranged(monkeypatch, tmp_path, "0 1000 1\n")[1] == 0
        assert self.ranged(monkeypatch, tmp_path, "")[1] == 0


async def test_root_inside_is_nobody_on_the_machine(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        status = Path(f"/proc/{container.pid}/status").read_text().splitlines()
        users, groups, further = (
            next(line.split()[1:] for line in status if line.startswith(name)) for name in ("Uid:", "Gid:", "Groups:")
        )
    user, group = ids.of_root()
    assert (set(users), set(groups)) == ({str(user)}, {str(group)})
    if os.geteuid() == 0:
        assert user >= ids.START
        assert further == []


@root_only
async def test_an_id_beyond_the_usual_ones_is_one_of_its_own(runtime: Namespaces) -> None:
    script = "id -u; id -g; id -G; touch /tmp/file && stat -c %u:%g /tmp/file; echo out > /dev/stdout"
    outcome = await run(runtime, script, uid=1000680000, gid=2000000000, groups=(1000680000, 7))
    assert outcome.stdout == "1000680000\n2000000000\n2000000000 7 1000680000\n1000680000:2000000000\nout\n", outcome


# The root of a user namespace with the usual range, as rootless Podman makes it, starts a container.
PROGRAM = """
import asyncio, os, sys, ctypes
asked, answer = os.pipe(), os.pipe()
child = os.fork()
if child:
    os.read(asked[0], 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{child}/{name}", "w") as file:
            file.write("0 0 1\\n1 100000 65536\\n")
    os.write(answer[1], b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
user, mount = 0x10000000, 0x20000
assert ctypes.CDLL(None).unshare(user | mount * int(sys.argv[1])) == 0
os.write(asked[1], b"x")
os.read(answer[0], 1)
from subak.local.runtime.namespaces import Namespaces
from tests.local.runtime.containers import run
script = "id -u; cat /proc/self/uid_map; touch /tmp/file && stat -c %u /tmp/file"
print(asyncio.run(run(Namespaces(), script, uid=1000680000)).stdout)
"""


@root_only
@pytest.mark.parametrize("own_mounts", [True, False])
def test_root_of_a_container_around_us_gives_the_ids_that_it_has(able: None, own_mounts: bool) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(own_mounts))],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    seen = finished.stdout.split()
    assert seen == ["1000680000", "0", "1", "65535", "1000680000", "65536", "1", "1000680000"], finished.stderr
