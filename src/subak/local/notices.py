"""Notices: what each user of a machine tells all others, in files that nobody else can write, lock or remove.

Every user has a directory of his own beside those of the others (/tmp/subak-slices-1000), which everybody can read and
only he can write to.  In a sticky directory such as /tmp nobody can take it away.  A notice is a number there:

    007.alive    a named pipe: the notice lives while a process has it open for reading
    007.json     what it says, and more files with other endings

Only the owner may read from the pipe (mode 0622), and whoever opens it for writing learns from the kernel whether
anybody does.  So all can see whether a notice lives, and a stranger can neither keep one alive nor end it.  A process
passes the open pipe on to those that it starts; it is closed when they have ended in any way.

There is no lock that anybody waits for.  Every file comes into being whole, under a new name, and is never changed.  So
who first posts a file and then reads those of the others sees theirs, or they see his: one of two who want the same
thing notices.

What others have put there may be anything.  It is opened without following links or waiting, on the same file system;
what cannot be opened or is no ordinary file of a decent size was not written by this module, and says nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

MOST_NOTICES = 999
"""Most notices of one user; nobody reads more."""
MOST_BYTES = 1 << 16
USUAL_BYTES = 1 << 13
"""More than those who play by the rules have to say; a longer notice counts as several."""
MOST_FILES = 8 * MOST_NOTICES
"""Most files of one directory; nobody looks at more."""

_PIPE, _NEW, _CLEARING = ".alive", "new-", "clearing"
_FILE = re.compile(r"([0-9]{3})(\.[a-z]+)")
_CAREFULLY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OUR_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
_MOST_PLACES = 16
_ABANDONED = 3600.0


class CannotPost(Exception):
    """The files cannot be kept; the text says where, and why."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice of ours.  `pipe` is the file descriptor that keeps it alive."""

    place: Path
    number: int
    pipe: int

    def path(self, ending: str) -> Path:
        """One of its files."""
        return self.place / f"{self.number:03}{ending}"

    @property
    def alive(self) -> Path:
        """Its pipe."""
        return self.path(_PIPE)

    def add(self, ending: str, content: bytes, mode: int = 0o644) -> Path:
        """Add a file, which is complete as soon as anybody sees it.  Raises FileExistsError if it is there."""
        begun = self.place / _new_name()
        try:
            with open(os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFULLY, 0o600), "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), _kept(mode))
            os.link(begun, self.path(ending))
        finally:
            begun.unlink(missing_ok=True)
        return self.path(ending)

    def take_back(self, ending: str) -> None:
        """Remove a file again."""
        self.path(ending).unlink(missing_ok=True)

    def show_life(self) -> None:
        """Say that its process still looks after it, and has not been stopped."""
        os.utime(self.pipe)

    def end(self) -> None:
        """End it, unless another process has inherited it.  Its files are removed later."""
        os.close(self.pipe)


@dataclass(frozen=True, slots=True)
class Found:
    """A living notice of anybody.  `place` is its directory, `whose` the part of its name that tells it from others."""

    place: Path
    whose: str
    number: int
    content: bytes
    posted_ns: int
    """When it was posted, as its owner says."""
    shown: float
    """When its owner last showed life."""

    def path(self, ending: str) -> Path:
        """One of its files."""
        return self.place / f"{self.number:03}{ending}"


class Board:
    """The notices of all users, in directories whose names begin with `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = re.compile(rf"{re.escape(path.name)}-(([0-9]{{1,10}})(?:-[0-9a-f]{{8}})?)")

    def post(self, ending: str, content: bytes) -> Notice:
        """Post a notice.  Raises CannotPost."""
        with _explained(self.path.parent):
            place = self._own_place()
            last = _last_number(place)
            _clear(place)
            notice = _numbered(place, last)
            try:
                notice.add(ending, content)
            except OSError:
                notice.end()
                raise
            return notice

    def living(self, *endings: str) -> Iterator[Found]:
        """All living notices with a file of one of these endings; of several files the first counts.

        Raises CannotPost if they cannot be read for a reason that lies with us.
        """
        read: Counter[int] = Counter()
        with _explained(self.path.parent):
            for place, whose in self._places():
                with suppress(_Nonsense), _directory(place, whose) as directory:
                    for found in _found(directory, place, whose, endings):
                        read[_user(whose)] += 1 + len(found.content) // USUAL_BYTES
                        if read[_user(whose)] > MOST_NOTICES:
                            break
                        yield found

    def is_ours(self, whose: str) -> bool:
        """Whether it is the usual directory of this user."""
        return whose == str(os.getuid())

    def _places(self) -> list[tuple[Path, str]]:
        """What may be directories of users, a few for each of them."""
        try:
            with os.scandir(self.path.parent) as entries:  # anybody may have put any number of files there
                names = sorted(each.name for each in entries if self._may_be_place(each))
        except FileNotFoundError:
            return []
        seen: Counter[int] = Counter()
        places = []
        for match in filter(None, map(self._name.fullmatch, names)):
            user = int(match[2])
            if seen[user] < _MOST_PLACES and _owner(self.path.with_name(match[0])) == user:
                seen[user] += 1
                places.append((self.path.with_name(match[0]), match[1]))
        return places

    def _may_be_place(self, entry: os.DirEntry[str]) -> bool:
        """By what the listing itself says: to look at each file would take seconds where there are many."""
        return entry.name.startswith(self.path.name) and entry.is_dir(follow_symlinks=False)

    def _own_place(self) -> Path:
        """The directory of this user, made if need be.  A stranger may have put something under its usual name."""
        parent, us = self.path.parent, os.getuid()
        parent.mkdir(parents=True, exist_ok=True)
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CannotPost(f"everybody can remove what others keep in {parent}: chmod +t {parent}")
        usual = self.path.with_name(f"{self.path.name}-{us}")
        with suppress(FileExistsError):
            usual.mkdir()
        places = self._places_of(us)
        if not places:
            usual.with_name(f"{usual.name}-{secrets.token_hex(4)}").mkdir()
            places = self._places_of(us)
        place = places[0]
        place.chmod(0o755)  # whatever the umask
        return place

    def _places_of(self, user: int) -> list[Path]:
        return [place for place, whose in self._places() if _user(whose) == user]


class _Nonsense(Exception):
    """What stands there was not written by this module."""


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotPost(f"{error.filename or directory} cannot be used: {error.strerror}") from None


def _user(whose: str) -> int:
    return int(whose.partition("-")[0])


def _owner(place: Path) -> int | None:
    """Whose directory it is; None if it is none."""
    try:
        found = place.lstat()
    except OSError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) else None


@contextmanager
def _opened(name: str | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    """What a stranger may have put there, open.  Raises _Nonsense unless it is our own fault that it fails."""
    try:
        file = os.open(name, flags | _CAREFULLY, dir_fd=directory)
    except OSError as error:
        if error.errno in _OUR_FAULT:
            raise
        raise _Nonsense from None
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _directory(place: Path, whose: str) -> Iterator[int]:
    """A user's directory, opened once: its name may mean another one a moment later."""
    with _opened(place, os.O_RDONLY | os.O_DIRECTORY) as directory:
        found = os.fstat(directory)
        # On a file system of his own a user could make us wait.
        if found.st_uid != _user(whose) or found.st_dev != place.parent.stat().st_dev:
            raise _Nonsense
        yield directory


def _found(directory: int, place: Path, whose: str, endings: Sequence[str]) -> Iterator[Found]:
    files: dict[str, set[str]] = {}
    with os.scandir(directory) as entries:
        names = [entry.name for entry in islice(entries, MOST_FILES)]
    for match in filter(None, map(_FILE.fullmatch, names)):
        files.setdefault(match[1], set()).add(match[2])
    for number, there in sorted(files.items()):
        wanted = [ending for ending in endings if ending in there]
        with suppress(_Nonsense):
            shown = _alive(directory, number) if wanted else None
            read = [each for ending in wanted if (each := _read(directory, number + ending))]
            if shown is not None and read:
                yield Found(place, whose, int(number), read[0][0], read[-1][1], shown)


def _alive(directory: int, number: str) -> float | None:
    """When the owner of a notice last showed life; None if no process has its pipe open."""
    with _opened(number + _PIPE, os.O_WRONLY, directory) as pipe:  # fails if nobody reads
        found = os.fstat(pipe)
        return found.st_mtime if stat.S_ISFIFO(found.st_mode) else None


def _read(directory: int, name: str) -> tuple[bytes, int] | None:
    """What a file says, and when it was written; None if it says nothing, or was taken back in between."""
    with suppress(_Nonsense), _opened(name, os.O_RDONLY, directory) as file:
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES:
            return os.read(file, MOST_BYTES), found.st_mtime_ns
    return None


def _last_number(place: Path) -> int:
    """The highest number that is used, or was by one that ended lately."""
    return max((int(match[1]) for match in map(_FILE.fullmatch, os.listdir(place)) if match), default=0)


def _numbered(place: Path, last: int) -> Notice:
    """A living notice that says nothing yet, under the next number that nobody has.

    Not one that ended lately: a late program of that command would take this notice for its own.
    """
    begun = place / _new_name()
    os.mkfifo(begun, 0o600)
    try:
        pipe = _out_of_the_way(os.open(begun, os.O_RDONLY | _CAREFULLY))
        os.chmod(begun, _kept(0o622))
        for number in (*range(last + 1, MOST_NOTICES + 1), *range(1, last + 1)):
            notice = Notice(place, number, pipe)
            with suppress(FileExistsError):
                os.link(begun, notice.alive)
                return notice
        os.close(pipe)
        raise CannotPost(f"{place} has {MOST_NOTICES} notices, and nobody reads more: end some commands")
    finally:
        begun.unlink(missing_ok=True)


def _clear(place: Path) -> None:
    """Remove the files of our notices that have ended, unless another process is about it."""
    with open(os.open(place / _CLEARING, os.O_WRONLY | os.O_CREAT | _CAREFULLY, 0o600), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        with _directory(place, str(os.getuid())) as directory:
            # Its pipe last: while it is there nobody takes the number.
            names = sorted(os.listdir(directory), key=lambda name: name.endswith(_PIPE))
            ended = {number for match in map(_FILE.fullmatch, names) if match and _ended(directory, number := match[1])}
            for name in names:
                if name.partition(".")[0] in ended or (name.startswith(_NEW) and _abandoned(directory, name)):
                    with suppress(OSError):
                        os.unlink(name, dir_fd=directory)


def _ended(directory: int, number: str) -> bool:
    try:
        return _alive(directory, number) is None
    except _Nonsense:
        return True


def _abandoned(directory: int, name: str) -> bool:
    """Whether whoever began this file was killed before it was complete."""
    with suppress(FileNotFoundError):
        return time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime > _ABANDONED
    return False


def _new_name() -> str:
    return f"{_NEW}{secrets.token_hex(8)}"


def _kept(mode: int) -> int:
    """Sticky as well: systemd-tmpfiles, which empties /tmp, keeps sticky files of any age, but does not see pipes."""
    return mode | stat.S_ISVTX


def _out_of_the_way(descriptor: int) -> int:
    """The same open file under a number that its command does not use by accident.

    If a standard stream is closed, 0, 1 or 2 may be free, and shell scripts use numbers up to 9.
    """
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(descriptor)
