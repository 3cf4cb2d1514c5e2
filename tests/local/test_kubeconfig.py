"""A kubeconfig belongs to one running cluster, even when others start, end or are killed."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from subak.local.kubeconfig import NAME, FileTaken, Kubeconfig, claim, claim_first
from tinykube.server.http import Listener
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.server.tls import identity

OURS = Listener(Server(Store(), name=NAME), identity()).kubeconfig()
HOLDER = """
import sys
from pathlib import Path
from subak.local.kubeconfig import claim_first
mine = claim_first(Path(sys.argv[1]))
mine.write("mine")
print(mine.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "subak" / "kubeconfig"


def test_the_second_has_a_file_of_its_own_and_takes_nothing_with_it(path: Path) -> None:
    first, second = claim_first(path), claim_first(path)
    first.write("first")
    second.write("second")
    assert (first.path, second.path) == (path, path.with_name("kubeconfig-2"))
    assert (path.read_text(), second.path.read_text()) == ("first", "second")
    second.release()
    assert path.read_text() == "first"
    assert not second.path.exists()
    first.release()
    assert list(path.parent.iterdir()) == []


def test_the_first_may_end_before_the_second(path: Path) -> None:
    first, second = claim_first(path), claim_first(path)
    second.write("second")
    first.release()
    third = claim_first(path)
    assert third.path == path
    assert second.path.read_text() == "second"
    for each in (second, third):
        each.release()


def test_only_the_owner_can_read_it(path: Path) -> None:
    held = claim_first(path)
    held.write("secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    held.release()


def test_what_a_killed_cluster_left_is_taken_over(path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == str(path)
        other = claim_first(path)
        assert other.path != path
        other.release()
        holder.kill()
    assert path.read_text() == "mine"
    again = claim_first(path)
    assert again.path == path
    again.release()


def test_many_that_start_at_once_have_a_file_each(path: Path) -> None:
    for _ in range(20):
        found: list[Kubeconfig] = []
        barrier = threading.Barrier(4)

        def start(number: int, found: list[Kubeconfig] = found, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            held = claim_first(path)
            held.write(str(number))
            found.append(held)

        threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({held.path for held in found}) == 4
        assert {held.path.read_text() for held in found} == {"0", "1", "2", "3"}
        for held in found:
            held.release()
        assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("content", ["", OURS], ids=["empty", "ours"])
def test_a_named_file_that_is_ours_is_taken_over_and_not_shared(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    held = claim(path)
    with pytest.raises(FileTaken, match="another `subak up` that is running has this file: name another one"):
        claim(path)
    held.release()
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [
        "clusters: [{name: production, cluster: {server: 'https://10.0.0.1'}}]",
        "clusters: [{name: subak, cluster: {server: 'https://gpu.example.com'}}]",
        "clusters: [{name: subak, cluster: {server: 6443}}]",
        "some notes",
        "# only comments\n",
        "0\n",
        "clusters: []\nusers: [{name: production, user: {token: x}}]",
        "clusters: [{name: subak, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: production}]",
        "clusters: [{name: subak, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: [subak]}]",
        "clusters: [{name: subak, cluster: {server: 'https://127.0.0.1:1'}}]\n" + "#" * (1 << 20),
        "[" * 1000,
    ],
)
def test_a_named_file_of_somebody_else_is_left_alone(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(FileTaken, match="not from `subak up`: name a file that is not there yet"):
        claim(path)
    assert path.read_text() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_was_replaced_is_not_removed(path: Path) -> None:
    held = claim_first(path)
    held.write("ours")
    path.unlink()
    path.write_text("theirs")
    held.release()
    assert path.read_text() == "theirs"


WRITER = """
import resource, sys
from pathlib import Path
from subak.local.kubeconfig import claim
held = claim(Path(sys.argv[1]))
held.write("old")
resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))
try:
    held.write("longer than there is room for")
except OSError as error:
    print(error.strerror)
"""


def test_a_file_for_which_there_is_no_room_stays_as_it_was(path: Path) -> None:
    """Not a half of it: whoever uses it would be told that it makes no sense."""
    wrote = subprocess.run([sys.executable, "-c", WRITER, path], capture_output=True, text=True, timeout=30)
    assert wrote.stdout == "File too large\n", wrote.stderr
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_what_kubectl_changes_in_it_goes_with_it(path: Path) -> None:
    held = claim_first(path)
    held.write("ours")
    with path.open("w") as file:  # in place, as kubectl does it
        file.write("changed")
    held.release()
    assert not path.exists()


def _refused(path: Path, told: Connection) -> None:
    try:
        claim(path)
    except (FileTaken, OSError) as error:
        told.send(str(error))


@pytest.mark.parametrize("kind", ["a link to nothing", "a link to itself", "an endless file", "a pipe", "a directory"])
def test_what_is_no_file_is_refused_at_once(path: Path, kind: str) -> None:
    path.parent.mkdir()
    match kind:
        case "a link to nothing":
            path.symlink_to("nowhere")
        case "a link to itself":
            path.symlink_to(path.name)
        case "an endless file":
            path.symlink_to("/dev/zero")
        case "a pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    before = path.lstat()
    ours, theirs = multiprocessing.Pipe()
    claimer = multiprocessing.get_context("fork").Process(target=_refused, args=(path, theirs))
    claimer.start()
    try:
        assert ours.poll(30), "it still waits"
    finally:
        claimer.kill()
        claimer.join()
    assert str(path) in ours.recv()
    assert path.lstat().st_ino == before.st_ino
    assert list(path.parent.iterdir()) == [path]
