"""The story of a pod: why it is where it is, in the last few sentences.

A sentence is a word and a detail.  It becomes text only when it is printed, since the scheduler notes some for every
pod that it places.  Events carry no time: they get the time of the cycle that follows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from subak.model.placement import Placement

MOST = 8
"""How many sentences a pod keeps: the latest."""


class Word(StrEnum):
    """What can happen to a pod."""

    SEEN = "seen"
    ASIDE = "set aside"
    QUEUED = "queued"
    WAITS = "waits"
    NOMINATED = "nominated"
    WITHDRAWN = "nomination withdrawn"
    EVICTED = "evicted"
    DECIDED = "decided"
    REFUSED = "binding refused"
    BOUND = "bound"
    PUT_BACK = "record put back"


class Moment(msgspec.Struct, gc=False):
    """The time of a cycle in seconds, shared by all events since the cycle before; None until it begins."""

    at: float | None = None


class Sentence(msgspec.Struct, frozen=True, gc=False):
    """What happened to a pod, and why or where."""

    moment: Moment
    word: Word
    detail: str | Placement = ""

    def __str__(self) -> str:
        detail = self.detail
        if isinstance(detail, Placement):
            cards = dict.fromkeys(share.id for grant in detail.grants for share in grant.shares)
            detail = ", ".join([f"node {detail.node}", *(f"card {card}" for card in cards)])
        at = self.moment.at
        when = "now" if at is None else f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
        return f"{when} {self.word}: {detail}" if detail else f"{when} {self.word}"


Story = tuple[Sentence, ...]


def longer(story: Story, sentence: Sentence) -> Story:
    """The story with one more sentence, unless the last one says the same."""
    if story and (story[-1].word, story[-1].detail) == (sentence.word, sentence.detail):
        return story
    return (*story[1 - MOST :], sentence)


def printed(story: Story) -> str:
    """The whole story in one line."""
    return "; ".join(map(str, story))
