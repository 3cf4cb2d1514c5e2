"""Slices: commands share the machine's cards, wait for their turn, and leave nothing behind."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subak.dialects.interpreter import Interpreter
from subak.local.slices import CardsTaken, Slice, Slices, claim, in_use
from subak.model import manifest
from subak.model.device import MIB
from subak.model.reason import Refusal
from subak.policy.explain import Explanation
from tests.support import fuzz

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


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where this user's slices are."""
    return tmp_path / f"slices-{os.getuid()}"


def end(slice: Slice) -> None:
    slice.notice.end()


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
    os.utime(stopped.notice.pipe, (0, 0))
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
    child = subprocess.Popen(["sleep", "60"], pass_fds=[held.notice.pipe])
    end(held)
    waiting = slices.enter(ask(1_000))
    assert isinstance(attempt(slices, waiting), Explanation)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert isinstance(attempt(slices, waiting), manifest.Pod)


def test_the_next_command_removes_the_files_of_those_that_ended(machine: Callable[[], Slices], directory: Path) -> None:
    slices = machine()
    together = [slices.enter(ask(1_000)) for _ in range(3)]
    for slice in together:
        end(slice)
    assert not slices.pods()
    slices.enter(ask(1_000))
    assert {path.name for path in directory.iterdir()} == {"clearing", "004.alive", "004.json"}


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


def test_the_cards_are_a_clusters_or_those_of_slices_never_both(machine: Callable[[], Slices], tmp_path: Path) -> None:
    slices = machine()
    slice = slices.enter(ask(1_000))
    with pytest.raises(CardsTaken, match="in use by subak run: job-1"):
        claim(tmp_path / "slices", "a cluster")
    end(slice)
    owned = claim(tmp_path / "slices", "a cluster")
    with pytest.raises(CardsTaken, match="they belong to a cluster"):
        slices.enter(ask(1_000))
    with pytest.raises(CardsTaken, match="they belong to a cluster"):
        claim(tmp_path / "slices", "another cluster")
    os.close(owned)
    assert isinstance(attempt(slices, slices.enter(ask(1_000))), manifest.Pod)


def test_who_has_the_cards_can_be_asked(machine: Callable[[], Slices], tmp_path: Path) -> None:
    slices = machine()
    assert (slices.owner(), in_use(tmp_path / "slices")) == ("", False)
    owned = claim(tmp_path / "slices", "a cluster")
    assert slices.owner() == "a cluster"
    os.close(owned)
    slice = slices.enter(ask(1_000))
    assert (slices.owner(), in_use(tmp_path / "slices")) == ("", True)
    end(slice)
    assert not in_use(tmp_path / "slices")


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
    end(slices.enter(ask(1_000)))
    assert not limits.exists()
    assert not slice.region.exists()


def test_what_another_has_put_there_is_not_written_to(machine: Callable[[], Slices], tmp_path: Path) -> None:
    slices = machine()
    slice = slices.enter(ask(1_000))
    (tmp_path / "precious").write_text("precious")
    slice.notice.path(".limits").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        slice.write_limits("CUDA_DEVICE_MEMORY_LIMIT_0=1g\n")
    assert (tmp_path / "precious").read_text() == "precious"


def test_whatever_the_umask_is_others_can_read_who_holds_what(machine: Callable[[], Slices], directory: Path) -> None:
    before = os.umask(0o077)
    try:
        slices = machine()
        slice = slices.enter(ask(1_000))
        attempt(slices, slice)
        slice.write_limits("")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert modes.pop("clearing") == 0o600
    assert modes == {"001.alive": 0o622, "001.json": 0o644, "001.held": 0o644, "001.limits": 0o444}
    assert directory.stat().st_mode & 0o777 == 0o755


def test_who_empties_tmp_leaves_a_long_command_its_slice(machine: Callable[[], Slices], directory: Path) -> None:
    """Many systems remove what nobody has read for ten days; systemd-tmpfiles leaves sticky files alone."""
    slices = machine()
    slice = slices.enter(ask(1_000))
    attempt(slices, slice)
    slice.write_limits("")
    kept = [path for path in directory.iterdir() if path.name != "clearing"]
    assert {path.suffix for path in kept} == {".alive", ".json", ".held", ".limits"}
    assert all(path.stat().st_mode & stat.S_ISVTX for path in kept)


def test_a_machine_that_is_renamed_still_has_its_slices(machine: Callable[[], Slices], tmp_path: Path) -> None:
    slices = machine()
    attempt(slices, slices.enter(ask(16_000)))
    renamed = Slices(tmp_path / "slices", slices.interpreter, replace(slices.node, name="there"))
    assert isinstance(attempt(renamed, renamed.enter(ask(1_000))), Explanation)


def test_programs_that_open_the_pipe_again_keep_the_slice_alive(machine: Callable[[], Slices]) -> None:
    """As libsubak does in workers whose launcher closed what it had inherited."""
    slices = machine()
    held = slices.enter(ask(16_000))
    attempt(slices, held)
    worker = os.open(held.notice.alive, os.O_RDONLY | os.O_NONBLOCK)
    end(held)
    assert list(slices.pods()) == [held.region]
    os.close(worker)
    assert not slices.pods()


def test_strange_files_stop_nobody(machine: Callable[[], Slices], directory: Path) -> None:
    slices = machine()
    first = slices.enter(ask(1_000))
    attempt(slices, first)
    os.mkfifo(directory / "000.json")
    (directory / "007.json").symlink_to("/dev/zero")
    (directory / "².json").touch()
    (directory / "notes.json").write_text("{}")
    nonsense = slices.enter(ask(1_000))
    asked = nonsense.notice.path(".json")
    asked.write_bytes(asked.read_bytes().replace(b'"nvidia.com/gpu":1', b'"nvidia.com/gpu":"x"'))
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
    strange.notice.path(".json").write_bytes(content)
    assert isinstance(attempt(slices, waiting), manifest.Pod)


def test_a_huge_file_is_not_read_to_its_end(machine: Callable[[], Slices]) -> None:
    slices = machine()
    strange, waiting = slices.enter(ask(1_000)), slices.enter(ask(1_000))
    os.truncate(strange.notice.path(".json"), 1 << 42)
    assert isinstance(attempt(slices, waiting), manifest.Pod)


def test_a_record_that_says_to_be_another_takes_nothing_from_it(machine: Callable[[], Slices]) -> None:
    slices = machine()
    first, other, copied = (slices.enter(ask(amount)) for amount in (15_000, 500, 500))
    attempt(slices, first)
    attempt(slices, other)
    held, asked = other.notice.path(".held"), copied.notice.path(".json")
    held.write_bytes(held.read_bytes().replace(b'"job-2"', b'"job-1"'))
    asked.write_bytes(asked.read_bytes().replace(b'"job"', b'"\\u001b[31mjob-1"'))
    assert {pod.key for pod in slices.pods().values()} == {"run/job-1", "run/job-1-2", "run/slice-3"}
    (card,) = slices.snapshot().cards("here")
    assert card.memory_used == 15_500 * MIB


def test_a_directory_that_cannot_be_used_is_told(machine: Callable[[], Slices], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below_a_file = Slices(tmp_path / "file/slices", machine().interpreter, machine().node)
    with pytest.raises(CardsTaken, match="file cannot be used: File exists"):
        below_a_file.enter(ask(1_000))


def test_who_cannot_be_recorded_has_no_card(machine: Callable[[], Slices], monkeypatch: pytest.MonkeyPatch) -> None:
    slices = machine()
    slice = slices.enter(ask(16_000))

    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(CardsTaken, match="cannot be used: No space left on device"):
        attempt(slices, slice)
    monkeypatch.undo()
    assert isinstance(attempt(slices, slices.enter(ask(1_000))), Explanation)  # the first is before it in the line


NASTY: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**9,
    10**30,
    1e308,
    -0.5,
    "",
    "x",
    "-1",
    "1Ei",
    "9e99999",
    "\0",
    "[",
    [],
    {},
    [{}],
    ["x"],
)


def spoiled(chance: random.Random, document: Any) -> Any:
    """The document with nonsense in one of its places."""
    if not document or not isinstance(document, dict | list) or chance.random() < 0.1:
        if isinstance(document, str) and document and chance.random() < 0.6:
            at = chance.randrange(len(document))
            return document[:at] + chance.choice(("-", "9" * 20, ";", ",", ":", "{")) + document[at + 1 :]
        return chance.choice(NASTY)
    entries = dict(enumerate(document)) if isinstance(document, list) else dict(document)
    key = chance.choice(list(entries))
    entries[key] = spoiled(chance, entries[key])
    return list(entries.values()) if isinstance(document, list) else entries


def test_whatever_a_record_says_others_are_answered(machine: Callable[[], Slices]) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    slices = machine()
    holder, liar = slices.enter(ask(10_000)), slices.enter(ask(1_000))
    assert isinstance(attempt(slices, holder), manifest.Pod)
    assert isinstance(attempt(slices, liar), manifest.Pod)
    held = json.loads(liar.notice.path(".held").read_bytes())
    for _ in range(500 if fuzz.long() else 100):
        lie = json.dumps(spoiled(chance, held))
        liar.notice.path(".held").write_text(lie)
        waiting = slices.enter(ask(6_001))
        assert isinstance(attempt(slices, waiting), Explanation), f"seed {seed}: {lie}"
        assert holder.region in slices.pods(), f"seed {seed}: {lie}"
        (card,) = slices.snapshot().cards("here")
        assert card.memory_used >= 10_000 * MIB, f"seed {seed}: {lie}"
        end(waiting)
