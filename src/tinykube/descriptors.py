"""How many files and connections this process may have open at once."""

from __future__ import annotations

import resource

ENOUGH = 1 << 16
"""Some machines allow a billion; programs that go through all possible descriptors would take minutes."""


def limit() -> int:
    """The bound that holds now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Raise the bound to what this user may have.  Programs that are started from now on inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
