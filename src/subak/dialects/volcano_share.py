"""Volcano's GPU sharing: `volcano.sh/gpu-memory` for a part of one card, `volcano.sh/gpu-number` for whole cards.

A card is only an index here.  A node says how many cards and how much memory it has in all, so that each card counts as
an equal part; where a register or a Device object describes the cards better, that is believed.  The choice is written
as one list of indices for the whole pod:

    gpu-memory   all containers sit on the same card, the first one that has room for their sum
    gpu-number   each container has its own cards, which nobody else uses

Volcano's agent finds the pod by the size of the request and serves only its first container; ours knows the pod, so
that every container gets what it asked for.  Volcano limits nothing; we do, since the neighbours may be anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from subak.dialects import (
    MOST_CARDS,
    Agent,
    Ask,
    Injection,
    Measure,
    Part,
    Patch,
    Published,
    QuotaUnit,
    Sight,
    Sighting,
    Source,
    hami,
    isolation,
)
from subak.dialects.amounts import Asked, asked, mentions, offers
from subak.dialects.config import Volcano
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import LOWEST_INDEX, CardPolicy, Claim
from tinykube.quantity import QuantityError

FAMILY = "nvidia"
MEMORY = "volcano.sh/gpu-memory"
NUMBER = "volcano.sh/gpu-number"
INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"
ASSIGNED = "volcano.sh/gpu-assigned"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
GPUS = "subak.io/volcano-gpus"
"""The cards of each container, `0,1;2`: written only where they do not follow from `gpu-index`."""


class VolcanoShare:
    """Volcano, parts of a card by memory, or whole cards."""

    name = "volcano-share"
    families = frozenset({FAMILY})
    resources = frozenset({MEMORY, NUMBER})
    owned = frozenset({INDEX, PREDICATE_TIME, ASSIGNED, GPUS})
    recorded = frozenset({INDEX, GPUS})
    agent = Agent("volcano", (FAMILY,), shares=0)  # the plugin makes a device of every MiB

    def __init__(self, names: Volcano) -> None:
        self.factor = names.gpu_memory_factor
        self.unit = "MiB" if self.factor == 1 else f"units of {self.factor} MiB"
        self.quota_units = {MEMORY: QuotaUnit(self.name, memory=True, factor=self.factor)}
        self.measures = {MEMORY: [Measure(Part.MEMORY, self.factor * MIB)], NUMBER: [Measure(Part.CARDS)]}

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container mentions one of the two resources."""
        return mentions(pod, self.resources)

    def admit(self, pod: manifest.Pod) -> Patch:
        """Nothing to fill in, only to check."""
        hami.check_policies(pod.annotations)
        readers = asked(pod)
        shared = [ask for ask in readers if self._memory(ask)]
        whole = [ask for ask in readers if ask(NUMBER, "cards")]
        if shared and whole:
            raise Refusal(
                whole[0].path(NUMBER),
                whole[0].text(NUMBER),
                f"the pod asks for {MEMORY} and for {NUMBER}, of which Volcano serves the first only: "
                "keep to one of them in all containers",
            )
        return Patch()

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per container.  The first card that fits is taken unless the pod names HAMi's policies."""
        hami.check_policies(pod.annotations)
        resource, amounts = self._amounts(pod)
        policy = hami.card_policy(pod.annotations, default=(LOWEST_INDEX,))
        roles = pod.roles
        return Ask(
            tuple(self._claim(resource, position, roles[position], amounts[position], policy) for position in amounts),
            node_policy=hami.node_policy(pod.annotations),
        )

    def _claim(self, resource: str, position: int, role: Role, amount: int, policy: CardPolicy) -> Claim:
        if resource == MEMORY:
            memory_bytes = amount * self.factor * MIB
            return Claim(
                self.name,
                self.families,
                (position,),
                role,
                memory_bytes=memory_bytes,
                together=True,
                slotted=False,
                policy=policy,
            )
        return Claim(
            self.name,
            self.families,
            (position,),
            role,
            count=amount,
            memory_percent=100,
            granule=1,
            cores=FULL_CORES,
            idle=True,
            slotted=False,
            policy=policy,
        )

    def _amounts(self, pod: manifest.Pod) -> tuple[str, dict[int, int]]:
        """The resource that counts for this pod, and how much of it each container asks for.

        Where memory is asked for at all, Volcano looks at nothing else.
        """
        readers = asked(pod)
        memory = {position: units for position, ask in enumerate(readers) if (units := self._memory(ask))}
        if memory:
            return MEMORY, memory
        return NUMBER, {position: cards for position, ask in enumerate(readers) if (cards := ask(NUMBER, "cards"))}

    def _memory(self, ask: Asked) -> int:
        units = ask(MEMORY, self.unit) or 0
        hami.check_mib(units, self.factor, ask, MEMORY, self.unit)
        return units

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """Equal cards, from the two totals of the node's capacity; one total alone says nothing about cards."""
        offered, capacity = offers(node.allocatable, self.resources), node.capacity
        if MEMORY not in capacity or NUMBER not in capacity:
            return Sight(offered)
        try:
            units, count = manifest.amount(capacity, MEMORY), manifest.amount(capacity, NUMBER)
        except QuantityError as error:
            return Sight(offered, warnings=(f"node {node.name}: capacity: {error}; it tells us no cards",))
        if units == count == 0:  # what kubelet leaves behind when the plugin is gone
            return Sight(offered)
        if not 0 < count <= MOST_CARDS or not 0 <= units * self.factor // count <= hami.MOST_MIB:
            given = f"{MEMORY} {units} on {NUMBER} {count}"
            return Sight(offered, warnings=(f"node {node.name}: capacity: {given} cannot be; it tells us no cards",))
        broken, warnings = _unhealthy(node, count)
        # The plugin makes one device of each unit.  Memory is 0 where a plugin that shared before now counts cards
        # only; such cards still serve one whole-card tenant.
        memory_bytes, slots = units * self.factor // count * MIB, max(units // count, 1)
        sightings = [
            Sighting(FAMILY, index, memory_bytes=memory_bytes, slots=slots, healthy=index not in broken)
            for index in range(count)
        ]
        return Sight(offered, Source.CAPACITY, tuple(sightings), warnings)

    def publish(self, node: Node) -> Published:
        """Units and cards, and which of them are broken."""
        cards = [each for each in node.devices if each.family == FAMILY]
        broken = _joined([each.index for each in cards if not each.healthy])
        return Published.counted(cards, self._count, {UNHEALTHY: broken} if broken else {})

    def _count(self, cards: Sequence[Device]) -> dict[str, str]:
        units = sum(each.memory_bytes // MIB // self.factor for each in cards)
        return {MEMORY: str(units), NUMBER: str(len(cards))}

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """The pod's cards in the order of its containers, each named once, and the time."""
        held = [[share.index for share in shares] for shares in hami.cards_by_container(pod, placement, self.name)]
        indices = list(dict.fromkeys(index for cards in held for index in cards))
        if not indices:
            return {}
        annotations = {INDEX: _joined(indices), PREDICATE_TIME: str(now_ns)}
        if _dealt(pod, *self._amounts(pod), indices) != held:
            annotations[GPUS] = ";".join(_joined(cards) for cards in held)
        return annotations

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """What `gpu-index` and the pod's own amounts say; Volcano's placements are read in the same way."""
        indices = _indices(pod.annotations.get(INDEX))
        if not indices:
            return ()
        text = pod.annotations.get(GPUS)
        resource, amounts = self._amounts(pod)
        held = _dealt(pod, resource, amounts, indices) if text is None else _by_container(text, pod)
        return tuple(
            Grant(self.name, (i,), role, self._shares(resource, amounts.get(i, 0), cards, node), slotted=False)
            for i, (role, cards) in enumerate(zip(pod.roles, held, strict=True))
            if cards
        )

    def _shares(self, resource: str, amount: int, cards: Sequence[int], node: Node) -> tuple[Share, ...]:
        shares: list[Share] = []
        for index in cards:
            device = node.at_index(index, self.families)
            id = f"{node.name}-{FAMILY}-{index}" if device is None else device.id  # the card may have left meanwhile
            if resource == MEMORY:
                shares.append(Share(id, index, amount * self.factor * MIB, 0))
            else:
                shares.append(Share(id, index, 0 if device is None else device.memory_bytes, FULL_CORES))
        return tuple(shares)

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """Volcano's three variables, with indices; and for a part of a card the limits that libsubak holds."""
        resource, amounts = self._amounts(pod)
        shared = resource == MEMORY
        injection = isolation.limits(pod, position, grant.shares) if shared else Injection()
        injection.env.pop("CUDA_DEVICE_SM_LIMIT", None)  # this dialect has no word for cores
        allocated = amounts.get(position, 0) * self.factor if shared else len(grant.shares)
        card = node.device(grant.shares[0].id)
        injection.env = {
            "NVIDIA_VISIBLE_DEVICES": _joined([share.index for share in grant.shares]),
            "VOLCANO_GPU_ALLOCATED": str(allocated),
            "VOLCANO_GPU_MEMORY_TOTAL": str(0 if card is None else card.memory_bytes // MIB),
            **injection.env,
        }
        return injection


def _dealt(pod: manifest.Pod, resource: str, amounts: Mapping[int, int], indices: Sequence[int]) -> list[list[int]]:
    """The cards of each container, as they follow from the pod's list.

    With memory, every container has the pod's card.  With numbers, each takes the first cards that no earlier
    container keeps; an init container keeps none.  Volcano counts a sidecar like an init container: its list may
    be too short, and the containers then share cards.
    """
    dealt: list[list[int]] = []
    kept: set[int] = set()
    for position, role in enumerate(pod.roles):
        amount = amounts.get(position, 0)
        if resource == MEMORY:
            dealt.append(list(indices) if amount else [])
            continue
        dealt.append(sorted(indices, key=kept.__contains__)[:amount])
        if role is not Role.INIT:
            kept.update(dealt[-1])
    return dealt


def _joined(indices: Sequence[int]) -> str:
    return ",".join(str(index) for index in indices)


def _indices(text: str | None) -> list[int]:
    """The members of a list of indices, each once.  One bad member spoils all: then there is no card."""
    indices = [_index(word) for word in (text or "").split(",")]
    known = [index for index in indices if index is not None]
    return list(dict.fromkeys(known)) if len(known) == len(indices) else []


def _index(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else None


def _by_container(text: str, pod: manifest.Pod) -> list[list[int]]:
    """Our own annotation: the cards of each container."""
    parts = text.split(";")
    held = [_indices(part) for part in parts]
    if len(parts) != len(pod.containers) or any(part and not cards for part, cards in zip(parts, held, strict=True)):
        raise ValueError(f"{GPUS} is {text!r}: need indices for each of {len(pod.containers)} containers, as in 0,1;2")
    return held


def _unhealthy(node: manifest.Node, count: int) -> tuple[frozenset[int], tuple[str, ...]]:
    """The broken cards among the first `count`, and a sentence for each entry that names none."""
    words = hami.words(node.annotations.get(UNHEALTHY))
    found = {word: _index(word) for word in words}
    bad = [word for word, index in found.items() if index is None or index >= count]
    sentences = (f"node {node.name}: {word!r} in {UNHEALTHY} is no card of 0 to {count - 1}; ignored" for word in bad)
    return frozenset(index for index in found.values() if index is not None), tuple(sentences)
