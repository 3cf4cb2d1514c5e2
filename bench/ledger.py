"""What a core's own ledger says at the end, beside what is true: nobody lost, nothing overcommitted, everybody told."""

from __future__ import annotations

import random

import msgspec

from bench.driver import Driver
from subak.policy.explain import explain

ASKED = 50
"""So many of those who wait are explained anew, to compare with what they were told last."""


class Ledger(msgspec.Struct, frozen=True):
    """Counts of pods and cards.  `lost` run and hold nothing, `ghosts` hold something and have left.

    Of those who wait some were `asked`: `word_for_word` were told last what would be said now, `same_reasons` the same
    reasons at least; of those told something else the longest ago, it was so many seconds (`oldest`).
    """

    running: int
    lost: int
    ghosts: int
    overcommitted: int
    waiting: int
    in_line: int
    untold: int
    asked: int
    word_for_word: int
    same_reasons: int
    oldest: float

    @property
    def sound(self) -> bool:
        """Whether all is as it must be, apart from how old the reasons are."""
        wrong = self.lost or self.ghosts or self.overcommitted or self.untold
        return not wrong and self.waiting == self.in_line

    def __str__(self) -> str:
        return (
            f"{self.running:,} pods hold cards, {self.lost:,} are lost, {self.ghosts:,} have left and still hold some, "
            f"{self.overcommitted:,} cards are overcommitted; {self.waiting:,} pods wait ({self.in_line:,} in line), "
            f"{self.untold:,} were never told why; of {self.asked:,} that were asked, {self.word_for_word:,} were told "
            f"what would be said now, {self.same_reasons:,} the same reasons, the others up to {self.oldest:.1f} s ago"
        )


def read(driver: Driver, seed: int) -> Ledger:
    """Read the ledger of the driver's core."""
    core, snapshot = driver.core, driver.core.snapshot
    there = {key for key, pod in driver.pods.items() if pod.spec.node_name}
    cards = [card for node in snapshot for card in snapshot.cards(node.name)]
    waiting = driver.waiting()
    asked = random.Random(seed).sample(waiting, min(ASKED, len(waiting)))
    now = {key: explain(snapshot, core.interpreter.request(driver.pods[key])) for key in asked if key in driver.told}
    told = {key: driver.told[key] for key in now}
    other = [key for key, why in now.items() if told[key].message != str(why)]
    return Ledger(
        running=len(snapshot.bookings),
        lost=len(there - snapshot.bookings.keys()),
        ghosts=len(snapshot.bookings.keys() - there),
        overcommitted=sum(min(card.memory_free, card.cores_free) < 0 for card in cards),
        waiting=len(waiting),
        in_line=len(core),
        untold=sum(key not in driver.told for key in waiting),
        asked=len(asked),
        word_for_word=len(now) - len(other),
        same_reasons=sum(told[key].reasons == why.reasons.keys() for key, why in now.items()),
        oldest=max((driver.now - told[key].at for key in other), default=0.0),
    )
