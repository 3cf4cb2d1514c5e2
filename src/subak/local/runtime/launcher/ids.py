"""Which ids of the machine a container's users and groups have.

Root gives containers ids that nobody on the machine has, so that root inside is a stranger to every file and process of
the machine:

    inside            of the machine
    0 ... 65535       START ... START+65535
    1000680000        one of its own behind these, always the same; only if the container asks for it

All containers have the same ids, today and after a restart: what they write into volumes stays theirs.  Where our own
namespace does not have START, as in a container around us, the ids above 0 that it has are used.

An ordinary user can map only one id: the user that the container asks for is then the user outside.  So it is for root
without further ids or without the right to give them.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .order import Program

START = 0x70000000
"""In systemd's list of ids, those from here to 0x7FFFFFFF belong to nobody."""
_END = 0x80000000
_OWN = "/proc/self"
_USUAL = 0x10000
_LEAST = 1024
"""With fewer ids it is not worth the trouble, and those that a pod asks for might not have room."""
_RIGHTS = 1 << 0 | 1 << 6 | 1 << 7
"""The capabilities CHOWN, SETGID and SETUID."""

Extent = tuple[int, int, int]
"""First id inside, first id outside, how many."""


def shifted() -> bool:
    """Whether the containers of this process have ids that the machine's users do not have."""
    enough = (_range(name)[1] >= _LEAST for name in ("uid_map", "gid_map"))
    return os.geteuid() == 0 and _may_shift() and all(enough)


def of_root() -> tuple[int, int]:
    """The machine's user and group ids of root inside."""
    return of(0, 0)


def of(user: int, group: int) -> tuple[int, int]:
    """The machine's ids of a user and a group inside."""
    if not shifted():
        return os.geteuid(), os.getegid()
    users, groups = extents([user], *_range("uid_map")), extents([group], *_range("gid_map"))
    return outside(user, users), outside(group, groups)


def extents(asked: Iterable[int], start: int, size: int) -> list[Extent]:
    """The map of a container that asks for some ids, from `size` ids of the machine."""
    wanted = sorted(set(asked))
    usual = min(_USUAL, size - len(wanted))
    made = [(0, start, usual)]
    taken: set[int] = set()
    for each in wanted:
        if each >= usual:
            place = each % (size - usual)
            while place in taken:
                place = (place + 1) % (size - usual)
            taken.add(place)
            made.append((each, start + usual + place, 1))
    return made


def users(program: Program) -> list[Extent]:
    """The users of a container whose ids are shifted."""
    return extents([program["uid"]], *_range("uid_map"))


def groups(program: Program) -> list[Extent]:
    """The groups of a container whose ids are shifted."""
    return extents([program["gid"], *program["groups"]], *_range("gid_map"))


def outside(each: int, map: Iterable[Extent]) -> int:
    """What an id inside is on the machine."""
    return next(first + each - inside for inside, first, count in map if inside <= each < inside + count)


def write_maps(process: int, program: Program) -> None:
    """Give the new user namespace of a process its ids."""
    if shifted():
        _write(process, "uid_map", users(program))
        _write(process, "gid_map", groups(program))
    else:
        _write_text(process, "setgroups", "deny")
        _write(process, "uid_map", [(program["uid"], os.geteuid(), 1)])
        _write(process, "gid_map", [(program["gid"], os.getegid(), 1)])


def become_root() -> None:
    """Become root inside, in a user namespace whose ids are shifted.

    Until then this process is the machine's root for every file that it touches.
    """
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def hand_over(streams: Iterable[int], program: Program) -> None:
    """Give pipes to the program's user, so that it may open /dev/stdout.

    A terminal has an owner already, /dev/null must keep its own, and an ordinary user's pipes are the program's anyway.
    """
    if shifted():
        user, group = outside(program["uid"], users(program)), outside(program["gid"], groups(program))
        for stream in streams:
            if stream >= 0 and stat.S_ISFIFO(os.fstat(stream).st_mode):
                os.fchown(stream, user, group)


def _range(name: str) -> tuple[int, int]:
    """The first id for containers, and how many there are: those from START on, or the most above 0 that we have."""
    with open(f"{_OWN}/{name}", encoding="ascii") as file:
        ours = [(int(first), int(first) + int(count)) for first, _, count in (line.split() for line in file)]
    for first, end in ours:
        if first <= START and min(end, _END) - START >= 2 * _USUAL:
            return START, min(end, _END) - START
    first, end = max(((max(first, 1), end) for first, end in ours), key=lambda each: each[1] - each[0], default=(0, 0))
    return first, max(end - first, 0)


def _may_shift() -> bool:
    with open(f"{_OWN}/status", encoding="ascii", errors="replace") as file:
        rights = next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)
    return rights & _RIGHTS == _RIGHTS


def _write(process: int, name: str, map: Iterable[Extent]) -> None:
    _write_text(process, name, "".join(f"{inside} {first} {count}\n" for inside, first, count in map))


def _write_text(process: int, name: str, text: str) -> None:
    # The kernel accepts a map only in one write.
    descriptor = os.open(f"/proc/{process}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
