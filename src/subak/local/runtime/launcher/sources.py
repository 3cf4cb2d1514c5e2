"""What a container gets of the machine's files: each is opened once, and handed over as a descriptor.

A path that is looked up twice may lead elsewhere the second time, if a tenant can write to a directory on the way.  So
nothing here is checked by its path and mounted by its path: what was opened is what is mounted.  Below a directory
where tenants write, no link leads out.

The machine's root opens them before the container is born: it may pass directories that root inside, who is a stranger
to the machine, may not.  An ordinary user can do so only in the container's own namespaces.
"""

from __future__ import annotations

import errno
import os
import stat

from . import ids, mounts
from .bare import suppress
from .program import NotStarted
from .tree import SHOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .order import Mount, Order

UNPREPARED = 0
"""The exit code of a container that was not even made, because a part of a volume cannot be had."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE = mounts.READ_ONLY | mounts.NO_SUID | mounts.NO_EXEC
"""Programs can still write to a read-only device, but its owner and mode are the machine's."""
_PROGRAM = mounts.READ_ONLY | mounts.NO_SUID | mounts.NO_DEV
_VOLUME = mounts.NO_SUID | mounts.NO_DEV
_FOR_ALL = 0o006


class Sources:
    """Open descriptors of mounts that are attached nowhere, and what goes with them."""

    def __init__(self, order: Order, privileged: bool) -> None:
        """Open all that the order names; `privileged`: as the machine's root, for a container with shifted ids.

        Raises OSError, and NotStarted for a part of a volume.
        """
        self.mounts = [_volume(mount, privileged) if mount["source"] else -1 for mount in order["mounts"]]
        """In the order of the mounts; -1 for those without a source."""
        self.shown: dict[str, int] = {}
        self.links: dict[str, str] = {}
        """The targets of links among what is shown."""
        self.devices: dict[str, int] = {}
        self.closed: dict[str, str] = {}
        """Of devices that are not for everybody: names of copies in the file system `copies`."""
        self.copies = -1
        for path in (path for path, mark in order["marks"].items() if mark == SHOWN):
            self._show(path)
        for path in (*(f"/dev/{name}" for name in _DEVICES), *order["devices"]):
            if path not in self.devices and path not in self.closed:
                self._device(path, privileged)

    def close(self) -> None:
        """Forget them; another process may have them still."""
        for descriptor in {*self.mounts, *self.shown.values(), *self.devices.values(), self.copies} - {-1}:
            os.close(descriptor)

    def _show(self, path: str) -> None:
        with suppress(FileNotFoundError, PermissionError), _Opened(path, os.O_NOFOLLOW) as place:
            if stat.S_ISLNK(os.fstat(place).st_mode):
                self.links[path] = os.readlink("", dir_fd=place)
            else:
                self.shown[path] = mounts.clone(place, _PROGRAM)

    def _device(self, path: str, privileged: bool) -> None:
        try:
            with _Opened(path) as place:
                if not (privileged and self._copy(path, os.fstat(place))):
                    self.devices[path] = mounts.clone(place, _DEVICE)
        except FileNotFoundError:
            raise OSError(errno.ENOENT, f"the machine has no device {path}") from None

    def _copy(self, path: str, info: os.stat_result) -> bool:
        """Make a copy of a device that is not for everybody: with the same owner and group, as they are inside."""
        device = stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode)
        if not device or info.st_mode & _FOR_ALL == _FOR_ALL:
            return False
        if self.copies < 0:
            self.copies = mounts.memory(mounts.NO_SUID | mounts.NO_EXEC)
        name = str(len(self.closed))
        try:
            os.mknod(name, info.st_mode, info.st_rdev, dir_fd=self.copies)
        except PermissionError:  # only the machine's own root may make devices, not that of a container around us
            return False
        user, group = ids.of_root()
        os.chown(name, user + info.st_uid, group + info.st_gid, dir_fd=self.copies)
        os.chmod(name, stat.S_IMODE(info.st_mode), dir_fd=self.copies)
        self.closed[path] = name
        return True


def able() -> bool:
    """Whether this process may open sources in its own namespaces."""
    try:
        with _Opened("/dev/null") as place:
            os.close(mounts.clone(place, _DEVICE))
    except PermissionError:
        return False
    return True


class concerning:  # noqa: N801 - read as a verb
    """Errors name the mount as its user knows it."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            what = f"mount {self._mount['source'] or 'a tmpfs'} at {self._mount['destination']}"
            raise OSError(error.errno, f"{what}: {os.strerror(error.errno or 0)}") from error


def _volume(mount: Mount, privileged: bool) -> int:
    flags = _VOLUME | (mounts.READ_ONLY if mount["read_only"] else 0)
    with concerning(mount), _Opened(mount["source"], os.O_NOFOLLOW if mount["no_link"] else 0) as root:
        if stat.S_ISLNK(os.fstat(root).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not mount["beneath"]:
            return mounts.clone(root, flags)
        try:
            mode = stat.S_IMODE(os.fstat(root).st_mode)
            part = directory_beneath(root, mount["beneath"], mode, privileged and not mount["true_ids"])
        except OSError as error:
            raise NotStarted(UNPREPARED, mount["refusal"], error.errno or 0) from error
        try:
            return mounts.clone(part, flags)
        finally:
            os.close(part)


def directory_beneath(root: int, path: str, mode: int, given: bool = False) -> int:
    """What is at a path in a volume; directories that are missing are made, with this mode, `given` to root inside."""
    with suppress(FileNotFoundError):
        return mounts.open_beneath(root, path)
    place, names = os.dup(root), path.split("/")
    before = os.umask(0)
    try:
        for depth, name in enumerate(names, 1):
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=place)
                if given:
                    give(place, name, *ids.of_root())
            # From the root again, since this may be a link to elsewhere in the volume.
            following = mounts.open_beneath(root, "/".join(names[:depth]), os.O_DIRECTORY)
            os.close(place)
            place = following
        return os.dup(place)
    finally:
        os.close(place)
        os.umask(before)


def give(parent: int, name: str, user: int, group: int) -> None:
    """Give a directory that we have just made away; what a tenant may have put in its place is left alone."""
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(made).st_uid == os.geteuid():
            os.fchown(made, user, group)
    finally:
        os.close(made)


class _Opened:
    """A place of the machine, open inside `with`."""

    def __init__(self, path: str, flags: int = 0) -> None:
        self._descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
