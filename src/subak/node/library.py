"""Where libsubak is: the library that holds a program to its share of a card.

A wheel carries it beside this file.  In a checkout it is what `make -C native` has built.  `native/src/config.c` says
what it reads.
"""

from __future__ import annotations

from pathlib import Path

NAME = "libsubak.so"

PACKAGED = Path(__file__).with_name(NAME)
BUILT = Path(__file__).parents[3] / "native" / "build" / NAME


class NoLibrary(Exception):
    """There is none; the text says what to do about it."""


def find() -> Path:
    """The library of this installation.  Raises NoLibrary."""
    for path in (PACKAGED, BUILT):
        if path.is_file():
            return path
    raise NoLibrary(
        f"{NAME}, which holds programs to their share, is neither at {PACKAGED} nor at {BUILT}: "
        "install subak again, or run `make -C native` in a checkout"
    )
