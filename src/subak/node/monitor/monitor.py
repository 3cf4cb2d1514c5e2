"""The monitor itself: once a second it looks what every tenant of the node does, and says what holds for it.

It must not be late: libsubak takes a monitor for dead that has said nothing for 3 s.  When the monitor ends it takes
all its words back, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from subak.node import feedback
from subak.node.feedback import Glance
from subak.node.monitor import state
from subak.node.monitor.words import Party, Word, Work, decide
from subak.node.regions import Missing, NoRegion
from subak.node.tenant import Tenant

EVERY = 1.0
WORKS = 3.0
"""Seconds for which a tenant counts as at work after it last had any."""
SKEW = 2.0
"""Seconds by which a report may be ahead of our clock; anything later is a scribble."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by the clocks that regions use: the monotonic one, and seconds since the epoch."""

    monotonic_ns: int
    seconds: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        return cls(time.monotonic_ns(), time.time())


@dataclass(frozen=True, slots=True)
class Seen:
    """A tenant as it was seen last, what it did on each of its cards, and what holds for it there.

    `glance` is None where its region says nothing, or where it has none yet.
    """

    tenant: Tenant
    glance: Glance | None
    work: dict[str, Work]
    words: dict[str, Word] = field(default_factory=dict)


class Monitor:
    """Watches the tenants that `tenants` lists; `seen` is what was seen in the last round."""

    def __init__(self, tenants: Callable[[], Iterable[Tenant]]) -> None:
        self._tenants = tenants
        self.seen: Sequence[Seen] = ()
        self.rounds = 0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        try:
            while True:
                began = time.monotonic()
                await self._round()
                await asyncio.sleep(max(0.0, EVERY - (time.monotonic() - began)))
        finally:
            take_back(each.tenant for each in self.seen)
            self.seen = ()

    async def _round(self) -> None:
        """One look, in a thread, because a disk may be slow.  Who is cancelled meanwhile still waits for it to end."""
        looking = asyncio.create_task(asyncio.to_thread(look, list(self._tenants()), Moment.now()))
        try:
            await asyncio.shield(looking)
        finally:
            self.seen = await looking
            self.rounds += 1


def look(tenants: Iterable[Tenant], now: Moment) -> list[Seen]:
    """Look at all tenants, decide what holds for each, and tell them."""
    seen = [_look_at(tenant, now) for tenant in tenants]
    words = decide(Party(each.tenant.name, each.work, each.tenant.priority, each.tenant.policy) for each in seen)
    for each in seen:
        each.words.update(words[each.tenant.name])
        _tell(each, now)
    return seen


def take_back(tenants: Iterable[Tenant]) -> None:
    """Say to all tenants that nothing holds but their limits: nobody watches from now on."""
    for tenant in tenants:
        for path in tenant.states:
            _write(path, {}, 0)
        if tenant.region is not None:
            with suppress(NoRegion):
                feedback.instruct(tenant.region, blocked=False, lifted=False)


def _look_at(tenant: Tenant, now: Moment) -> Seen:
    cards = [held.device.id for held in tenant.cards]
    if tenant.region is None:
        return Seen(tenant, None, dict.fromkeys(cards, Work.UNKNOWN))
    try:
        glance = feedback.glance(tenant.region)
    except Missing:
        return Seen(tenant, None, dict.fromkeys(cards, Work.NONE))  # no program has used a card yet
    except NoRegion as problem:
        log.debug("%s", problem)
        return Seen(tenant, None, dict.fromkeys(cards, Work.UNKNOWN))
    return Seen(tenant, glance, {card: work(glance, card, now) for card in cards})


def work(glance: Glance, card: str, now: Moment) -> Work:
    """Whether a tenant works on a card, as it reports."""
    if card in glance.worked_ns:
        silent = (now.monotonic_ns - glance.worked_ns[card]) / 1e9
    else:
        silent = int(now.seconds) - glance.last_kernel  # whole seconds
    return Work.SOME if -SKEW <= silent < WORKS else Work.NONE


def _tell(seen: Seen, now: Moment) -> None:
    tenant = seen.tenant
    numbered = {held.number: seen.words[held.device.id] for held in tenant.cards}
    for path in tenant.states:
        _write(path, numbered, now.monotonic_ns)
    if tenant.region is None or seen.glance is None:
        return
    blocked = any(Word.BLOCKED in word for word in numbered.values())
    lifted = bool(numbered) and all(Word.LIFTED in word for word in numbered.values())
    with suppress(NoRegion):
        feedback.instruct(tenant.region, blocked=blocked, lifted=lifted)


def _write(path: Path, words: dict[int, Word], now_ns: int) -> None:
    try:
        state.write(path, words, now_ns)
    except FileNotFoundError:
        return  # the container is going, or was started by another agent
    except OSError as error:
        log.warning("%s: %s; its container is held to its share", path, error.strerror)
