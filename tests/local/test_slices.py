"""Slices: commands share the machine's cards, wait for their turn, and leave nothing behind."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from subak.dialects.interpreter import Interpreter
from subak.local.slices import CardsTaken, Slice, Slices, claim, in_use
from subak.model import manifest
from subak.model.device import MIB
from subak.model.reason import Refusal
from subak.node import regions
from subak.policy.explain import Explanation

REGISTER = (
    '[{"id":"GPU-a","index":0,"count":10,"devmem":16000,"devcore":100,"type":"NVIDIA A10","numa":0,'
    '"mode":"hami-core","health":true}]'
)


def ask(memory_mib: int, cores: int = 0) -> manifest.Pod:
    limits: manifest.Amounts = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory_mib, "nvidia.com/gpucores": cores}
    container = manifest.Container(name="command", resources=manifest.Resources(limits=limits))
    return manifest.Pod(metadata=manifest.Metadata(name="job"), spec=manifest.PodSpec(containers=[container]))


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[], Slices]:
    """Opens the machine's ledger, as each command does for itself."""
    interpreter = Interpreter()
    node = manifest.Node(
        metadata=manifest.Metadata(name="here", annotations={"hami.io/node-nvidia-register": REGISTER}),
        status=manifest.NodeStatus(capacity={"nvidia.com/gpu": 10}),
    )
    digest, warnings = interpreter.node(node)
    assert not warnings
    return lambda: Slices(tmp_path / "slices", interpreter, digest)


def end(slice: Slice) -> None:
    os.close(slice.lock)


def attempt(slices: Slices, slice: Slice) -> manifest.Pod | Explanation:
    return slices.attempt(slice, now_ns=1)


def test_a_command_gets_the_card_and_the_next_what_is_left(machine: Callable[[], Slices]) -> None:
    one, two = machine(), machine()
    first, second = one.enter(ask(10_000)), two.enter(ask(6_000))
    assert isinstance(attempt(one, first), manifest.Pod)
    placed = attempt(two, second)
    assert isinstance(placed, manifest.Pod)
    (grant,) = two.interpreter.placement(placed, two.node).grants
    assert [(share.id, share.memory_bytes) for share in grant.shares] == [("GPU-a", 6_000 * MIB)]


def test_who_does_not_fit_waits_until_the_other_ends(machine: Callable[[], Slices]) -> None:
    slices = machine()
    first, second = slices.enter(ask(10_000)), slices.enter(ask(8_000))
    attempt(slices, first)
    why = attempt(slices, second)
    assert isinstance(why, Explanation)
    assert "largest free slice 6,000 MiB, 8,000 MiB asked" in str(why)
    end(first)
    assert isinstance(attempt(slices, second), manifest.Pod)


def test_who_came_first_is_served_first(machine: Callable[[], Slices]) -> None:
    slices = machine()
    running, early, late = (slices.enter(ask(amount)) for amount in (16_000, 9_000, 9_000))
    attempt(slices, running)
    end(running)
    assert isinstance(attempt(slices, late), Explanation)
    assert isinstance(attempt(slices, early), manifest.Pod)


def test_who_was_stopped_while_it_waited_is_passed_until_it_looks_again(machine: Callable[[], Slices]) -> None:
    slices = machine()
    stopped, late, last = (slices.enter(ask(amount)) for amount in (9_000, 9_000, 7_000))
    os.utime(stopped.path, (0, 0))
    assert isinstance(attempt(slices, late), manifest.Pod)
    assert isinstance(attempt(slices, stopped), Explanation)
    end(late)
    assert isinstance(attempt(slices, last), manifest.Pod)
    assert isinstance(attempt(slices, stopped), manifest.Pod)


def test_a_small_command_passes_one_that_is_too_big_for_now(machine: Callable[[], Slices]) -> None:
    slices = machine()
    running, big, small = (slices.enter(ask(amount)) for amount in (10_000, 9_000, 2_000))
    attempt(slices, running)
    assert isinstance(attempt(slices, big), Explanation)
    assert isinstance(attempt(slices, small), manifest.Pod)


def test_a_slice_lives_as_long_as_any_process_that_inherited_it(machine: Callable[[], Slices]) -> None:
    slices = machine()
    held = slices.enter(ask(16_000))
    attempt(slices, held)
    child = subprocess.Popen(["sleep", "60"], pass_fds=[held.lock])
    end(held)
    waiting = slices.enter(ask(1_000))
    assert isinstance(attempt(slices, waiting), Explanation)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert isinstance(attempt(slices, waiting), manifest.Pod)


def test_files_of_ended_commands_are_removed(machine: Callable[[], Slices]) -> None:
    slices = machine()
    for _ in range(3):
        end(slices.enter(ask(1_000)))
    assert not slices.pods()
    assert not list(slices.directory.glob("*.json"))


def test_a_pod_of_the_ledger_says_what_it_is(machine: Callable[[], Slices]) -> None:
    slices = machine()
    slice = slices.enter(ask(1_000))
    (waiting,) = slices.pods().values()
    assert (waiting.key, waiting.spec.node_name) == ("run/job-1", "")
    attempt(slices, slice)
    (holding,) = slices.pods().values()
    assert holding.spec.node_name == "here"


def test_what_cannot_be_asked_for_is_refused_at_once(machine: Callable[[], Slices]) -> None:
    slices = machine()
    with pytest.raises(Refusal, match="must not be negative"):
        slices.enter(ask(-5))
    assert not slices.pods()


def test_more_than_the_cards_have_is_refused_instead_of_waiting_for_ever(machine: Callable[[], Slices]) -> None:
    slices = machine()
    with pytest.raises(Refusal, match="never have that much: largest free slice 16,000 MiB, 16,001 MiB asked"):
        slices.enter(ask(16_001))
    assert not slices.pods()


def test_the_cards_are_a_clusters_or_those_of_slices_never_both(machine: Callable[[], Slices]) -> None:
    slices = machine()
    slice = slices.enter(ask(1_000))
    with pytest.raises(CardsTaken, match="in use by subak run: job-1"):
        claim(slices.directory, "a cluster")
    end(slice)
    owned = claim(slices.directory, "a cluster")
    with pytest.raises(CardsTaken, match="they belong to a cluster"):
        slices.enter(ask(1_000))
    with pytest.raises(CardsTaken, match="they belong to a cluster"):
        claim(slices.directory, "another cluster")
    os.close(owned)
    assert isinstance(attempt(slices, slices.enter(ask(1_000))), manifest.Pod)


def test_who_has_the_cards_can_be_asked(machine: Callable[[], Slices]) -> None:
    slices = machine()
    assert (slices.owner(), in_use(slices.directory)) == ("", False)
    owned = claim(slices.directory, "a cluster")
    assert slices.owner() == "a cluster"
    os.close(owned)
    slice = slices.enter(ask(1_000))
    assert (slices.owner(), in_use(slices.directory)) == ("", True)
    end(slice)
    assert not in_use(slices.directory)


def test_the_library_s_files_go_with_the_slice(machine: Callable[[], Slices]) -> None:
    slices = machine()
    slice = slices.enter(ask(1_000))
    limits = slice.write_limits("CUDA_DEVICE_MEMORY_LIMIT_0=1g\n")
    slice.region.touch()
    assert limits.stat().st_mode & 0o222 == 0
    (found,) = slices.pods()
    assert found == slice.region
    end(slice)
    assert not slices.pods()
    assert {path.name for path in slices.directory.iterdir()} == {"gate"}


def test_what_another_has_put_there_is_not_written_to(machine: Callable[[], Slices], tmp_path: Path) -> None:
    slices = machine()
    slice = slices.enter(ask(1_000))
    (tmp_path / "precious").write_text("precious")
    slice.path.with_suffix(".limits").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        slice.write_limits("CUDA_DEVICE_MEMORY_LIMIT_0=1g\n")
    assert (tmp_path / "precious").read_text() == "precious"


def test_whatever_the_umask_is_others_can_read_who_holds_what(machine: Callable[[], Slices]) -> None:
    before = os.umask(0o077)
    try:
        slice = machine().enter(ask(1_000))
        slice.write_limits("")
        claimed = machine().directory / "gate"
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o444 for path in (slice.path, slice.path.with_suffix(".limits"), claimed)] == [
        0o444
    ] * 3


def test_who_empties_tmp_leaves_a_long_command_its_slice(machine: Callable[[], Slices], tmp_path: Path) -> None:
    """Many systems remove what nobody has read for ten days; systemd-tmpfiles leaves sticky files alone."""
    slice = machine().enter(ask(1_000))
    slice.write_limits("")
    os.close(claim(tmp_path / "others", "a cluster"))
    kept = [*slice.path.parent.iterdir(), *(tmp_path / "others").iterdir()]
    assert {path.suffix or path.stem for path in kept} == {".json", ".limits", "gate", f"owner-{os.getuid()}"}
    assert all(path.stat().st_mode & stat.S_ISVTX for path in kept)


def test_what_cannot_be_read_may_hold_anything(machine: Callable[[], Slices], monkeypatch: pytest.MonkeyPatch) -> None:
    slices = machine()
    hidden = slices.enter(ask(1_000))
    waiting = slices.enter(ask(1_000))
    usual = os.open

    def refuse(path: object, *arguments: int) -> int:
        if path == hidden.path:  # root reads everything
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CardsTaken, match=r"000000001.json cannot be used: Permission denied"):
        attempt(slices, waiting)


def test_a_machine_that_is_renamed_still_has_its_slices(machine: Callable[[], Slices]) -> None:
    slices = machine()
    attempt(slices, slices.enter(ask(16_000)))
    renamed = Slices(slices.directory, slices.interpreter, replace(slices.node, name="there"))
    assert isinstance(attempt(renamed, renamed.enter(ask(1_000))), Explanation)


def test_programs_that_use_the_card_keep_the_slice_alive(
    machine: Callable[[], Slices], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As workers do whose launcher closed what it had inherited, and ended."""
    slices = machine()
    held = slices.enter(ask(16_000))
    attempt(slices, held)
    worker = regions.Process(1, (), ())
    at_work = regions.Region(held.region, (), (worker,), 0, 0)
    monkeypatch.setattr(regions, "read", lambda path, now: at_work)
    end(held)
    assert list(slices.pods()) == [held.region]
    monkeypatch.setattr(regions, "read", lambda path, now: replace(at_work, processes=()))
    assert not slices.pods()


def test_a_region_that_was_made_again_goes_too(machine: Callable[[], Slices]) -> None:
    slices = machine()
    slice = slices.enter(ask(1_000))
    end(slice)
    assert not slices.pods()
    slice.region.touch()
    assert not slices.pods()
    assert {path.name for path in slices.directory.iterdir()} == {"gate"}


def test_strange_files_stop_nobody(machine: Callable[[], Slices]) -> None:
    slices = machine()
    first = slices.enter(ask(1_000))
    attempt(slices, first)
    os.mkfifo(slices.directory / "000000000.json")
    (slices.directory / "000000007.json").symlink_to("/dev/zero")
    (slices.directory / "².json").touch()
    (slices.directory / "notes.json").write_text("{}")
    nonsense = slices.enter(ask(1_000))
    os.pwrite(nonsense.lock, nonsense.path.read_bytes().replace(b'"nvidia.com/gpu":1', b'"nvidia.com/gpu":"x"'), 0)
    slice = slices.enter(ask(1_000))
    assert isinstance(attempt(slices, slice), manifest.Pod)
    assert {first.region, slice.region} <= set(slices.pods())


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"metadata":{"name":"\xff"}}', id="no UTF-8"),
        pytest.param(b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", id="too deep"),
    ],
)
def test_a_held_file_that_is_no_record_stops_nobody(machine: Callable[[], Slices], content: bytes) -> None:
    slices = machine()
    strange, waiting = slices.enter(ask(1_000)), slices.enter(ask(1_000))
    strange.path.write_bytes(content)
    assert isinstance(attempt(slices, waiting), manifest.Pod)


def test_a_huge_file_is_not_read_to_its_end(machine: Callable[[], Slices]) -> None:
    slices = machine()
    strange, waiting = slices.enter(ask(1_000)), slices.enter(ask(1_000))
    os.truncate(strange.path, 1 << 42)
    assert isinstance(attempt(slices, waiting), manifest.Pod)


def test_a_record_that_says_to_be_another_takes_nothing_from_it(machine: Callable[[], Slices]) -> None:
    slices = machine()
    first, other, copied = (slices.enter(ask(amount)) for amount in (15_000, 500, 500))
    attempt(slices, first)
    attempt(slices, other)
    other.path.write_bytes(other.path.read_bytes().replace(b'"job-2"', b'"job-1"'))
    copied.path.write_bytes(copied.path.read_bytes().replace(b'"job-3"', b'"\\u001b[31mjob-1"'))
    assert [pod.key for pod in slices.pods().values()] == ["run/job-1", "run/slice-2", "run/slice-3"]
    (card,) = slices.snapshot().cards("here")
    assert card.memory_used == 15_500 * MIB


def test_a_directory_that_cannot_be_used_is_told(machine: Callable[[], Slices], tmp_path: Path) -> None:
    (tmp_path / "slices").touch()
    with pytest.raises(CardsTaken, match="slices cannot be kept in .*: File exists"):
        machine()


def test_a_link_to_a_directory_does_not_open_it_for_everybody(machine: Callable[[], Slices], tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "slices").symlink_to(tmp_path / "private")
    machine()
    assert (tmp_path / "private").stat().st_mode & 0o7777 == 0o700


def test_who_cannot_be_recorded_has_no_card(machine: Callable[[], Slices], monkeypatch: pytest.MonkeyPatch) -> None:
    slices = machine()
    slice = slices.enter(ask(16_000))
    room, usual = slice.path.stat().st_size + 10, os.pwrite

    def nearly_full(descriptor: int, content: bytes, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return usual(descriptor, content[: room - offset], offset)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    with pytest.raises(CardsTaken, match="cannot be used: No space left on device"):
        attempt(slices, slice)


def test_every_user_of_the_machine_can_have_a_cluster_after_another(
    machine: Callable[[], Slices], monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = machine()
    os.close(claim(slices.directory, "the first"))
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    owned = claim(slices.directory, "the second")
    assert slices.owner() == "the second"
    os.close(owned)
    assert slices.owner() == ""


STOPPED_AT_THE_LEDGER = """
import os, signal, sys
from pathlib import Path
from subak.local import slices
signal.signal(signal.SIGTSTP, signal.SIG_DFL)
slices._living = lambda directory: [os.kill(os.getpid(), signal.SIGTSTP)]
slices.in_use(Path(sys.argv[1]))
"""


def test_who_is_stopped_at_the_ledger_keeps_nobody_out(machine: Callable[[], Slices]) -> None:
    """As by Ctrl-Z: a waiting command tries ten times a second."""
    slices = machine()
    slices.pods()
    command = [sys.executable, "-c", STOPPED_AT_THE_LEDGER, str(slices.directory)]
    stopped = subprocess.Popen(command, process_group=0)  # the kernel stops none whose group is orphaned
    try:
        _, status = os.waitpid(stopped.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with (slices.directory / "gate").open() as gate:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        stopped.kill()
        stopped.wait()
