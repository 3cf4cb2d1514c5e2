"""Resources that come in threes: a number of cards, memory in blocks, and cores.

Iluvatar and Moore Threads ask in these, and their agents publish nothing but the sums of a node: 1600 cores and 2048
blocks of 256 MiB.  What one card is follows from the cores of a card, which the vendor fixes; all cards of the node
count as alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from subak.dialects import MOST_CARDS, NOTHING_SEEN, Measure, Part, Published, QuotaUnit, Sight, Sighting, Source, hami
from subak.dialects.amounts import Asked, offers, published
from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.reason import Refusal

SLOTS = 100
"""How many containers may share a card; the vendors name no number, HAMi takes this one."""


@dataclass(frozen=True)
class Totals:
    """Three resource names with their units: cards, blocks of `block_mib` MiB, cores of which a card has `cores`."""

    family: str
    count_name: str
    memory_name: str
    core_name: str
    block_mib: int
    cores: int

    @cached_property
    def names(self) -> frozenset[str]:
        """All three names."""
        return frozenset({self.count_name, self.memory_name, self.core_name})

    @property
    def unit(self) -> str:
        """What an amount of memory counts, for error messages."""
        return f"units of {self.block_mib} MiB"

    def quota_units(self, dialect: str) -> dict[str, QuotaUnit]:
        """What a quota on memory or cores counts."""
        return {
            self.memory_name: QuotaUnit(dialect, memory=True, factor=self.block_mib),
            self.core_name: QuotaUnit(dialect, memory=False),
        }

    @property
    def measures(self) -> dict[str, list[Measure]]:
        """What the three count."""
        return {
            self.count_name: [Measure(Part.SLOTS)],
            self.memory_name: [Measure(Part.MEMORY, self.block_mib * MIB)],
            self.core_name: [Measure(Part.CORES)],
        }

    def check_counted(self, ask: Asked) -> None:
        """Refuse a part of a card of which nobody said how many: HAMi would run such a container without any card."""
        if ask(self.count_name, "cards"):
            return
        for part in (self.memory_name, self.core_name):
            if ask(part):
                raise Refusal(
                    f"{ask.field}.resources.limits[{self.count_name}]",
                    ask.text(self.count_name),
                    f"container {ask.container.name} has {part} {ask.text(part)} but asks for no card: "
                    f"add {self.count_name}: 1",
                )

    def memory_bytes(self, ask: Asked, cards: int = 1) -> int:
        """Bytes of each card where memory is asked for of so many together; 0 when it is not."""
        blocks = ask(self.memory_name, self.unit) or 0
        hami.check_mib(blocks // cards, self.block_mib, ask, self.memory_name, self.unit)
        return blocks * self.block_mib * MIB // cards

    def cards(self, cores: int, blocks: int, model: str = "", broken: int = 0) -> tuple[Sighting, ...]:
        """The cards behind a node's sums; a rest of cores is one more card.

        Nobody says which cards are broken.  So that their number is right, the last ones count as such.
        """
        if cores <= 0:
            return ()
        count = min(-(-cores // self.cores), MOST_CARDS + 1)
        return tuple(
            [
                Sighting(
                    self.family,
                    index,
                    model=model or None,
                    memory_bytes=blocks * self.block_mib * self.cores // cores * MIB,
                    cores=self.cores,
                    slots=SLOTS,
                    supposed_healthy=index < count - broken,
                )
                for index in range(count)
            ]
        )

    def sight(self, node: manifest.Node, model: str = "", only: str = "") -> Sight:
        """The cards behind the sums that the node publishes.

        Capacity, not allocatable: kubelet takes broken devices out of the latter, which would renumber the cards.  The
        difference is their number.
        """
        if self.names.isdisjoint(node.capacity) and self.names.isdisjoint(node.allocatable):
            return NOTHING_SEEN
        offered = offers(node.allocatable, self.names)
        cores, blocks = published(node.capacity, self.core_name), published(node.capacity, self.memory_name)
        if cores > 0 and blocks > 0:
            broken = -(-(cores - published(node.allocatable, self.core_name)) // self.cores)
            return Sight(offered, Source.CAPACITY, self.cards(cores, blocks, model, broken), only=only)
        given = {name: amount for name, amount in node.capacity.items() if name in self.names and str(amount) != "0"}
        if not given:
            return Sight(offered, only=only)
        warning = (
            f"node {node.name}: its cards are unknown, because the capacity has "
            f"{', '.join(f'{name}: {amount}' for name, amount in given.items())}; "
            f"{self.core_name} and {self.memory_name} must both be whole numbers above 0"
        )
        return Sight(offered, warnings=(warning,), only=only)

    def publish(self, devices: Sequence[Device]) -> Published:
        """What a node with these cards publishes.

        Cards are counted by their slots: each container that shares one takes a whole unit from kubelet's account.
        """
        return Published.counted([each for each in devices if each.family == self.family], self._count, {})

    def _count(self, cards: Sequence[Device]) -> dict[str, str]:
        return {
            self.count_name: str(sum(each.slots for each in cards)),
            self.memory_name: str(sum(each.memory_bytes // (self.block_mib * MIB) for each in cards)),
            self.core_name: str(sum(each.cores for each in cards)),
        }
