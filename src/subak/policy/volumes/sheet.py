"""Verdicts in the making: one filter after the other adds its refusals for nodes that passed so far."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from subak.model.reason import NodeRefusal
from subak.snapshot.pool import Bools, Verdicts

Codes = npt.NDArray[np.int32]


class Sheet:
    """What is said to the nodes of a pool with so much room; at first to all of them the same."""

    def __init__(self, room: int, refusal: NodeRefusal | None = None) -> None:
        self._code_of: dict[Hashable | None, int] = {None: 0}
        self._codes = np.full(room, self._code(refusal), np.int32)

    @property
    def passing(self) -> Bools:
        """The positions that nothing was said to."""
        passing: Bools = self._codes == 0
        return passing

    def write(self, at: int, refusal: NodeRefusal | None) -> None:
        """What is said to one node, whatever was said before."""
        self._codes[at] = self._code(refusal)

    def add(
        self, codes: npt.NDArray[np.int32], texts: Sequence[NodeRefusal | None], where: Bools | None = None
    ) -> None:
        """What is said to those that pass so far, or only to some of them; `codes` are positions in `texts`."""
        mine = np.array([self._code(text) for text in texts], np.int32)[codes]
        chosen = self.passing if where is None else self.passing & where
        self._codes = np.where(chosen, mine, self._codes)

    def verdicts(self) -> Verdicts:
        """The verdicts of this moment."""
        return Verdicts.of(self._codes, list(self._code_of))

    def _code(self, text: NodeRefusal | None) -> int:
        return self._code_of.setdefault(text, len(self._code_of))
