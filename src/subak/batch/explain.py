"""Why a gang waits, in one sentence with numbers:

    5 of 8 members fit; 3 lack a card with 16 GiB free; queue a holds 40 of its deserved 48 GiB of NVIDIA memory

`Outlook` is all that the sentence needs to know, in plain numbers; `outlook` reads it from a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from subak.batch import wording
from subak.batch.amounts import Amounts
from subak.batch.world import FINISHED, HOLDING, Job, Queue, State, Status
from subak.model.reason import Reason
from subak.model.request import Claim, Request

CARD_REASONS = frozenset(
    {
        Reason.CARD_INSUFFICIENT_MEMORY,
        Reason.CARD_INSUFFICIENT_CORE,
        Reason.CARD_COMPUTE_UNITS_EXHAUSTED,
        Reason.CARD_TIME_SLICING_EXHAUSTED,
        Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT,
        Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST,
        Reason.NODE_INSUFFICIENT_DEVICE,
    }
)
"""Reasons that a card with more room would cure."""


@dataclass(frozen=True, slots=True)
class Lack:
    """So many members find no place, because they lack this."""

    members: int
    what: str


@dataclass(frozen=True, slots=True)
class Share:
    """What a queue holds of what it deserves, in the dimension in which it is nearest to the end of it."""

    dimension: str
    held: float
    deserved: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a gang that waits stands.

    `needed` members start together, so many are `there`, `bound` ones have their places for good, for `kept` ones a
    place is kept that `leaving` pods have yet to leave.  `fitting` ones had places together when they were last tried,
    the bound ones among them; None if they have not been tried.  `short` roles are those of which members are missing:
    their name, how many are there, how many are needed.  `lacks` says why the others do not fit, `held_back` why the
    gang is not tried at all.  `missing` and `refusal` are about its object.  `state` of its queue is empty if there is
    no such queue.  A part that runs alone is evicted after `seconds_left`.
    """

    needed: int
    there: int
    bound: int = 0
    kept: int = 0
    leaving: int = 0
    fitting: int | None = None
    short: tuple[tuple[str, int, int], ...] = ()
    lacks: tuple[Lack, ...] = ()
    held_back: str = ""
    missing: str = ""
    refusal: str = ""
    queue: str = ""
    state: str = State.OPEN.value
    share: Share | None = None
    seconds_left: float | None = None


def outlook(
    job: Job,
    queue: Queue | None,
    *,
    fitting: int | None = None,
    lacks: Iterable[Lack] = (),
    held_back: str = "",
    missing: str = "",
    refusal: str = "",
    leaving: int = 0,
    deserved: Amounts | None = None,
    seconds_left: float | None = None,
) -> Outlook:
    """How a job stands in its queue, None if that is not there; what the job does not know comes as arguments."""
    there = len(job.tasks) - job.counts[Status.FAILED] - job.counts[Status.RELEASING]
    roles = Counter(task.role for task in job.tasks.values() if task.status not in (Status.FAILED, Status.RELEASING))
    return Outlook(
        needed=job.min_member,
        there=there,
        bound=job.count(*HOLDING, *FINISHED - {Status.FAILED}),
        kept=job.counts[Status.PIPELINED],
        leaving=leaving,
        fitting=fitting,
        short=tuple((role, roles[role], least) for role, least in sorted(job.min_roles.items()) if roles[role] < least),
        lacks=tuple(lacks),
        held_back=held_back,
        missing=missing,
        refusal=refusal,
        queue=job.queue,
        state="" if queue is None else queue.state.value,
        share=None if queue is None or deserved is None else share(queue.held, deserved, job.asked),
        seconds_left=seconds_left,
    )


def share(held: Amounts, deserved: Amounts, among: Collection[str]) -> Share | None:
    """The dimension, of those that a gang asks for, in which a queue has the largest part of what it deserves.

    Memory of cards comes before all others: it is what most gangs wait for.
    """
    names = [name for name in among if name in deserved and name != "pods"]
    if not names:
        return None
    name = max(names, key=lambda each: (each.endswith("/memory"), held.get(each, 0) / (deserved[each] or 1), each))
    return Share(name, held.get(name, 0), deserved[name])


def sentence(outlook: Outlook) -> str:
    """Why the gang waits; says what its user can do about it first, and what will help by itself last."""
    return obstacle(outlook) or "; ".join(part for part in _parts(outlook) if part)


def obstacle(outlook: Outlook) -> str:
    """What stands in the way before anything is tried; empty if nothing does."""
    if outlook.refusal:
        return outlook.refusal
    if outlook.missing:
        return outlook.missing
    if outlook.bound and outlook.bound < outlook.needed:
        return ""
    if not outlook.state:
        return f"there is no queue {outlook.queue}"
    if outlook.state != State.OPEN.value:
        return f"queue {outlook.queue} is {outlook.state.lower()}: it takes no new members"
    if outlook.there < outlook.needed:
        return f"{outlook.there:,} of {_members(outlook.needed)} {_are(outlook.there)} there"
    if outlook.short:
        return "; ".join(f"{there:,} of {_members(least)} of {role} are there" for role, there, least in outlook.short)
    return outlook.held_back


def for_member(gang: str, outlook: Outlook) -> str:
    """The same for one of its pods."""
    return introduction(gang) + sentence(outlook)


def introduction(gang: str) -> str:
    """How that begins."""
    return f"waits with its gang {gang}: "


def lacking(request: Request, reasons: Collection[str] = (), detail: str = "") -> str:
    """What a request that fits nowhere lacks; `detail` is what it was told, and `reasons` are those of nodes in it."""
    claim = next(iter(request.claims), None)
    if detail and CARD_REASONS.isdisjoint(reasons):
        return f"a place: {detail}"
    return _node(request) if claim is None else _card(claim)


def duration(seconds: float) -> str:
    """A time to wait, roughly."""
    whole = max(round(seconds), 0)
    if whole < 100:
        return f"{whole} s"
    return f"{round(whole / 60)} min" if whole < 100 * 60 else f"{round(whole / 3_600)} h"


def _parts(outlook: Outlook) -> list[str]:
    parts = []
    more = outlook.needed - outlook.bound
    if outlook.kept:
        others = f"{outlook.leaving:,} {_pods(outlook.leaving)}" if outlook.leaving else "others have"
        parts.append(f"{outlook.kept:,} of {_members(outlook.needed)} get their places as soon as {others} left")
    elif outlook.bound and more > 0:
        parts.append(f"{outlook.bound:,} of {outlook.needed:,} {_are(outlook.bound)} bound")
        if outlook.seconds_left is not None:
            get = "gets" if more == 1 else "get"
            parts.append(f"evicted in {duration(outlook.seconds_left)} unless {more:,} more {get} a place")
    elif outlook.fitting is not None:
        all = max(outlook.needed, outlook.fitting)
        parts.append(f"{outlook.fitting:,} of {_members(all)} {'fits' if outlook.fitting == 1 else 'fit'}")
    else:
        parts.append(f"{_members(outlook.there)} wait to be tried" if outlook.there != 1 else "it waits to be tried")
    parts += [f"{lack.members:,} {'lacks' if lack.members == 1 else 'lack'} {lack.what}" for lack in outlook.lacks]
    if outlook.bound < outlook.needed and outlook.held_back:
        parts.append(outlook.held_back)
    queue = f"queue {outlook.queue}"
    if outlook.share is not None and not any(queue in part for part in parts):
        parts.append(f"{queue} holds {_of(outlook.share)}")
    return parts


def _of(share: Share) -> str:
    """Held of deserved, in words."""
    held = wording.figure(share.dimension, share.held)
    deserved = wording.words(share.dimension, share.deserved)
    unit = f" {held.partition(' ')[2]}"
    return f"{held.removesuffix(unit) if unit in deserved else held} of its deserved {deserved}"


def _card(claim: Claim) -> str:
    """The cards that a claim asks for."""
    free = []
    if claim.memory_bytes:
        free.append(wording.in_bytes(claim.memory_bytes))
    elif claim.memory_percent and not claim.idle:
        free.append(f"{claim.memory_percent} % of its memory")
    if claim.cores and not claim.idle:
        free.append(f"{claim.cores} % of its cores")
    one = claim.count == 1
    if claim.idle or not free:
        return "a card that nobody uses" if one else f"{claim.count:,} cards on one node that nobody uses"
    cards = "a card" if one else f"{claim.count:,} cards on one node"
    return f"{cards} with {_listed(free)} free{'' if one else ' each'}"


def _node(request: Request) -> str:
    asked = [wording.words(name, value) for name, value in request.needs.resources if name != "pods" and value]
    return f"a node with {_listed(asked)} free" if asked else "a node that takes them"


def _listed(words: Collection[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _members(count: int) -> str:
    return f"{count:,} {'member' if count == 1 else 'members'}"


def _pods(count: int) -> str:
    return "pod has" if count == 1 else "pods have"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
