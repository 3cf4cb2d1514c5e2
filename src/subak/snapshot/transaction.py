"""Several changes of a snapshot that count together, or not at all.

    with snapshot.transaction() as trial:
        snapshot.forget(victim)
        placement = place(snapshot, request)
        if placement is not None:
            snapshot.assume(key, placement, request.needs.resources)
            trial.commit()

Without `commit` the end of the block rolls back.  While a transaction is open, every change notes in the journal how to
undo it, and a rollback undoes the changes in reverse order.  Then columns, logs, score rows, versions, quotas and
wake-ups are what they were, and it costs about as much as the changes did.  Transactions nest: the outer one can roll
back what an inner one has committed.  Nodes do not change within a transaction.

After a rollback the same versions and positions in logs come again.  So code that remembers what the snapshot said
during a transaction must note how to forget it, as score rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

Undo = Callable[[], object]


class Transaction:
    """What the block of a transaction decides."""

    committed = False

    def commit(self) -> None:
        """Keep the changes of the block."""
        self.committed = True


class Journal:
    """How to undo what open transactions have changed.  `depth` is how many are open; nothing is noted at 0."""

    def __init__(self) -> None:
        self.depth = 0
        self._undo: list[Undo] = []

    def note(self, undo: Undo) -> None:
        """Something is about to change; `undo` makes it again what it is now."""
        self._undo.append(undo)

    def keep(self, mapping: dict[Any, Any], key: object) -> None:
        """What stands under this key is about to change."""
        if key in mapping:
            self.note(partial(mapping.__setitem__, key, mapping[key]))
        else:
            self.note(partial(mapping.pop, key, None))

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Undo all changes of the block at its end, unless they were committed."""
        trial, mark = Transaction(), len(self._undo)
        self.depth += 1
        try:
            yield trial
        finally:
            while not trial.committed and len(self._undo) > mark:
                self._undo.pop()()
            self.depth -= 1
            if not self.depth:
                self._undo.clear()
