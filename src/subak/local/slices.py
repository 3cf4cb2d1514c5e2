"""Slices of this machine's cards that single commands hold, without any cluster.

A slice is a file that holds a pod: its request and, once it has cards, the annotations that record them.  So the ledger
of the machine is read like that of a cluster.  A slice lives as long as a process holds the lock on its file.  The
command inherits the lock, and the kernel releases it when the command ends in any way, so the cards become free without
any cleanup.  Some launchers close inherited files for the programs that they start.  Such a program keeps the slice
alive while it uses the card, because the slice's region lists it.

All users of the machine share the directory, so a file there may belong to any of them: it is opened without following
links or waiting, and a file that cannot be read counts as held.

    enter ──> waiting ── attempt: fits, and nobody before it does ──> holding ── the last process ends ──> gone

A cluster on the same machine has a separate ledger of the same cards.  So the cards belong either to the cluster, while
it runs, or to slices: `claim` and `enter` exclude each other.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.node import regions
from subak.policy.decider import Decider
from subak.policy.explain import Explanation
from subak.snapshot.cluster import Snapshot

NAMESPACE = "run"
"""The namespace of the pods of slices."""

DIRECTORY = Path(os.environ.get("SUBAK_SLICES") or "/tmp/subak-slices").absolute()
"""The directory in which all users of the machine keep their slices."""

_GATE = "gate"
_OWNER = "owner-"
_REGION, _LIMITS = ".cache", ".limits"
_NUMBER = re.compile(r"[0-9]{9}")
_MOST_BYTES, _MOST_NAME = 1 << 20, 200
_NOT_A_POD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_PATIENCE = 10.0
_CAREFULLY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Slice:
    """A command's place in the line, or what it holds.  `lock` is the file descriptor that keeps it alive.

    Beside its file are two of the library: the region, in which programs count what they use, and their limits.
    """

    path: Path
    lock: int

    @property
    def region(self) -> Path:
        """The file of its region."""
        return self.path.with_suffix(_REGION)

    def write_limits(self, text: str) -> Path:
        """Write the limits that the library enforces, whatever the environment says; gives the file."""
        path = self.path.with_suffix(_LIMITS)
        # All users can write to the directory: never write to a file that another user created.
        with open(_make(path, os.O_WRONLY | os.O_EXCL, 0o444), "w") as file:
            file.write(text)
        return path


class CardsTaken(Exception):
    """A cluster or other slices have the cards, or we cannot find out who has them."""


def claim(directory: Path, owner: str) -> int:
    """Claim all cards of the machine until the file descriptor is closed.  Raises CardsTaken if slices are held."""
    _prepare(directory)
    with _gate(directory):
        living = [pod.name for _, pod in _living(directory)]
        if living:
            raise CardsTaken(f"they are in use by subak run: {', '.join(living)}")
        _refuse_owned(directory)
        lock = _make(directory / f"{_OWNER}{os.getuid()}", os.O_RDWR, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _rewrite(lock, owner.encode())
    return lock


def in_use(directory: Path) -> bool:
    """Whether any slice lives there."""
    if not directory.exists():
        return False
    with _gate(directory):
        return any(True for _ in _living(directory))


class Slices:
    """All slices of a machine, under a directory that all its users share."""

    def __init__(self, directory: Path, interpreter: Interpreter, node: Node) -> None:
        self.directory = directory
        self.interpreter = interpreter
        self.node = node
        _prepare(directory)

    def enter(self, pod: manifest.Pod) -> Slice:
        """Join the line.  The number of its place is appended to the pod's name.

        Raises Refusal for an impossible request, also one that is larger than the empty cards, and CardsTaken if a
        cluster has the cards.
        """
        complete = self.interpreter.admit(pod)
        unused = Decider(self.interpreter, [self.node])
        if unused.decide(NAMESPACE, unused.request(complete)) is None:
            why = "; ".join(f"{group.detail} ({group.reason})" for group in unused.explain(complete).groups)
            raise Refusal("spec.containers", pod.name, f"the cards never have that much: {why}")
        with _gate(self.directory):
            _refuse_owned(self.directory)
            # Count every file: a program that closed its slice may have left its region behind.
            number = max((_number(path) for path in self.directory.iterdir()), default=0) + 1
            path = self.directory / f"{number:09}.json"
            metadata = msgspec.structs.replace(complete.metadata, name=f"{pod.name}-{number}", namespace=NAMESPACE)
            lock = _out_of_the_way(_make(path, os.O_RDWR | os.O_EXCL, 0o644))
            fcntl.flock(lock, fcntl.LOCK_EX)
            _rewrite(lock, msgspec.json.encode(msgspec.structs.replace(complete, metadata=metadata)))
        return Slice(path, lock)

    def attempt(self, slice: Slice, now_ns: int) -> manifest.Pod | Explanation:
        """The pod with its cards if it can have them now, otherwise why it must wait."""
        with _gate(self.directory):
            os.utime(slice.lock)
            decider = self._decider()
            for path, pod in _living(self.directory):
                if pod.spec.node_name or (path != slice.path and _silent(path)):
                    continue
                try:
                    request = decider.request(pod)
                except Refusal:
                    continue  # `enter` did not write it
                placement = decider.decide(NAMESPACE, request)
                if path == slice.path:
                    if not isinstance(placement, Placement):
                        return decider.explain(pod)
                    placed = _placed(pod, self.node.name, decider.written(pod, placement, now_ns))
                    _rewrite(slice.lock, msgspec.json.encode(placed))
                    return placed
                if isinstance(placement, Placement):  # it came earlier, and soon takes these cards
                    decider.assume(pod.key, pod, request, placement)
        raise CardsTaken(f"{slice.path} was removed: somebody has emptied {self.directory}")

    def pods(self) -> dict[Path, manifest.Pod]:
        """The pods of all living slices by the files of their regions, in the order of their arrival."""
        with _gate(self.directory):
            return {path.with_suffix(_REGION): pod for path, pod in _living(self.directory)}

    def snapshot(self) -> Snapshot:
        """The machine's cards, and what living slices hold of them."""
        with _gate(self.directory):
            return self._decider().snapshot

    def _decider(self) -> Decider:
        decider = Decider(self.interpreter, [self.node])
        for _, pod in _living(self.directory):
            if pod.spec.node_name:  # placed, even if the machine had another name then
                decider.hold(pod, self.node)
        return decider

    def owner(self) -> str:
        """The cluster that has all cards of the machine; empty if there is none."""
        with _gate(self.directory):
            return _owner(self.directory)


def _owner(directory: Path) -> str:
    for path in directory.glob(f"{_OWNER}*"):
        with suppress(OSError), open(os.open(path, os.O_RDONLY | _CAREFULLY), "rb") as file:
            if not _free(file.fileno()):
                return re.sub(r"[^ -~]+", "?", file.read(_MOST_NAME).decode(errors="replace"))
    return ""


def _refuse_owned(directory: Path) -> None:
    owner = _owner(directory)
    if owner:
        raise CardsTaken(f"they belong to {owner}")


def _prepare(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = directory.lstat()
        # Not through a link: another user could make one of our directories writable for everybody.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            directory.chmod(0o1777)  # for everybody, as /tmp
    except OSError as error:
        raise CardsTaken(f"slices cannot be kept in {directory}: {error.strerror}") from None


def _make(path: Path, flags: int, mode: int) -> int:
    """Open a file, created if need be, with this mode whatever the umask is.

    It is sticky, because systemd-tmpfiles, which empties /tmp, keeps sticky files of any age, but does not see locks.
    """
    descriptor = os.open(path, flags | os.O_CREAT | _CAREFULLY, mode)
    if os.fstat(descriptor).st_uid == os.getuid():
        os.fchmod(descriptor, mode | stat.S_ISVTX)
    return descriptor


def _out_of_the_way(descriptor: int) -> int:
    """The same open file under a number that its command does not use by accident.

    If a standard stream is closed, 0, 1 or 2 may be free, and shell scripts use numbers up to 9.
    """
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(descriptor)


def _living(directory: Path) -> Iterator[tuple[Path, manifest.Pod]]:
    """Slices whose lock is held or whose programs use a card; removes the files of others.

    Raises PermissionError for a file that cannot be read: it may hold any card.
    """
    for path in sorted(directory.glob("*.json")):
        if not _NUMBER.fullmatch(path.stem):
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | _CAREFULLY)
        except PermissionError:
            raise
        except OSError:
            continue  # gone in between, or a link
        with open(descriptor, "rb") as file, suppress(*_NOT_A_POD):
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                continue
            if _free(descriptor) and not _at_work(path):
                _remove_all(path)
                continue
            yield path, _named(msgspec.json.decode(file.read(_MOST_BYTES), type=manifest.Pod), _number(path))
    for path in directory.glob(f"*{_REGION}"):  # a program created it again after the slice was gone
        if not path.with_suffix(".json").exists() and not _at_work(path):
            _remove_all(path)


def _silent(path: Path) -> bool:
    """Whether a waiting slice has made no attempt for a while, perhaps because it is stopped: others go first."""
    return abs(time.time() - path.stat().st_mtime) > _PATIENCE


def _named(pod: manifest.Pod, number: int) -> manifest.Pod:
    """The pod under a name that ends with its number, as `enter` gives it: unique and safe to print."""
    fine = re.fullmatch(rf"[a-z0-9-]{{1,63}}-{number}", pod.name)
    name = pod.name if fine else f"slice-{number}"
    metadata = msgspec.structs.replace(pod.metadata, name=name, namespace=NAMESPACE)
    return msgspec.structs.replace(pod, metadata=metadata)


def _at_work(path: Path) -> bool:
    """Whether programs of a slice use its card."""
    try:
        return bool(regions.read(path.with_suffix(_REGION), time.monotonic_ns()).processes)
    except regions.NoRegion:
        return False


def _remove_all(path: Path) -> None:
    """Remove the files of a slice; its own last, since the others are found through it."""
    with suppress(OSError):  # files of another user, who removes them later
        for suffix in (_REGION, _LIMITS, ".json"):
            path.with_suffix(suffix).unlink(missing_ok=True)


@contextmanager
def _gate(directory: Path) -> Iterator[None]:
    """Let one process at a time read and change slices.  Raises CardsTaken if the directory cannot be used."""
    path = directory / _GATE
    try:
        try:
            gate = os.open(path, os.O_RDONLY | _CAREFULLY)
        except FileNotFoundError:
            gate = _make(path, os.O_RDONLY, 0o644)
        with _not_stopped(), open(gate, "rb"):
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise CardsTaken(f"{error.filename or directory} cannot be used: {error.strerror}") from None


@contextmanager
def _not_stopped() -> Iterator[None]:
    """Delay Ctrl-Z until the end: a process that stops inside the gate would keep all others out.

    A handler works for the whole process; a signal mask would cover only this thread.
    """
    asked = []
    before = signal.signal(signal.SIGTSTP, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
        for number in asked[:1]:
            os.kill(os.getpid(), number)


def _number(path: Path) -> int:
    return int(path.stem) if _NUMBER.fullmatch(path.stem) else 0


def _placed(pod: manifest.Pod, node: str, annotations: dict[str, str]) -> manifest.Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **annotations})
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node))


def _rewrite(descriptor: int, content: bytes) -> None:
    written = 0
    while written < len(content):  # a disk that fills up takes a part, and refuses the rest
        written += os.pwrite(descriptor, content[written:], written)
    os.ftruncate(descriptor, len(content))


def _free(descriptor: int) -> bool:
    """Whether no process holds the lock.  If so, this one does, until it closes the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
