"""Several changes of a snapshot that count together, or not at all.

    with snapshot.transaction() as trial:
        snapshot.forget(victim)
        placement = place(snapshot, request)
        if placement is not None:
            snapshot.assume(key, placement, request.needs.resources)
            trial.commit()

Without `commit` the block's end rolls back.  While a transaction is open, every change notes in the journal how to undo
it, and a rollback undoes them in reverse order: columns, logs, score rows, versions, quotas and wake-ups are then what
they were, at a cost that follows what was changed.  A transaction may stand in another: what the inner one commits, the
outer one can still roll back.  Pods only: nodes come, change and go outside.  Whoever remembers what the snapshot said
during a transaction must note it too, since versions and positions in logs come again after a rollback.
"""

from __future__ import annotations

from collections.abc import Callable

Undo = Callable[[], None]


class Journal:
    """How to undo what open transactions have changed.  `depth` is how many are open; nothing is noted at 0."""

    __slots__ = ("_undo", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self._undo: list[Undo] = []

    def note(self, undo: Undo) -> None:
        """Something is about to change; `undo` makes it again what it is now."""
        self._undo.append(undo)

    def open(self) -> int:
        """Begin; the mark to which `close` returns."""
        self.depth += 1
        return len(self._undo)

    def close(self, mark: int, keep: bool) -> None:
        """End the innermost transaction, and undo its changes unless they are to be kept."""
        while not keep and len(self._undo) > mark:
            self._undo.pop()()
        self.depth -= 1
        if not self.depth:
            self._undo.clear()


class Transaction:
    """A context manager.  It ends with `commit`, or else with a rollback at the end of its block."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> Transaction:
        self._mark = self._journal.open()
        self._depth = self._journal.depth
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._end(keep=False)

    def commit(self) -> None:
        """Keep all changes; later ones count at once."""
        if not self._open or self._depth != self._journal.depth:
            raise RuntimeError("only the innermost open transaction can be committed, and only once")
        self._end(keep=True)

    def _end(self, keep: bool) -> None:
        self._open = False
        self._journal.close(self._mark, keep)
