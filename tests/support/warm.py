"""Lets tests start `subak` without the quarter of a second in which Python imports it.

`make test` starts it hundreds of times, and importing it was a quarter of all work.  After `install()`, whoever starts
`python -m subak.cli ...` or `subak ...` by `subprocess` gets a process that was forked from one which has imported it
(`nest`), and is else the same: a child of ours with the same words, environment, directory and descriptors.  Where it
would not be the same (another user, a `preexec_fn`, a preloaded library) the command starts as ever.  So it does in
`make test-long`, and wherever a shell or another program starts it.
"""

from __future__ import annotations

import functools
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.nest import CLONE, MOST_DESCRIPTORS, Order

ROOT = Path(__file__).parents[2]
MODULE = ("-m", "subak.cli")
SCRIPTS = [os.path.join(os.path.dirname(sys.executable), name) for name in ("subak", "kubectl-subak")]
AT_START = (b"PYTHON", b"LC_", b"LANG", b"LD_", b"SSL_", b"TZ", b"OPENSSL", b"MALLOC_", b"GLIBC_")
"""How the names of variables begin that count when a program begins, and not later: each nest has its own."""
LATER = (b"PYTHONIOENCODING",)
"""Those of them that a nest heeds."""
PRELOAD = b"LD_PRELOAD"

Variables = frozenset[tuple[bytes, bytes]]

nests: set[int] = set()
"""The processes that commands are forked from; they are children of this one."""

_fork_exec = getattr(subprocess, "_fork_exec", None)


def install() -> None:
    """Start commands so in this process, from now on."""
    if CLONE and _fork_exec:
        setattr(subprocess, "_fork_exec", functools.partial(_start, Nests()))  # noqa: B010
        setattr(subprocess, "_USE_POSIX_SPAWN", False)  # noqa: B010 - Python 3.13 prefers it to _fork_exec


class Nests:
    """The processes that commands are forked from, each with other variables; they are begun when they are worth it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._begun: dict[Variables, socket.socket | None] = {}
        self._wanted = {_at_start(os.environb)}

    def fork(self, order: Order, descriptors: Sequence[int]) -> int:
        """Start a command; gives its process, or 0 if that is not possible or not worth it."""
        if os.getpid() != self._owner or PRELOAD in order.env:
            return 0
        with self._lock:
            orders = self._having(_at_start(order.env))
            if orders is None:
                return 0
            try:
                socket.send_fds(orders, [pickle.dumps(order)], descriptors)
            except OSError:  # it is too large
                return 0
            return _answer(orders)

    def _having(self, variables: Variables) -> socket.socket | None:
        """A nest that has them: from the first command on for those that we have, else from the second on."""
        if variables not in self._wanted:
            self._wanted.add(variables)
            return None
        if variables not in self._begun:
            self._begun[variables] = _begin(dict(variables))
        return self._begun[variables]


def _begin(variables: Mapping[bytes, bytes]) -> socket.socket | None:
    """Begin a nest that has these variables; None if it cannot be forked, as a process of several threads cannot."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nest", str(theirs.fileno())],
            env={b"PATH": os.environb[b"PATH"], **variables, b"OPENBLAS_NUM_THREADS": b"1"},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    process.returncode = 0  # nobody waits for it: it ends when we do
    nests.add(process.pid)
    return ours if _answer(ours) == 1 else None


def _start(begun: Nests, *given: Any) -> int:
    """What `subprocess` calls to start a program, in its own order."""
    assert _fork_exec is not None
    args, programs, close_fds, keep, cwd, variables, stdin, _, _, stdout, _, stderr, _, error_pipe = given[:14]
    _, session, group, gid, gids, uid, umask, preexec_fn = given[14:22]
    words = _words(tuple(map(os.fsdecode, args)), programs)
    env = dict(os.environb) if variables is None else dict(each.split(b"=", 1) for each in variables)
    directory = os.path.abspath(os.fsdecode(cwd or "."))
    as_ours = close_fds and preexec_fn is None and (gid, gids, uid, umask) == (None, None, None, -1)
    if words and as_ours and os.path.isdir(directory) and len(keep) < MOST_DESCRIPTORS - 3:
        streams = [number if own < 0 else own for number, own in enumerate((stdin, stdout, stderr))]
        more = [each for each in keep if each != error_pipe]
        order = Order(words, env, directory, (0, 1, 2, *more), session, group, _umask())
        if process := begun.fork(order, [*streams, *more]):
            return process
    return int(_fork_exec(*given))


def _words(args: tuple[str, ...], programs: Sequence[bytes]) -> tuple[str, ...] | None:
    """The words of a command that is `subak`."""
    program = next((os.fsdecode(each) for each in programs if os.access(each, os.X_OK)), None)
    if program == sys.executable and args[1:3] == MODULE:
        return args[1:]
    return (program, *args[1:]) if program in SCRIPTS else None


def _answer(orders: socket.socket) -> int:
    answer = orders.recv(64)
    return int(pickle.loads(answer)) if answer else 0


def _at_start(env: Mapping[bytes, bytes]) -> Variables:
    return frozenset((name, value) for name, value in env.items() if name.startswith(AT_START) and name not in LATER)


def _umask() -> int:
    """Ours, which nobody can ask for without setting it."""
    before = os.umask(0o077)
    os.umask(before)
    return before
