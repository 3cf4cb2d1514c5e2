from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from subak.local.runtime import sealed
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec, StartError
from tests.local.runtime.containers import run

CHECKOUT = Path(__file__).parents[3]

ATTACK = """#!/proc/self/exe
import os
for attempt in (
    lambda: os.chmod("/proc/self/exe", 0o6777),
    lambda: os.truncate("/proc/self/exe", 0),
    lambda: os.close(os.open("/proc/self/exe", os.O_RDWR)),
):
    try:
        attempt()
    except OSError as error:
        print(error.strerror)
    else:
        print("done")
print(os.readlink("/proc/self/exe"))
"""
"""As CVE-2019-5736: the interpreter of the script is the program that was about to run it."""

CLUSTER = """
import asyncio, sys
from subak.local.runtime.namespaces import Namespaces
from subak.model.mount import Mount
from tests.local.runtime.containers import running
async def main():
    runtime = Namespaces()
    async with running(runtime, mounts=[Mount("/s", sys.argv[1])]) as container:
        session = await container.execute(["/s/attack"], {"PYTHONHOME": sys.base_prefix}, stdin=False, tty=False)
        async for _, data in session.output():
            print(data.decode(), end="", flush=True)
        await session.wait()
        await session.close()
    await runtime.close()
asyncio.run(main())
"""


@pytest.fixture
def own_python(tmp_path: Path) -> Path:
    """A virtual environment with a copy of the interpreter that belongs to whoever runs the tests."""
    home = tmp_path / "own"
    (home / "bin").mkdir(parents=True)
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\n")
    shutil.copy("/proc/self/exe", home / "bin" / "python3")
    (home / "bin" / "python3").chmod(0o755)
    return home / "bin" / "python3"


def test_no_container_reaches_the_interpreter_that_launched_it(able: None, own_python: Path, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "attack").write_text(ATTACK)
    (tmp_path / "s" / "attack").chmod(0o755)
    before = own_python.stat(), own_python.read_bytes()
    ran = subprocess.run(
        [own_python, "-c", CLUSTER, str(tmp_path / "s")],
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": os.environ["PATH"]},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 4, ran.stdout  # all was tried
    after = own_python.stat(), own_python.read_bytes()
    assert (after[0].st_mode, after[0].st_ctime_ns, after[1]) == (before[0].st_mode, before[0].st_ctime_ns, before[1])
    assert str(own_python) not in ran.stdout


async def test_the_copy_stays_as_it_is(runtime: Namespaces) -> None:
    copy = sealed.interpreter()
    content = Path("/proc/self/exe").read_bytes()
    assert os.pread(copy, len(content) + 1, 0) == content
    with pytest.raises(PermissionError):
        os.pwrite(copy, b"x", 0)
    with pytest.raises(PermissionError):
        os.truncate(copy, 0)
    with suppress(PermissionError):  # since Linux 6.3
        os.fchmod(copy, 0)
    assert (await run(runtime, "echo well")).stdout == "well\n"


def test_a_copy_for_which_there_is_no_memory_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(sealed, "_copy", sealed._copy.__wrapped__)
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "sendfile", refuse)
    with pytest.raises(StartError, match="cannot be made: Cannot allocate memory") as error:
        sealed.interpreter()
    assert error.value.passes
    assert set(os.listdir("/proc/self/fd")) == before


async def test_a_machine_on_which_nothing_may_run_from_memory_is_told_how_to_allow_it(
    runtime: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(sealed, "_copy", refuse)
    with pytest.raises(StartError, match=r"which this machine forbids to run: allow it with `sysctl"):
        await runtime.start(Spec("a", ["true"]))
