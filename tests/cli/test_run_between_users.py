"""`subak run` among users who do not trust each other: what a stranger does on the machine stops and hurts nobody.

Most tests are root, whose commands run, and the stranger; what he tries are system calls that any user may make.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support import users
from tests.support.card import OUT_OF_MEMORY, TAKEN, Card, Tenant
from tests.support.users import STRANGER

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def place() -> Iterator[Path]:
    """What /tmp is to all users."""
    with users.shared() as path:
        yield path


@pytest.fixture
def run(place: Path, card: Card, checkout: Path) -> Run:
    """Start `subak run` on a machine with one card of 8 GiB."""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    env |= card.env | {"PYTHONPATH": str(checkout / "src")}
    env |= {"SUBAK_SLICES": str(place / "slices"), "SUBAK_TURNS": str(place / "turns")}

    def start(*arguments: str, stderr: int = subprocess.PIPE, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "subak.cli", "run", *arguments]
        piped = subprocess.PIPE
        return subprocess.Popen(command, stdin=piped, stdout=piped, stderr=stderr, text=True, env=env | more)

    return start


def end(process: subprocess.Popen[str], words: str | None = None) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(words, timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out, err


def everything(place: Path) -> Iterator[Path]:
    """All that a user can see below a directory."""
    for directory, directories, files in os.walk(place):
        yield from (Path(directory) / name for name in (*directories, *files))


def spoil(place: Path) -> None:
    """Cut, overwrite, open up, rename and remove all that there is, as far as the kernel lets one."""
    for path in list(everything(place)):
        with suppress(OSError), open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb") as file:
            file.write(b"\xff" * 100_000)
            file.truncate(100)
        for attempt in (lambda path: path.chmod(0o777), lambda path: path.rename(place / "mine"), os.unlink, os.rmdir):
            with suppress(OSError):
                attempt(path)


def lock(place: Path) -> None:
    """Lock all that can be opened, in every way."""
    for path in everything(place):
        for mode in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY):
            with suppress(OSError):
                file = os.open(path, mode | os.O_NONBLOCK)
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
                    with suppress(OSError):
                        fcntl.lockf(file, kind | fcntl.LOCK_NB)


@pytest.mark.long
@users.alone
def test_nobody_cuts_or_writes_over_what_a_program_counts_in(run: Run, place: Path, card: Card) -> None:
    tenant = Tenant(run("--memory", "1Gi", "--", *card.tenant))
    assert tenant.ask("take 100") == TAKEN

    def again_and_again() -> None:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            spoil(place)

    stranger = users.begin(STRANGER, again_and_again)
    answers = [tenant.ask("take 1") for _ in range(300)]
    assert os.waitpid(stranger, 0) == (stranger, 0)
    assert set(answers) == {TAKEN}
    assert tenant.ask("take 700") == OUT_OF_MEMORY
    assert end(run("--memory", "8000Mi", "--timeout", "0", "--", "true"))[0] == 75
    assert tenant.end() == 0


@users.alone
def test_a_stranger_s_locks_block_nobody(run: Run, place: Path) -> None:
    assert end(run("--", "true"))[0] == 0
    with users.meanwhile(STRANGER, lambda: lock(place)):
        code, _, err = end(run("--timeout", "10", "--", "true"))
        assert code == 0, err


@users.alone
def test_a_stranger_s_locks_do_not_keep_the_card_of_a_command_that_has_ended(run: Run, place: Path) -> None:
    first = run("--", "cat")
    assert first.stderr is not None
    assert "has card 0" in first.stderr.readline()
    with users.meanwhile(STRANGER, lambda: lock(place)):
        assert end(first, "")[0] == 0
        code, _, err = end(run("--timeout", "3", "--", "true"))
        assert code == 0, err


def put(kind: str, path: Path) -> None:
    match kind:
        case "directory":
            path.mkdir()
            (path / "000000001.json").mkdir()
            (path / "gate").mkdir()
        case "closed directory":
            path.mkdir(mode=0o700)
        case "file":
            path.touch()
        case "link":
            path.symlink_to("/")
        case "link to nowhere":
            path.symlink_to("nowhere")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, stat.S_IFSOCK)


@users.alone
@pytest.mark.parametrize("kind", ["directory", "closed directory", "file", "link", "link to nowhere", "pipe", "socket"])
def test_what_a_stranger_puts_in_the_way_stops_nobody(run: Run, place: Path, kind: str) -> None:
    for path in (place / "slices", place / f"slices-{os.getuid()}", place / "turns"):
        users.do(STRANGER, partial(put, kind, path))
    code, _, err = end(run("--memory", "1Gi", "--", "true"))
    assert code == 0, err


def test_a_directory_in_place_of_a_region_is_refused(run: Run, card: Card) -> None:
    """As by a program of the slice, each process of which would have the whole limit."""
    trick = 'rm -f "$CUDA_DEVICE_MEMORY_SHARED_CACHE"; mkdir "$CUDA_DEVICE_MEMORY_SHARED_CACHE"; exec "$@"'
    code, out, err = end(run("--memory", "1Gi", "--", "sh", "-c", trick, "sh", *card.tenant), "take 100\n")
    assert (code, out) == (1, "error 800\n")
    assert "refused: " in err
    assert "so nothing would be counted: remove what is there" in err


@pytest.mark.long
def test_programs_that_may_write_no_files_share_the_limit(run: Run, card: Card) -> None:
    """A region that each of them could not make would give each of them the whole limit."""
    trick = 'ulimit -f 0; (sleep 6 | (echo take 800; cat) | "$@") & sleep 3; echo take 800 | "$@"; wait'
    code, out, err = end(run("--memory", "1Gi", "--", "sh", "-c", trick, "sh", *card.tenant), "")
    assert code == 0, err
    assert out == TAKEN + OUT_OF_MEMORY


def test_a_worker_whose_slice_has_ended_takes_nothing(run: Run, card: Card, tmp_path: Path) -> None:
    """The next command may have the card by then."""
    words, said = tmp_path / "words", tmp_path / "said"
    os.mkfifo(words)
    launch = (
        "import subprocess, sys; subprocess.Popen(['sh', '-c', 'read line; exec \"$@\"', 'sh', *sys.argv[3:]],"
        " stdin=open(sys.argv[1]), stdout=open(sys.argv[2], 'w'))"
    )
    launcher = run("--memory", "6Gi", "--", sys.executable, "-c", launch, str(words), str(said), *card.tenant)
    with words.open("w") as worker:
        assert launcher.wait(40) == 0
        holder = Tenant(run("--memory", "6Gi", "--timeout", "20", "--", *card.tenant))
        assert holder.ask("take 5000") == TAKEN
        worker.write("go on\ntake 5000\n")
        worker.flush()
        deadline = time.monotonic() + 30
        while not said.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert said.read_text() == "error 800\n"
    assert "refused: " in end(launcher)[2]
    assert holder.end() == 0


@pytest.mark.skipif(not shutil.which("cc"), reason="a C compiler builds a driver that hangs")
def test_a_timeout_is_kept_though_the_driver_hangs(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "hangs.c"
    source.write_text("#include <unistd.h>\nint nvmlInitWithFlags(unsigned flags) { for (;;) pause(); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    code, _, err = end(run("--timeout", "0", "--", "true", LD_LIBRARY_PATH=str(tmp_path)))
    assert code == 75
    assert "no slice was free within 0 s: the driver or the ledger of slices does not answer" in err


@pytest.mark.long
def test_a_timeout_is_kept_though_nobody_reads_what_it_says(run: Run) -> None:
    holder = run("--", "cat")
    assert holder.stderr is not None
    assert "has card 0" in holder.stderr.readline()
    reader, full = os.pipe()
    os.set_blocking(full, False)
    with suppress(BlockingIOError):
        while True:
            os.write(full, b"x" * 4096)
    os.set_blocking(full, True)
    waits = run("--timeout", "0", "--", "true", stderr=full)
    assert waits.wait(40) == 75
    os.close(reader)
    os.close(full)
    end(holder, "")


def test_a_timeout_is_kept_though_the_holder_is_stopped(run: Run) -> None:
    holder = run("--", "cat")
    assert holder.stderr is not None
    assert "has card 0" in holder.stderr.readline()
    holder.send_signal(signal.SIGSTOP)
    try:
        assert end(run("--timeout", "0.3", "--", "true"))[0] == 75
    finally:
        holder.send_signal(signal.SIGCONT)
        end(holder, "")
