"""Which directories of this machine a container sees, and which are private.

Users expect that a container can start every program that they can start on this machine, and that it can neither
change nor read their own files.  So:

- the places where programs and libraries lie (`/usr`, `/opt`, `/nix`, ...) and `/etc` are visible, read-only, as far as
  the container may read them: under root, what every user of the machine may read; under an ordinary user, what that
  user may read;
- of all other directories of the root, a container sees nothing.  Those that programs expect (`/tmp`, `/var`, `/srv`,
  home directories, ...) start empty: data, keys, tokens, histories and sockets stay outside.  A pod that needs
  something from there mounts it as a volume (`hostPath`);
- programs are the exception: if the interpreter that runs Subak or a directory of the PATH lies in such a place (pyenv,
  conda, a virtual environment, `~/.local/bin`), that installation is visible, and nothing beside it.  A pod names it by
  its path or sets PATH itself, since containers do not inherit the PATH of the user who started the cluster.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from subak.local.runtime.launcher.tree import COPIED, EMPTY, OMITTED, OPEN, SHOWN
from subak.local.runtime.spec import USUAL_PATH

_EMPTY = ("/boot", "/home", "/media", "/mnt", "/root", "/run", "/srv", "/tmp", "/var")
_OPEN = ("/etc", "/opt", "/usr", "/usr/local")
_SHOWN = ("/bin", "/gnu", "/lib", "/lib32", "/lib64", "/libo32", "/libx32", "/nix", "/sbin")
_OPEN_IN_LOCAL = ("bin", "etc", "games", "include", "lib", "lib64", "libexec", "sbin", "share", "src")
_SYSTEM = ("/", "/bin", "/dev", "/etc", "/lib", "/opt", "/proc", "/sbin", "/sys", "/usr")
"""Directories that stay visible even if they are an account's home, as for some system accounts."""
_FIRST_PERSON = 1000
"""The lowest user id of a person."""

_PROGRAM_DIRECTORIES = ("bin", "sbin", "shims", "condabin")
_PARTS = ("bin", "include", "lib", "lib64", "libexec", "sbin")
"""The visible parts of `~/.local`; its `share` holds other things."""


def look(hide: Iterable[str | Path] = (), environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """How a container sees the machine's paths: marks, see `launcher.tree`.

    `hide` are further private directories and files, such as those with keys.  The directories of the system itself
    cannot be hidden.
    """
    marks = dict.fromkeys(_OPEN, OPEN)
    marks |= {f"/usr/local/{name}": OPEN for name in _OPEN_IN_LOCAL if Path("/usr/local", name).is_dir()}
    marks |= dict.fromkeys(filter(os.path.lexists, _SHOWN), SHOWN)
    # One of these may be a link to a larger disk.
    marks |= {
        os.path.realpath(path): mark for path, mark in marks.items() if not _inside(os.path.realpath(path), marks)
    }
    visible = list(marks)
    secret = {os.path.realpath(path) for path in (*hide, *_homes(environment))}.difference(_SYSTEM)
    marks |= dict.fromkeys((path for path in secret if not os.path.isdir(path)), OMITTED)
    hidden = {os.path.realpath(path) for path in _EMPTY} | {path for path in secret if os.path.isdir(path)}
    marks |= _etc()
    # Of the homes in /home only our own exists, at least as an empty directory.
    marks |= dict.fromkeys([*_outermost(hidden), *hidden.intersection([os.path.realpath(_home(environment))])], EMPTY)
    marks |= dict.fromkeys(_links(("/run",)), SHOWN)  # NixOS finds its programs through links there
    marks |= dict.fromkeys(_programs(_directories(environment), visible, hidden), SHOWN)
    return marks


def search_path(environment: Mapping[str, str] = os.environ) -> str:
    """The PATH of containers: the usual one, as in every image.

    It is the PATH of this process where the usual places hold no programs, as on NixOS.
    """
    usual = any(os.path.exists(os.path.join(path, "sleep")) for path in USUAL_PATH.split(":"))
    return USUAL_PATH if usual else ":".join(_directories(environment))


def _directories(environment: Mapping[str, str]) -> list[str]:
    """The directories of the PATH that exist, each once."""
    paths = environment.get("PATH", "").split(":")
    return list(dict.fromkeys(path for path in paths if os.path.isabs(path) and os.path.isdir(path)))


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME", "/")


def _homes(environment: Mapping[str, str]) -> Iterator[str]:
    """The home directories of the user and of all other people."""
    found = [_home(environment)]
    try:
        lines = Path("/etc/passwd").read_text(errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    for line in lines:
        fields = line.split(":")
        if len(fields) > 5 and fields[2].isdecimal() and int(fields[2]) >= _FIRST_PERSON:
            found.append(fields[5])
    yield from (path for path in found if os.path.isabs(path) and os.path.isdir(path))


def _etc() -> dict[str, str]:
    """The marks in /etc: directories to which packages add files are open."""
    marks = {}
    for entry in _entries("/etc"):
        if entry.is_symlink():
            # A link such as resolv.conf, to a place that the container does not see.
            if os.path.realpath(entry).startswith(("/run/", "/var/")) and _public(os.path.realpath(entry)):
                marks[entry.path] = COPIED
        elif entry.is_dir() and entry.name.endswith(".d"):
            marks[entry.path] = OPEN
    return marks


def _public(path: str) -> bool:
    """Whether everybody may read a file or directory."""
    needed = 0o5 if os.path.isdir(path) else 0o4
    try:
        return os.stat(path).st_mode & needed == needed
    except OSError:
        return False


def _programs(directories: Iterable[str], visible: Iterable[str], hidden: Iterable[str]) -> list[str]:
    """The installations in other places that must be visible; none of them inside another."""

    def unseen(path: str) -> bool:
        return _inside(path, hidden) or not _inside(path, visible)

    wanted = {os.path.abspath(path) for path in (sys.prefix, sys.base_prefix)}
    wanted |= {os.path.realpath(path) for path in wanted}
    for directory in directories:
        if unseen(os.path.realpath(directory)):
            wanted.update(_installation(directory), _installation(os.path.realpath(directory)))
            for link in _links((directory,)):
                target = os.path.join(directory, os.readlink(link))
                wanted.update(_installation(os.path.dirname(os.path.normpath(target))))
                wanted.update(_installation(os.path.dirname(os.path.realpath(target))))
    shown = _outermost(path for path in wanted if os.path.lexists(path) and unseen(path))
    return [path for path in shown if not any(_inside(place, [path]) for place in hidden)]


def _installation(directory: str) -> list[str]:
    """What belongs to a directory of programs: the directory itself, or the installation whose `bin` it is."""
    prefix, name = os.path.split(directory)
    whole = name in _PROGRAM_DIRECTORIES and any(
        os.path.isdir(os.path.join(prefix, each)) for each in ("lib", "libexec")
    )
    if not whole:
        return [directory]
    if os.path.basename(prefix) == ".local":
        return [os.path.join(prefix, each) for each in _PARTS]
    return [prefix]


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that lie inside no other."""
    found: list[str] = []
    for path in sorted(paths):
        if not _inside(path, found):
            found.append(path)
    return found


def _inside(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def _links(directories: Iterable[str]) -> list[str]:
    return [entry.path for directory in directories for entry in _entries(directory) if entry.is_symlink()]


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
