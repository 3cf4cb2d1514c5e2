"""Amounts in the names that all dialects share (`batch.amounts`): what pods ask for and hold, and what users write.

    asked    by what a pod says; percents of a card are estimated by the card that is usual in the cluster
    held     by what is booked for a pod, exactly
    read     amounts under users' names (`volcano.sh/gpu-memory`, `nvidia.com/gpumem`, ...) become ours
    write    and ours become theirs again

A card counts as taken alone if all of its memory is taken, or all of its cores in a dialect where that means the card
alone; in `FAMILY/memory` and `FAMILY/cores` it counts besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from subak.batch.amounts import Amounts, add, times
from subak.batch.capacity import OURS, Capacity, Card, card_part, dimension
from subak.dialects import Measure, Part, hami, kubernetes
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import GPU, MIB, MOST_AMOUNT, MOST_CARD_BYTES, Device
from subak.model.manifest import Role
from subak.model.placement import Charge
from subak.model.request import Claim, Request
from subak.snapshot.cluster import Booking, Snapshot
from tinykube.quantity import Format, Quantity, QuantityError

MOST_SHAPES = 4_096

UNKNOWN = Card(MOST_CARD_BYTES)
"""A card of which nothing is known: nobody takes it as a whole without saying so."""

PLAIN = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""Resources that every node may have."""

OF_QUOTAS = ("requests.", "limits.", "count/")
"""How names start by which quotas count: Volcano's controllers write them beside the others, and nobody reads them."""


class Dimensions:
    """What amounts mean in one cluster.  When `version` has grown, what was estimated is worth another look."""

    def __init__(self, interpreter: Interpreter, snapshot: Snapshot) -> None:
        self._interpreter = interpreter
        self._snapshot = snapshot
        self._capacity = snapshot.watched(Capacity)
        self._words = {
            dimension(each.family or min(families), each.part): (name, each.units)
            for name, (families, measures) in interpreter.measures.items()
            for each in measures
            if not each.percent and (each.family or len(families) == 1)
        }
        self._asked: dict[Request, Amounts] = {}
        self._asked_at = 0

    @property
    def total(self) -> Mapping[str, float]:
        """What the cluster has."""
        return self._capacity.total

    @property
    def version(self) -> int:
        """Grows when estimates may come out differently: those of `asked`, and of `read`."""
        return self._capacity.version

    def asked(self, request: Request) -> Amounts:
        """What a pod that asks for this takes, as far as can be known before it has a place."""
        if self._asked_at != self.version or len(self._asked) >= MOST_SHAPES:
            self._asked.clear()
            self._asked_at = self.version
        found = self._asked.get(request)
        if found is None:
            found = self._asked[request] = self._estimate(request)
        return found

    def held(self, key: str) -> Amounts | None:
        """What is booked for a pod; None if nothing is."""
        booking = self._snapshot.bookings.get(key)
        return None if booking is None else self.booked(booking)

    def booked(self, booking: Booking) -> Amounts:
        """What a booking takes."""
        amounts: dict[str, float] = {name: amount for name, amount in booking.resources if name not in OURS}
        node = self._snapshot.node(booking.placement.node)
        for id, charge in booking.charges.items():
            device = None if node is None else node.device(id)
            add(amounts, self._charged(booking, id, charge, device))
        return amounts

    def read(self, amounts: Mapping[str, manifest.Amount] | None, place: str) -> tuple[dict[str, float], list[str]]:
        """Amounts under users' names, and what cannot be honoured of them; `place` says where they are written."""
        found: dict[str, float] = {}
        warnings: list[str] = []
        for name, amount in (amounts or {}).items():
            if name.startswith(OF_QUOTAS):
                continue
            try:
                meant = self._meant(name, amount)
            except ValueError as error:
                warnings.append(f"{place}: {error}; ignored")
                continue
            for ours, number in meant.items():
                found[ours] = found.get(ours, 0) + number
        return found, warnings

    def _meant(self, name: str, amount: manifest.Amount) -> dict[str, int]:
        """So much of a user's resource in our dimensions.  Raises ValueError if that cannot be meant."""
        meaning = self.meaning(name)
        if not meaning:
            raise ValueError(f"no dialect has a resource {name}, and no node has any of it")
        try:
            number = kubernetes.units(name, amount)
        except QuantityError as error:
            raise ValueError(f"{name}: {error}") from None
        largest = int(max(meaning.values()))
        if largest >= MIB and str(amount).endswith(hami.BYTES):
            raise ValueError(f"{name} counts units of {largest // MIB} MiB: for {amount} give {number // largest}")
        if not 0 <= number * largest <= MOST_AMOUNT:
            raise ValueError(
                f"{name}: {amount} is {'less than nothing' if number < 0 else 'more than any cluster has'}"
            )
        return {ours: int(number * units) for ours, units in meaning.items()}

    def limits(self, amounts: Mapping[str, manifest.Amount] | None, place: str) -> tuple[dict[str, float], list[str]]:
        """What a queue's capability limits: nothing that it does not name, nor cpu or memory of 0, as in Volcano."""
        found, warnings = self.read(amounts, place)
        return {name: limit for name, limit in found.items() if limit > 0 or name not in ("cpu", "memory")}, warnings

    def meaning(self, name: str) -> dict[str, float]:
        """How much a unit of a user's resource is of our dimensions; empty if nobody knows the name."""
        families, measures = self._interpreter.measures.get(name, (frozenset[str](), ()))
        if measures:
            return {
                dimension(family, each.part): self._worth(family, each)
                for each in measures
                for family in [each.family or self._capacity.commonest(families)]
            }
        known = name in PLAIN or name.startswith("hugepages-") or name in self.total
        return {name: 1} if known and name not in OURS else {}

    def write(self, amounts: Amounts, spoken: Iterable[str] = ()) -> dict[str, str]:
        """Amounts under users' names, of which those that are `spoken` come first; what has no name is left out."""
        words = {**self._words, **self._words_of(spoken)}
        written: dict[str, str] = {}
        for ours, amount in amounts.items():
            if ours == "cpu":
                written[ours] = str(Quantity(nanos=int(amount) * 10**6))
            elif ours in words:
                name, units = words[ours]
                written[name] = str(int(amount // units))
            elif card_part(ours) is None:
                written[ours] = str(Quantity.of(int(amount), Format.BINARY if ours == "memory" else Format.DECIMAL))
        return dict(sorted(written.items()))

    def _words_of(self, names: Iterable[str]) -> dict[str, tuple[str, float]]:
        """By which of these names, and in which units, each dimension can be said."""
        found: dict[str, tuple[str, float]] = {}
        for name in names:
            meaning = self.meaning(name)
            if name in self._interpreter.measures and len(meaning) == 1:
                ((ours, units),) = meaning.items()
                found[ours] = (name, units)
        return found

    def _worth(self, family: str, measure: Measure) -> float:
        if not measure.percent:
            return measure.units
        card = self._capacity.usual(family)
        return 0 if card is None else card.memory_bytes / 100

    def _estimate(self, request: Request) -> Amounts:
        """The most that the pod takes at any time: as `model.placement.charges`, but for which cards it will be."""
        peak: dict[str, float] = {}
        running: dict[str, float] = {}
        for claim in sorted(request.claims, key=lambda each: (each.role is Role.APP, each.containers)):
            for name, amount in self._claimed(claim).items():
                now = running.get(name, 0) + amount
                peak[name] = max(peak.get(name, 0), now)
                if claim.role is not Role.INIT:
                    running[name] = now
        return peak | {name: amount for name, amount in request.needs.resources if name not in OURS}

    def _claimed(self, claim: Claim) -> Amounts:
        family = self._capacity.commonest(claim.families)
        card = self._capacity.usual(family)
        memory_bytes = claim.memory_bytes
        if card is not None:
            memory_bytes = claim.memory_on(Device("", 0, family, memory_bytes=card.memory_bytes))
        alone = claim.idle or claim.memory_percent == 100
        each = _taken(family, card or UNKNOWN, memory_bytes, claim.cores, int(claim.slotted), alone)
        return times(each, claim.count)

    def _charged(self, booking: Booking, id: str, charge: Charge, device: Device | None) -> Amounts:
        if device is not None:
            family, card = device.family, Card.of(device)
        else:  # the node is gone, or the card
            dialects = [grant.dialect for grant in booking.placement.grants for share in grant.shares if share.id == id]
            family = self._capacity.commonest(self._interpreter.by_name[dialects[0]].families)
            card = self._capacity.usual(family) or UNKNOWN
        return _taken(family, card, charge.memory_bytes, charge.cores, charge.slots)


def _taken(family: str, card: Card, memory_bytes: int, cores: int, slots: int, alone: bool = False) -> Amounts:
    """What somebody takes of one card."""
    amounts = {Part.MEMORY: memory_bytes, Part.CORES: cores}
    if card.kind == GPU:
        whole = memory_bytes >= card.memory_bytes or (slots > 0 and cores >= card.cores)
        amounts |= {Part.SLOTS: slots, Part.CARDS: int(alone or whole)}
    return {dimension(family, part): amount for part, amount in amounts.items() if amount}
