"""Slices of this machine's cards that single commands hold, without any cluster.

A slice is a notice (`subak.local.notices`) that says what the command asks for and, once it has cards, which ones: a
pod with the annotations that record them.  So the ledger of the machine is read like that of a cluster.  A slice lives
as long as a process has its pipe open.  The command inherits it, and the kernel closes it when the command ends in any
way, so the cards become free without any cleanup.  Some launchers close inherited files for the programs that they
start.  Such a program keeps the slice alive while it uses the card, because libsubak opens the pipe again.

    enter ──> waiting ── attempt: fits, and nobody before it does ──> holding ── the last process ends ──> gone

Users share the cards and do not trust each other.  Nobody can write another's files, and there is no lock.  A command
claims its cards first, then looks at the claims of all others, and takes its own back if the cards do not have room for
all of them: of two who claim the same room at once, at least one sees the other.  So what is promised to those who play
by these rules fits, whatever others write and whoever is stopped or killed in between.  A stranger can claim all cards,
as by using them; he can do nothing to a slice of another user.

A cluster on the same machine has a separate ledger of the same cards.  So the cards belong either to the cluster, while
it runs, or to slices: `claim` and `enter` exclude each other in the same way.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.local.notices import Board, CannotPost, Found, Notice
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.node import regions
from subak.policy.decider import Decider
from subak.policy.explain import Explanation
from subak.snapshot.cluster import Overcommitted, Snapshot

NAMESPACE = "run"
"""The namespace of the pods of slices."""

_ASKED, _HELD, _OWNER = ".json", ".held", ".owner"
_REGION, _LIMITS = ".cache", ".limits"
_MOST_NAME = 200
_NOT_A_POD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_PATIENCE = 10.0
_TRIES, _MOMENT = 20, 0.01


def directory() -> Path:
    """Where users keep their slices: each has a directory whose name begins so."""
    return Path(os.environ.get("SUBAK_SLICES") or "/tmp/subak-slices").absolute()


@dataclass(frozen=True, slots=True)
class Slice:
    """A command's place in the line, or what it holds.  `notice` keeps it alive.

    Beside its file are two of the library: the region, in which programs count what they use, and their limits.
    """

    notice: Notice

    @property
    def region(self) -> Path:
        """The file of its region, for its user alone.  The library fills it, and makes it if need be."""
        return self.notice.path(_REGION)

    def prepare_region(self) -> None:
        """Make the region beforehand: a program that may not write such a file (`ulimit -f`) could not count in it."""
        with suppress(OSError):  # on a full disk each process counts by itself
            self.notice.add(_REGION, bytes(regions.PREPARED_SIZE), 0o600)

    def write_limits(self, text: str) -> Path:
        """Write the limits that the library enforces, whatever the environment says; gives the file."""
        return self.notice.add(_LIMITS, text.encode(), 0o444)


class CardsTaken(Exception):
    """A cluster or other slices have the cards, or we cannot find out who has them."""


@dataclass(frozen=True, slots=True)
class _Living:
    """A living slice of anybody."""

    found: Found
    pod: manifest.Pod

    @property
    def holds(self) -> bool:
        """Whether it has cards, or is about to have them."""
        return bool(self.pod.spec.node_name)

    @property
    def silent(self) -> bool:
        """Whether a waiting slice has made no attempt for a while, perhaps because it is stopped: others go first."""
        return abs(time.time() - self.found.shown) > _PATIENCE

    def of(self, notice: Notice) -> bool:
        """Whether this notice is its own."""
        return (self.found.place, self.found.number) == (notice.place, notice.number)


def claim(directory: Path, owner: str) -> int:
    """Claim all cards of the machine until the file descriptor is closed.  Raises CardsTaken if slices are held."""
    with _told():
        board = Board(directory)
        notice = board.post(_OWNER, owner.encode())
        try:
            living = [slice.pod.name for slice in _living(board)]
            if living:
                raise CardsTaken(f"they are in use by subak run: {', '.join(living)}")
            _refuse_owned(board, notice)
        except BaseException:
            notice.end()
            raise
    return notice.pipe


def in_use(directory: Path) -> bool:
    """Whether any slice lives there."""
    with _told():
        return bool(_living(Board(directory)))


class Slices:
    """All slices of a machine.  Each user keeps his own in a directory whose name begins with `directory`."""

    def __init__(self, directory: Path, interpreter: Interpreter, node: Node) -> None:
        self.interpreter = interpreter
        self.node = node
        self._board = Board(directory)

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
        with _told():
            notice = self._board.post(_ASKED, msgspec.json.encode(complete))
            try:
                _refuse_owned(self._board, notice)
            except BaseException:
                notice.end()
                raise
        return Slice(notice)

    def attempt(self, slice: Slice, now_ns: int) -> manifest.Pod | Explanation:
        """The pod with its cards if it can have them now, otherwise why it must wait."""
        with _told():
            tries = 0
            while True:
                slice.notice.show_life()
                answer = self._decide(slice.notice, now_ns)
                if isinstance(answer, Explanation):
                    return answer
                slice.notice.add(_HELD, msgspec.json.encode(answer))
                why_not = self._why_no_room(slice.notice)
                if why_not is None:
                    return answer
                slice.notice.take_back(_HELD)
                if (tries := tries + 1) == _TRIES:
                    return why_not
                time.sleep(random.uniform(0, _MOMENT))  # or those who want the same room meet there again and again

    def _decide(self, notice: Notice, now_ns: int) -> manifest.Pod | Explanation:
        """What a slice gets if nobody else wants it at this moment."""
        living = _living(self._board)
        decider = self._decider(living)
        for slice in living:
            own = slice.of(notice)
            if slice.holds or (slice.silent and not own):
                continue
            try:
                request = decider.request(slice.pod)
            except Refusal:
                continue  # `enter` did not write it
            placement = decider.decide(NAMESPACE, request)
            if own and isinstance(placement, Placement):
                return _placed(slice.pod, self.node.name, decider.written(slice.pod, placement, now_ns))
            if own:
                return decider.explain(slice.pod)
            if isinstance(placement, Placement):  # it came earlier, and soon takes these cards
                decider.assume(slice.pod.key, slice.pod, request, placement)
        raise CardsTaken(f"{notice.path(_ASKED)} was removed: somebody has emptied {notice.place}")

    def _why_no_room(self, notice: Notice) -> Explanation | None:
        """Why a slice cannot have what it has claimed, beside all that others have claimed; None if it can."""
        _refuse_owned(self._board, notice)
        living = _living(self._board)
        decider = self._decider([slice for slice in living if not slice.of(notice)])
        for slice in living:
            if slice.of(notice) and slice.holds:
                placement = self.interpreter.placement(slice.pod, self.node)
                try:
                    decider.assume(slice.pod.key, slice.pod, decider.request(slice.pod), placement)
                except Overcommitted:
                    return decider.explain(slice.pod)
                return None
        raise CardsTaken(f"{notice.path(_HELD)} was removed: somebody has emptied {notice.place}")

    def pods(self) -> dict[Path, manifest.Pod]:
        """The pods of all living slices by the files of their regions, in the order of their arrival."""
        with _told():
            return {slice.found.path(_REGION): slice.pod for slice in _living(self._board)}

    def snapshot(self) -> Snapshot:
        """The machine's cards, and what living slices hold of them."""
        with _told():
            return self._decider(_living(self._board)).snapshot

    def _decider(self, living: Iterable[_Living]) -> Decider:
        decider = Decider(self.interpreter, [self.node])
        for slice in living:
            if slice.holds:  # placed, even if the machine had another name then
                decider.hold(slice.pod, self.node)
        return decider

    def owner(self) -> str:
        """The cluster that has all cards of the machine; empty if there is none."""
        with _told():
            return _owner(self._board)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except CannotPost as error:
        raise CardsTaken(str(error)) from None
    except OSError as error:
        raise CardsTaken(f"{error.filename or 'the ledger of slices'} cannot be used: {error.strerror}") from None


def _owner(board: Board, ours: Notice | None = None) -> str:
    for found in board.living(_OWNER):
        if ours is None or (found.place, found.number) != (ours.place, ours.number):
            return re.sub(r"[^ -~]+", "?", found.content[:_MOST_NAME].decode(errors="replace"))
    return ""


def _refuse_owned(board: Board, ours: Notice) -> None:
    owner = _owner(board, ours)
    if owner:
        raise CardsTaken(f"they belong to {owner}")


def _living(board: Board) -> list[_Living]:
    """All living slices, in the order of their arrival."""
    slices = []
    for found in board.living(_HELD, _ASKED):
        with suppress(*_NOT_A_POD):
            pod = msgspec.json.decode(found.content, type=manifest.Pod)
            if len(pod.spec.containers) == 1:  # `subak run` writes no other, and one of hundreds takes long to place
                slices.append(_Living(found, _plain(pod, _name(board, found, pod))))
    return sorted(slices, key=lambda slice: (slice.found.posted_ns, slice.found.place, slice.found.number))


def _plain(pod: manifest.Pod, name: str) -> manifest.Pod:
    """The pod with no more than `enter` writes: another user could ask that nobody runs beside it."""
    containers = [manifest.Container(name=each.name, resources=each.resources) for each in pod.spec.containers]
    return manifest.Pod(
        metadata=manifest.Metadata(name=name, namespace=NAMESPACE, annotations=pod.metadata.annotations),
        spec=manifest.PodSpec(node_name=pod.spec.node_name, containers=containers),
    )


def _name(board: Board, found: Found, pod: manifest.Pod) -> str:
    """A name that ends with the slice's number, and for those of others with their user: unique and safe to print."""
    fine = pod.name if re.fullmatch(r"[a-z0-9-]{1,63}", pod.name) else "slice"
    number = f"-{found.number}"
    return fine.removesuffix(number) + number + ("" if board.is_ours(found.whose) else f".{found.whose}")


def _placed(pod: manifest.Pod, node: str, annotations: dict[str, str]) -> manifest.Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **annotations})
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node))
