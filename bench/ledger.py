"""Compares a core's ledger with the true state: no pod lost, no card overcommitted, a report for every waiting pod."""

from __future__ import annotations

import random

import msgspec

from bench.driver import Driver
from subak.policy.explain import explain

ASKED = 50
"""How many waiting pods are explained again, to compare with their last reports."""


class Ledger(msgspec.Struct, frozen=True):
    """Counts of pods and cards.  `lost` pods run and hold nothing, `leaked` ones have left and still hold something.

    Some waiting pods are `asked`: for `word_for_word` of them the last report says what an explanation says now, for
    `same_reasons` at least the reasons are the same; the oldest different report is `oldest` seconds old.
    """

    running: int
    lost: int
    leaked: int
    overcommitted: int
    waiting: int
    in_line: int
    silent: int
    asked: int
    word_for_word: int
    same_reasons: int
    oldest: float

    @property
    def sound(self) -> bool:
        """Whether everything is correct, apart from the age of the reports."""
        wrong = self.lost or self.leaked or self.overcommitted or self.silent
        return not wrong and self.waiting == self.in_line

    def __str__(self) -> str:
        return (
            f"{self.running:,} pods hold cards, {self.lost:,} are lost, {self.leaked:,} have left and still hold some, "
            f"{self.overcommitted:,} cards are overcommitted; {self.waiting:,} pods wait ({self.in_line:,} in line), "
            f"{self.silent:,} were never told why; of {self.asked:,} that were asked, {self.word_for_word:,} were told "
            f"what would be said now, {self.same_reasons:,} the same reasons, the others up to {self.oldest:.1f} s ago"
        )


def read(driver: Driver, seed: int) -> Ledger:
    """Read the ledger of the driver's core."""
    core, snapshot = driver.core, driver.core.snapshot
    there = {key for key, pod in driver.pods.items() if pod.spec.node_name}
    cards = [card for node in snapshot for card in snapshot.cards(node.name)]
    waiting = driver.waiting()
    asked = random.Random(seed).sample(waiting, min(ASKED, len(waiting)))
    now = {
        key: explain(snapshot, core.interpreter.request(driver.pods[key])) for key in asked if key in driver.reported
    }
    last = {key: driver.reported[key] for key in now}
    other = [key for key, why in now.items() if last[key].message != str(why)]
    return Ledger(
        running=len(snapshot.bookings),
        lost=len(there - snapshot.bookings.keys()),
        leaked=len(snapshot.bookings.keys() - there),
        overcommitted=sum(min(card.memory_free, card.cores_free) < 0 for card in cards),
        waiting=len(waiting),
        in_line=len(core),
        silent=sum(key not in driver.reported for key in waiting),
        asked=len(asked),
        word_for_word=len(now) - len(other),
        same_reasons=sum(last[key].reasons == why.reasons.keys() for key, why in now.items()),
        oldest=max((driver.now - last[key].at for key in other), default=0.0),
    )
