"""Builds a container's root from the machine's directories.

The root is a tmpfs into which the machine's directories are bound; they are read-only already, with everything that is
mounted below.  Where a container must be able to write, it gets a private directory with the machine's entries: it can
create files and directories beside them, and the files of `/etc` are copies that it can change.

A mark says how a path appears, with everything below it that has no mark itself:

    OPEN     a private directory with the machine's entries
    EMPTY    a private directory with only the marked entries
    SHOWN    as it is on the machine; so is a path without a mark in an OPEN directory
    COPIED   a private copy of the file; symbolic links are followed
    OMITTED  not there

An overlay would do all this in one mount, but the kernel forbids an overlay over `/` in a user namespace, and keeps
smaller ones read-only where the owner of a directory is not mapped.
"""

from __future__ import annotations

import errno
import os
import stat

from . import kernel
from .bare import suppress
from .program import NO_CONTAINER, NotStarted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .order import File, Mount

OPEN = "open"
EMPTY = "empty"
SHOWN = "shown"
COPIED = "copied"
OMITTED = "omitted"

MACHINE = "/.machine"
"""Where the machine's root is while the view is built."""
STAGE = "/.stage"
"""Where things are that were opened before the view is built."""
_OUR_OWN = (MACHINE, STAGE, "/dev", "/proc", "/sys")

_COPY_LIMIT = 1 << 20
_CHUNK = 1 << 14
_MOST_LINKS = 40
_LONGEST_PATH = 4096
"""The kernel's limits."""


class Tree:
    """The container's root, built from the machine's directories as the marks say.

    `staged` says where paths with the mark SHOWN are meanwhile: the container may not be able to reach them by itself.
    `links` are those that the view makes where the machine has none that is visible, and where they lead.
    """

    def __init__(self, marks: dict[str, str], staged: dict[str, str], links: dict[str, str]) -> None:
        self._marks: dict[str, str] = {"/": EMPTY}
        self._children: dict[str, list[str]] = {}
        self._staged = staged
        self._links = links
        self._taken: set[str] = set()
        for path in sorted(marks):
            self._mark(path, marks[path])

    def make_way_for_file(self, file: File) -> str:
        """The place for a file; it replaces the machine's entry there, and the entries beside it stay."""
        if not file["directory"]:
            parent, name = os.path.split(file["path"])
            path = os.path.join(self._resolve(parent), name)
            self._mark(path, OMITTED)
            return path
        path = self._resolve(file["path"])
        if not self._hidden(path):
            self._mark(path, OPEN)
        return path

    def make_way_for_mount(self, mount: Mount) -> str:
        """The place for a mount; if it does not exist yet, the directories on the way there are opened.

        Outer mounts come first: what lies in them has nothing to do with the machine's links.  Raises OSError, and
        NotStarted for what belongs to a process.
        """
        destination = plain(mount["destination"])
        if len(os.fsencode(destination)) >= _LONGEST_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        path = self._resolve(destination)
        if _is_of_process(path):
            raise NotStarted(
                NO_CONTAINER, f"mount at {mount['destination']}: what belongs to a process is no place for it"
            )
        if not self._hidden(path) and not os.path.lexists(self._at(path)):
            self._mark(path, OMITTED)
        self._taken.add(path)
        return path

    def lay(self) -> None:
        """Create the root and all below it."""
        self._enter("", MACHINE)

    def _lay(self, path: str, source: str) -> None:
        """Create a path, which is meanwhile at `source`, and all below it."""
        mark = self._marks.get(path, SHOWN)
        if mark in (OMITTED, COPIED):
            return
        try:
            info = os.lstat(source)
        except OSError:
            info = None
        if info is None or not _of_use(info):
            if mark in (OPEN, EMPTY):
                self._directory(path, source, 0o755)
        elif stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(source), path)
        elif stat.S_ISDIR(info.st_mode) and mark in (OPEN, EMPTY):
            self._directory(path, source, stat.S_IMODE(info.st_mode))
        else:
            _show(path, source, info)

    def _directory(self, path: str, source: str, mode: int) -> None:
        os.mkdir(path)
        os.chmod(path, mode)
        self._enter(path, source)

    def _enter(self, path: str, source: str) -> None:
        """Create all below a directory; that of the root is the empty path."""
        names = set(self._children.get(path or "/", ()))
        if self._marks[path or "/"] == OPEN:
            with suppress(OSError):  # it does not exist, or we may not read it
                names.update(os.listdir(source))
        for name in sorted(names):
            below = f"{path}/{name}"
            if below not in _OUR_OWN:
                self._lay(below, self._staged.get(below) or f"{source}/{name}")

    def _mark(self, path: str, mark: str) -> None:
        """Mark a path; the directories on the way there are opened, if need be."""
        new = [(path, mark)]
        while path not in self._marks and self._marks.get(path := os.path.dirname(path)) not in (OPEN, EMPTY):
            new.append((path, EMPTY if self._hidden(path) else OPEN))
        for path, mark in reversed(new):
            if path not in self._marks:
                parent, name = os.path.split(path)
                self._children.setdefault(parent, []).append(name)
            self._marks[path] = mark

    def _resolve(self, path: str) -> str:
        """The target of a path in the container, through links as far as they are visible, up to the next mount."""
        resolved, rest, links = "/", _parts(path), 0
        while rest and resolved not in self._taken:
            part = rest.pop(0)
            place = os.path.dirname(resolved) if part == ".." else os.path.join(resolved, part)
            target = self._link(place) if links < _MOST_LINKS else ""
            if target:
                links += 1
                rest[:0] = _parts(target)
                place = "/" if target.startswith("/") else resolved
            resolved = place
        return plain("/".join((resolved, *rest)))

    def _link(self, place: str) -> str:
        """Where a link leads, empty for what is none."""
        if place in self._links and (place.startswith("/dev/") or self._hidden(place)):
            return self._links[place]
        if not self._hidden(place) and os.path.islink(self._at(place)):
            return os.readlink(self._at(place))
        return ""

    def _at(self, path: str) -> str:
        """Where a path of the machine is while the view is built."""
        top = path
        while top != "/":
            if top in self._staged:
                return self._staged[top] + path[len(top) :]
            top = os.path.dirname(top)
        return MACHINE + path

    def _hidden(self, path: str) -> bool:
        """Whether the container does not see the machine's content of a path."""
        while path not in self._marks:
            path = os.path.dirname(path)
        return self._marks[path] not in (OPEN, SHOWN)


def _show(path: str, source: str, info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        os.mkdir(path)
        kernel.bind(source, path)
    elif path.startswith("/etc/") and info.st_size <= _COPY_LIMIT:
        content = content_of(source)
        if content is not None:
            write(path, content, stat.S_IMODE(info.st_mode))
    else:
        write(path, b"", 0o644)
        kernel.bind(source, path)


def _is_of_process(path: str) -> bool:
    """Whether it lies in a directory of /proc whose links lead anywhere, as /proc/self/root does."""
    top, _, name = path.partition("/proc/")
    name = name.partition("/")[0]
    return not top and (name.isdecimal() or name in ("self", "thread-self"))


def plain(path: str) -> str:
    """An absolute path that is written in the shortest way."""
    return "/" + os.path.normpath(path).lstrip("/")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _of_use(info: os.stat_result) -> bool:
    """Not a socket, a pipe or a device: those lead out of the container."""
    return stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)


def content_of(path: str) -> bytes | None:
    """The content of a file, None if it does not exist or we may not read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = b""
        while piece := os.read(descriptor, _CHUNK):
            content += piece
        return content
    except OSError:
        return None
    finally:
        os.close(descriptor)


def write(path: str, content: bytes, mode: int) -> None:
    """Create a file.  Never changes an existing one, which may be the machine's."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
