"""Slices of users who do not trust each other: nobody gets more than a card has, whatever others do at any moment."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from subak.dialects.interpreter import Interpreter
from subak.local import slices as ledger
from subak.local.slices import CardsTaken, Slices, claim
from subak.model import manifest
from subak.model.node import Node
from subak.model.request import Request
from subak.policy.decider import Decider
from tests.local.test_slices import REGISTER, ask
from tests.support import fuzz, users
from tests.support.users import FIRST, SECOND, STRANGER

CARD_MIB = 16_000
INTERPRETER = Interpreter()


def node() -> Node:
    metadata = manifest.Metadata(
        name="here",
        labels={"kubernetes.io/hostname": "here"},
        annotations={"hami.io/node-nvidia-register": REGISTER},
    )
    status = manifest.NodeStatus(capacity={"nvidia.com/gpu": 10})
    digest, warnings = INTERPRETER.node(manifest.Node(metadata=metadata, status=status))
    assert not warnings
    return digest


NODE = node()


@pytest.fixture
def place() -> Iterator[Path]:
    """What /tmp is to all users."""
    with users.shared() as path:
        yield path


def machine(place: Path) -> Slices:
    return Slices(place / "slices", INTERPRETER, NODE)


def holding(place: Path, memory_mib: int) -> Callable[[], None]:
    """Holds so much of the card."""

    def hold() -> None:
        slices = machine(place)
        assert isinstance(slices.attempt(slices.enter(ask(memory_mib)), 1), manifest.Pod)

    return hold


def fits(place: Path, memory_mib: int) -> bool:
    slices = machine(place)
    slice = slices.enter(ask(memory_mib))
    try:
        return isinstance(slices.attempt(slice, 1), manifest.Pod)
    finally:
        slice.notice.end()


@users.alone
def test_what_another_user_holds_counts(place: Path) -> None:
    with users.meanwhile(FIRST, holding(place, 10_000)):
        assert not fits(place, 6_001)
        assert fits(place, 6_000)
        (pod,) = machine(place).pods().values()
        assert pod.name == f"job-1.{FIRST}"
    assert fits(place, 16_000)


@users.alone
def test_what_cannot_be_read_holds_nothing_and_stops_nobody(place: Path) -> None:
    """Whoever plays by the rules can be read by all."""

    def hide() -> None:
        holding(place, 10_000)()
        (place / f"slices-{STRANGER}/001.held").chmod(0)
        (place / f"slices-{STRANGER}/001.json").chmod(0)

    with users.meanwhile(STRANGER, hide):
        users.do(FIRST, lambda: fits(place, 16_000) or os._exit(1))
    with users.meanwhile(STRANGER, lambda: (place / f"slices-{STRANGER}").chmod(0)):
        users.do(FIRST, lambda: fits(place, 16_000) or os._exit(1))


@users.alone
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"GPU-a,NVIDIA,-9000,0:;", id="less than nothing"),
        pytest.param(b"GPU-a,NVIDIA,99999999999999999999,0:;", id="more than anybody has"),
        pytest.param(b"GPU-a,NVIDIA,x,0:;", id="no number"),
        pytest.param(b";" * 20_000, id="very long"),
    ],
)
def test_a_record_frees_no_card_that_others_hold(place: Path, record: bytes) -> None:
    def lie() -> None:
        holding(place, 1_000)()
        held = place / f"slices-{STRANGER}/001.held"
        written = held.read_bytes()
        assert b"GPU-a,NVIDIA,1000,0:;" in written
        held.chmod(0o600)
        held.write_bytes(written.replace(b"GPU-a,NVIDIA,1000,0:;", record))
        held.chmod(0o644)

    with users.meanwhile(FIRST, holding(place, 10_000)), users.meanwhile(STRANGER, lie):
        assert not fits(place, 6_001)
        machine(place).snapshot()


@users.alone
def test_a_pod_that_wants_nobody_beside_it_is_not_asked(place: Path) -> None:
    alone = (
        b'"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":'
        b'[{"labelSelector":{},"topologyKey":"kubernetes.io/hostname"}]}}'
    )

    def refuse_all() -> None:
        holding(place, 1_000)()
        held = place / f"slices-{STRANGER}/001.held"
        written = held.read_bytes()
        assert b'"affinity":null' in written
        held.write_bytes(written.replace(b'"affinity":null', alone))

    with users.meanwhile(STRANGER, refuse_all):
        assert fits(place, 15_000)


@users.alone
def test_one_user_s_many_directories_and_files_are_not_read_to_their_end(place: Path) -> None:
    def flood() -> None:
        for number in range(200):
            (place / f"slices-{STRANGER}-{number:08x}").mkdir()
        holding(place, 1_000)()
        own = place / f"slices-{STRANGER}"
        for number in range(2, 400):
            os.link(own / "001.alive", own / f"{number:03}.alive")
            os.truncate(os.open(own / f"{number:03}.held", os.O_CREAT | os.O_WRONLY, 0o644), 1 << 30)
        for number in range(1_000):
            (own / f"{number:06}.json").touch()

    with users.meanwhile(STRANGER, flood):
        assert fits(place, 15_000)


@users.alone
def test_nobody_has_to_place_hundreds_of_containers_of_a_stranger(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crowd() -> None:
        holding(place, 1_000)()
        own = place / f"slices-{STRANGER}"
        (own / "001.held").unlink()
        asked = msgspec.json.decode((own / "001.json").read_bytes())
        asked["spec"]["containers"] *= 20
        (own / "001.json").write_bytes(msgspec.json.encode(asked))

    asked = Decider.request

    def counted(decider: Decider, pod: manifest.Pod) -> Request:
        assert len(pod.containers) == 1
        return asked(decider, pod)

    monkeypatch.setattr(Decider, "request", counted)
    with users.meanwhile(STRANGER, crowd):
        assert fits(place, 16_000)


# Two honest users come and go at random, are stopped and killed; a third does what he can.


def dawdle(chance: random.Random) -> None:
    """Pause at steps that others see, or by which others are seen; who pauses for long is passed over in the line."""
    vars(ledger)["_PATIENCE"] = 0.01

    def slowly(name: str) -> None:
        usual = getattr(os, name)

        def slow(*arguments: object, **more: object) -> object:
            time.sleep(chance.choice((0, 0, 0, 0.02)) * chance.random())
            return usual(*arguments, **more)

        setattr(os, name, slow)

    for name in ("link", "listdir", "scandir", "unlink"):
        slowly(name)


def come_and_go(place: Path, log: int, seed: int) -> None:
    """Takes slices for ever; writes down what it has, while it has it."""
    chance = random.Random(seed)
    dawdle(chance)
    slices = machine(place)
    while True:
        memory_mib = chance.choice((2_000, 5_000, 9_000, 16_000))
        slice = slices.enter(ask(memory_mib))
        for _ in range(chance.randint(1, 5)):
            if isinstance(slices.attempt(slice, 1), manifest.Pod):
                os.write(log, f"{os.getpid()} {memory_mib}\n".encode())
                time.sleep(chance.uniform(0, 0.02))
                os.write(log, f"{os.getpid()} 0\n".encode())
                break
        slice.notice.end()


def do_harm(place: Path, seed: int) -> None:
    """Locks, files, links and lies, for ever."""
    chance = random.Random(seed)
    own = place / f"slices-{STRANGER}"
    own.mkdir(exist_ok=True)
    pipe = own / "999.alive"
    os.mkfifo(pipe, 0o622)
    os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    while True:
        others = [path for each in place.glob("slices-*") for path in each.glob("*")]
        with suppress(OSError):
            match chance.randrange(7):
                case 0:
                    os.open(chance.choice(others), chance.choice((os.O_RDONLY, os.O_WRONLY)) | os.O_NONBLOCK)
                case 1:
                    os.unlink(chance.choice(others))
                case 2:
                    copy = chance.choice(others).read_bytes().replace(b"GPU-a,NVIDIA,", b"GPU-a,NVIDIA,-")
                    (own / f"{chance.randint(1, 999):03}.held").write_bytes(copy)
                case 3:
                    os.link(pipe, own / f"{chance.randint(1, 999):03}.alive")
                case 4:
                    (own / f"{chance.randint(1, 999):03}.json").symlink_to(chance.choice(others))
                case 5:
                    for path in own.glob("*.held"):  # or nobody else would ever have anything
                        path.unlink()
                case 6:
                    (place / f"slices-{chance.choice((FIRST, SECOND))}-{chance.randrange(1 << 32):08x}").mkdir()


def held_at_once(log: Path) -> int:
    """The most that all had together at any moment, in MiB."""
    now: dict[str, int] = {}
    most = 0
    for line in log.read_text().splitlines():
        who, memory_mib = line.split()
        now[who] = int(memory_mib)
        most = max(most, sum(now.values()))
    return most


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(False, id="among themselves"),
        pytest.param(True, id="beside a stranger", marks=[users.alone, pytest.mark.long]),
    ],
)
def test_nobody_gets_more_than_the_card_has(place: Path, tmp_path: Path, harm: bool) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    path = tmp_path / "log"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def start(user: int) -> int:
        number = chance.randrange(1 << 32)
        return users.begin(user, lambda: come_and_go(place, log, number), keep=log)

    honest = {start(user): user for user in (FIRST, FIRST, SECOND, SECOND)}
    strangers = [users.begin(STRANGER, lambda: do_harm(place, seed))] if harm else []
    try:
        until = time.monotonic() + (20 if fuzz.long() else 3)
        while time.monotonic() < until:
            time.sleep(chance.uniform(0, 0.1))
            pid, user = chance.choice(list(honest.items()))
            os.kill(pid, signal.SIGSTOP)
            assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]), f"seed {seed}"
            time.sleep(chance.uniform(0, 0.1))
            if chance.random() < 0.5:
                os.kill(pid, signal.SIGCONT)
                continue
            os.write(log, f"{pid} 0\n".encode())  # before it is gone, for then others may have its part
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            del honest[pid]
            honest[start(user)] = user
    finally:
        for pid in (*honest, *strangers):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert 0 < held_at_once(path) <= CARD_MIB, f"seed {seed}"
    print(f"{len(path.read_text().splitlines()) // 2} slices, {held_at_once(path)} MiB at once")


def claim_and_release(place: Path, log: int) -> None:
    """Has all cards for a cluster, again and again."""
    dawdle(random.Random(1))
    while True:
        with suppress(CardsTaken):
            owned = claim(place / "slices", "a cluster")
            os.write(log, f"{os.getpid()} 1\n".encode())
            time.sleep(0.005)
            os.write(log, f"{os.getpid()} 0\n".encode())
            os.close(owned)


def enter_and_leave(place: Path, log: int) -> None:
    """Has a slice, again and again."""
    dawdle(random.Random(2))
    slices = machine(place)
    while True:
        with suppress(CardsTaken):
            slice = slices.enter(ask(1_000))
            os.write(log, f"{os.getpid()} 1\n".encode())
            time.sleep(0.005)
            os.write(log, f"{os.getpid()} 0\n".encode())
            slice.notice.end()


def test_a_cluster_and_a_slice_never_both_have_the_cards(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    works = {FIRST: claim_and_release, SECOND: enter_and_leave}
    children = [users.begin(user, partial(work, place, log), keep=log) for user, work in works.items()]
    try:
        deadline = time.monotonic() + 60
        while any(path.read_text().count(f"{child} 0\n") < 20 for child in children):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert held_at_once(path) == 1
