"""What each container has and uses of each of its cards, as the monitor sees it: one row for both.

A tenant that has not touched a card uses nothing of it, which is known; a tenant without our library, or with a region
that cannot be read, uses nobody knows how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from subak.model.device import FULL_CORES, Device
from subak.node import regions, usage
from subak.node.monitor.monitor import Moment, Seen
from subak.node.monitor.words import Word, Work
from subak.node.tenant import Tenant
from subak.node.usage import Use

NOTHING = Use(0, 0)


@dataclass(frozen=True, slots=True)
class Measure:
    """One container on one card.  `use` is None if unknown, `time_limit` the share of the card's time, 1 for all of it.

    Containers that count together have the same limits, which hold for all of them, and their `time_seconds` and
    `last_launch` stand with the first of them.
    """

    namespace: str
    pod: str
    container: str
    device: Device
    memory_limit_bytes: int
    time_limit: float
    use: Use | None
    word: Word
    time_seconds: float | None = None
    last_launch: int | None = None


def measures(seen: Iterable[Seen], now: Moment) -> Iterator[Measure]:
    """The rows of all tenants."""
    for each in seen:
        uses = _uses(each.tenant, now)
        for position in each.tenant.containers:
            yield from _of_container(each, position, None if uses is None else uses.get(position, {}), now)


def _uses(tenant: Tenant, now: Moment) -> Mapping[int, Mapping[str, Use]] | None:
    """What the containers use; None if nobody knows."""
    if tenant.region is None:
        return None
    try:
        region = regions.read(tenant.region, now.monotonic_ns)
    except regions.Missing:
        return {}
    except regions.NoRegion:
        return None
    return usage.by_container(region, sorted(tenant.containers))


def _of_container(seen: Seen, position: int, uses: Mapping[str, Use] | None, now: Moment) -> Iterator[Measure]:
    tenant, glance = seen.tenant, seen.glance
    first = position == min(tenant.containers)
    for device in {held.device.id: held.device for held in tenant.cards}.values():
        shares = [held.share for held in tenant.cards if held.device.id == device.id]
        cores = sum(share.cores for share in shares)
        charged = None if glance is None else glance.charged_ns.get(device.id)
        yield Measure(
            tenant.pod.namespace,
            tenant.pod.name,
            tenant.containers[position],
            device,
            sum(share.memory_bytes for share in shares),
            min(1.0, cores / (device.cores or FULL_CORES)) if cores else 1.0,
            None if uses is None else _counted(uses.get(device.id, NOTHING), seen, device.id),
            seen.words.get(device.id, Word.NOTHING),
            # More time than the machine has been up is a scribble.
            charged / 1e9 if first and charged is not None and charged <= now.monotonic_ns else None,
            glance.last_kernel if first and glance is not None else None,
        )


def _counted(use: Use, seen: Seen, card: str) -> Use:
    """What is known of a use: nobody counts the time of who works while its share is lifted."""
    free = Word.LIFTED in seen.words.get(card, Word.NOTHING) and seen.work[card] is Work.SOME
    return Use(use.memory_bytes, None) if free else use
