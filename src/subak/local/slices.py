"""Slices of this machine's cards that single commands hold, without any cluster.

A slice is a file, and the file is a pod: what it asks for, and, once it has a place, the annotations that record its
cards.  So the ledger of the machine is read like that of a cluster.  A slice lives as long as somebody holds the lock
on its file.  The command inherits it, and the kernel lets go of it however the command ends: nothing has to be tidied
up for the cards to be free.  A program that closed the file which it inherited, as many launchers do for what they
start, keeps the slice alive while it uses the card: then it stands in the slice's region.

All users of the machine share the directory.  What is there may be anybody's: it is opened without following links or
waiting, and what cannot be read counts as held.

    enter ──> waiting ── attempt: fits, and nobody before it does ──> holding ── the last process ends ──> gone

A cluster on the same machine accounts for the same cards in its own way.  So the cards are either its own, as long as
it runs, or those of slices: `claim` and `enter` refuse each other.
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
"""The namespace of pods that stand for slices."""

DIRECTORY = Path(os.environ.get("SUBAK_SLICES") or "/tmp/subak-slices").absolute()
"""Where all users of the machine keep their slices."""

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

    Beside its file lie the library's: the region, in which its programs account for what they use, and their limits.
    """

    path: Path
    lock: int

    @property
    def region(self) -> Path:
        """The file of its region."""
        return self.path.with_suffix(_REGION)

    def write_limits(self, text: str) -> Path:
        """Write what the library holds its programs to, whatever their environment says; gives the file."""
        path = self.path.with_suffix(_LIMITS)
        # The directory is everybody's: what somebody else has put there is not written to.
        with open(_make(path, os.O_WRONLY | os.O_EXCL, 0o444), "w") as file:
            file.write(text)
        return path


class Taken(Exception):
    """The cards are somebody else's for now, or it cannot be known whose they are."""


def claim(directory: Path, owner: str) -> int:
    """Have all cards of the machine, until the file descriptor is closed.  Raises Taken if slices are held."""
    _prepare(directory)
    with _gate(directory):
        living = [pod.name for _, pod in _living(directory)]
        if living:
            raise Taken(f"they are in use by subak run: {', '.join(living)}")
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
        """Join the line.  The pod gets the number of its place as the end of its name.

        Raises Refusal for what cannot be asked for, and for more than the cards have when nobody uses them; Taken if a
        cluster has them.
        """
        complete = self.interpreter.admit(pod)
        unused = Decider(self.interpreter, [self.node])
        if unused.decide(NAMESPACE, unused.request(complete)) is None:
            why = "; ".join(f"{group.detail} ({group.reason})" for group in unused.explain(complete).groups)
            raise Refusal("spec.containers", pod.name, f"the cards never have that much: {why}")
        with _gate(self.directory):
            _refuse_owned(self.directory)
            # Of any file: a program that let go of its slice may have left its region behind.
            number = max((_number(path) for path in self.directory.iterdir()), default=0) + 1
            path = self.directory / f"{number:09}.json"
            metadata = msgspec.structs.replace(complete.metadata, name=f"{pod.name}-{number}", namespace=NAMESPACE)
            lock = _out_of_the_way(_make(path, os.O_RDWR | os.O_EXCL, 0o644))
            fcntl.flock(lock, fcntl.LOCK_EX)
            _rewrite(lock, msgspec.json.encode(msgspec.structs.replace(complete, metadata=metadata)))
        return Slice(path, lock)

    def attempt(self, slice: Slice, now_ns: int) -> manifest.Pod | Explanation:
        """The pod with its cards if it can have them now, otherwise why it has to wait."""
        with _gate(self.directory):
            os.utime(slice.lock)
            decider = self._decider()
            for path, pod in _living(self.directory):
                if pod.spec.node_name or (path != slice.path and _silent(path)):
                    continue
                try:
                    request = decider.request(pod)
                except Refusal:
                    continue  # not written by `enter`
                placement = decider.decide(NAMESPACE, request)
                if path == slice.path:
                    if not isinstance(placement, Placement):
                        return decider.explain(pod)
                    placed = _placed(pod, self.node.name, decider.written(pod, placement, now_ns))
                    _rewrite(slice.lock, msgspec.json.encode(placed))
                    return placed
                if isinstance(placement, Placement):  # it came earlier and takes its turn in a moment
                    decider.assume(pod.key, pod, request, placement)
        raise Taken(f"{slice.path} was removed: somebody has emptied {self.directory}")

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
            if pod.spec.node_name:  # whatever the machine was called then
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
        raise Taken(f"they belong to {owner}")


def _prepare(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = directory.lstat()
        # What is no directory may be a link of another user to one of ours, which must not be everybody's.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            directory.chmod(0o1777)  # for everybody, as /tmp
    except OSError as error:
        raise Taken(f"slices cannot be kept in {directory}: {error.strerror}") from None


def _make(path: Path, flags: int, mode: int) -> int:
    """Open a file that is made if it is not there, with this mode whatever the umask is.

    It is sticky: systemd-tmpfiles, which empties /tmp, passes over such files however old they are, but not over locks.
    """
    descriptor = os.open(path, flags | os.O_CREAT | _CAREFULLY, mode)
    if os.fstat(descriptor).st_uid == os.getuid():
        os.fchmod(descriptor, mode | stat.S_ISVTX)
    return descriptor


def _out_of_the_way(descriptor: int) -> int:
    """The same open file under a number that its command does not use by accident.

    Whoever starts without input or output leaves 0, 1 or 2 free, and a shell script opens up to 9 as it likes.
    """
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(descriptor)


def _living(directory: Path) -> Iterator[tuple[Path, manifest.Pod]]:
    """Slices whose lock is held, or whose programs are at work; the files of others are removed.

    Raises PermissionError for one that cannot be read: it may hold anything.
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
    for path in directory.glob(f"*{_REGION}"):  # made again by a program after the slice was gone
        if not path.with_suffix(".json").exists() and not _at_work(path):
            _remove_all(path)


def _silent(path: Path) -> bool:
    """Whether who waits has not looked for its turn for a while, as one that was stopped: it keeps nobody from it."""
    return abs(time.time() - path.stat().st_mtime) > _PATIENCE


def _named(pod: manifest.Pod, number: int) -> manifest.Pod:
    """The pod under a name that ends with its number, as `enter` gives it: no other has that, and it can be printed."""
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
    """Remove the files of a slice; its own goes last, for it says that the others belong to nobody."""
    with suppress(OSError):  # another user's, who removes them in turn
        for suffix in (_REGION, _LIMITS, ".json"):
            path.with_suffix(suffix).unlink(missing_ok=True)


@contextmanager
def _gate(directory: Path) -> Iterator[None]:
    """One at a time looks and takes.  Raises Taken if the directory cannot be used."""
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
        raise Taken(f"{error.filename or directory} cannot be used: {error.strerror}") from None


@contextmanager
def _not_stopped() -> Iterator[None]:
    """Let Ctrl-Z wait until the end: whoever is stopped in the gate keeps everybody out.

    By a handler, which is the whole process's: a mask would be that of this thread, and any other would be stopped.
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
    while written < len(content):  # a disk that becomes full takes a part, and refuses the rest
        written += os.pwrite(descriptor, content[written:], written)
    os.ftruncate(descriptor, len(content))


def _free(descriptor: int) -> bool:
    """Whether nobody holds the lock.  It is let go of when the descriptor is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
