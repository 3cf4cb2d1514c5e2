"""The few words by which a node and a tenant speak to each other in the tenant's region, read and written one by one.

The tenant can write all of them.  So what it reports is no more than a report; and what we write there is for
HAMi-core, which knows no other place.  libsubak obeys a file that its tenant cannot write (`monitor.state`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from subak.node import regions

_SWITCH, _RECENT = 2_008_900, 2_008_904
_BEAT = 16
_CHARGED, _WORKED = 16, 248


@dataclass(frozen=True, slots=True)
class Glance:
    """What a look at a few bytes of a region tells: when its tenant last had work for each card.

    `worked_ns` is of the monotonic clock, by the card's UUID.  Where a card is missing, only `last_kernel` is known, in
    seconds since the epoch, for all cards together.  `charged_ns` is the time of each card that was charged so far.
    """

    uuids: tuple[str, ...]
    last_kernel: int
    worked_ns: Mapping[str, int]
    charged_ns: Mapping[str, int]


def glance(path: Path) -> Glance:
    """A quick look at the region in a file, without its processes.  Raises NoRegion."""
    with regions.opened(path, os.O_RDONLY) as file:
        head = os.pread(file, regions.PROCESSES, 0)
        (last_kernel,) = struct.unpack("<q", _exactly(file, 8, regions.LAST_KERNEL, path))
        regions.check(head, path)
        uuids = tuple(regions.uuids_in(head))
        worked: dict[str, int] = {}
        charged: dict[str, int] = {}
        if regions.is_ours(os.pread(file, 16, regions.OWN_START), os.fstat(file).st_size):
            compute = _exactly(file, regions.CARDS * regions.COMPUTE_SIZE, regions.COMPUTE, path)
            for number, uuid in enumerate(uuids):
                (charged[uuid],) = struct.unpack_from("<Q", compute, number * regions.COMPUTE_SIZE + _CHARGED)
                (moment,) = struct.unpack_from("<Q", compute, number * regions.COMPUTE_SIZE + _WORKED)
                if moment:
                    worked[uuid] = moment
    return Glance(uuids, max(0, last_kernel), worked, charged)


def instruct(path: Path, *, blocked: bool, lifted: bool) -> None:
    """Tell a tenant of HAMi-core what holds: whether it waits, and whether its share of time does not count.

    Written only where it is not so already.  Raises NoRegion.  HAMi-core itself writes 2 into the word by which it is
    blocked, whenever it has work.
    """
    with regions.opened(path, os.O_RDWR) as file:
        regions.check(os.pread(file, regions.PROCESSES, 0), path)
        switch, recent = struct.unpack("<ii", _exactly(file, 8, _SWITCH, path))
        if switch != (not lifted):
            os.pwrite(file, struct.pack("<i", not lifted), _SWITCH)
        if (recent < 0) != blocked:
            os.pwrite(file, struct.pack("<i", -1 if blocked else 0), _RECENT)


def silence(path: Path, container: int) -> None:
    """Let the processes of a container of the pod that has ended count as silent: its memory is free at once.

    A process that lives in spite of that gives its next sign of life within half a second.  A slot that is just being
    taken or given up is left alone.  What is no region of ours needs nothing.
    """
    with suppress(regions.NoRegion), regions.opened(path, os.O_RDWR) as file:
        slots = _exactly(file, regions.SLOTS * regions.LINE, regions.SLOTS_START, path)
        for slot in range(regions.SLOTS):
            (owner,) = struct.unpack_from("<Q", slots, slot * regions.LINE)
            (whose,) = struct.unpack_from("<Q", slots, slot * regions.LINE + regions.CONTAINER)
            if whose == container + 1 and not owner & regions.CHANGING:
                os.pwrite(file, bytes(8), regions.SLOTS_START + slot * regions.LINE + _BEAT)


def _exactly(file: int, size: int, start: int, path: Path) -> bytes:
    content = os.pread(file, size, start)
    if len(content) < size:
        raise regions.NoRegion(f"{path}: ends before byte {start + size}")
    return content
