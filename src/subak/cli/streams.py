"""Standard input, output and error, which may be closed, or connected to a file that takes no more."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from subak.cli.say import complain

FAILED = 1


@contextmanager
def guarded() -> Iterator[None]:
    """Run a command with usable streams; if an output takes no more, it ends with one line, not a traceback.

    A closed stream is replaced by /dev/null, so that the next file that we open does not get its number.
    """
    _open_all()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EPIPE:  # the reader has gone, as with `head`: no message needed
            complain([f"{error.filename or 'the output'} cannot be used: {error.strerror or error}"])
        _discard(1)
        _discard(2)
        sys.exit(FAILED)


def _open_all() -> None:
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            _discard(number)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 must not end in a traceback


def _discard(number: int) -> None:
    """Connect a stream to /dev/null, so that pending output fails no more."""
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != number:
        os.dup2(nothing, number)
        os.close(nothing)
    os.set_inheritable(number, True)
