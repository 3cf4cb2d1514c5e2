"""Volcano's vGPU: HAMi's way of sharing NVIDIA cards, in Volcano's words.

`volcano.sh/vgpu-number` asks for slices, each on another card; `vgpu-memory` or `vgpu-memory-percentage` for the memory
of each (the percentage, if both are there), `vgpu-cores` for a percentage of its cores.  Memory alone means one slice,
no memory at all the whole card's.  With `vgpu-podgroup-policy: spread` it shares no card with others of its group that
have it too.

All memory in this dialect, the register and the pod's device string included, counts in units of the plugin's
`gpuMemoryFactor` MiB.  The device string lists the containers of `spec.containers` only, because Volcano's plugin looks
them up there; if an init container holds a card, which Volcano does not foresee, all containers are listed, init
containers first, as HAMi does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from subak.dialects import (
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
from subak.dialects.agent import death
from subak.dialects.amounts import Asked, asked, mentions, offers
from subak.dialects.config import Volcano
from subak.dialects.hami import Held
from subak.dialects.volcano_rules import Apart
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB, Device
from subak.model.group import volcano_group
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import BINPACK, FEWEST_TENANTS, HIGHEST_INDEX, MOST_MEMORY_USED, SPREAD, CardPolicy, Selection
from subak.model.rules import PLAIN, Rules

FAMILY = "nvidia"
WORD = "NVIDIA"
NUMBER = "volcano.sh/vgpu-number"
MEMORY = "volcano.sh/vgpu-memory"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
CORES = "volcano.sh/vgpu-cores"

REGISTER = "volcano.sh/node-vgpu-register"
NODE, TIME = "volcano.sh/vgpu-node", "volcano.sh/vgpu-time"
ALLOCATED, TO_ALLOCATE = "volcano.sh/vgpu-ids-new", "volcano.sh/devices-to-allocate"
BIND_PHASE, BIND_TIME = "volcano.sh/bind-phase", "volcano.sh/bind-time"
LOCK = "hamivgpu"
PODGROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"

ORDERS = {BINPACK: MOST_MEMORY_USED, SPREAD: FEWEST_TENANTS}
"""What HAMi's words mean for the order of cards here."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a container asks for: the number of slices, and the size of each."""

    count: int
    memory_bytes: int
    percent: int
    cores: int


class VolcanoVgpu:
    """Volcano, slices of cards."""

    name = "volcano-vgpu"
    families = frozenset({FAMILY})
    resources = frozenset({NUMBER, MEMORY, PERCENTAGE, CORES})
    owned = frozenset({NODE, TIME, ALLOCATED, TO_ALLOCATE, BIND_PHASE, BIND_TIME})
    recorded = frozenset({ALLOCATED})
    agent = Agent(name, (FAMILY,), Source.REGISTER, 10, lock=LOCK)

    def __init__(self, names: Volcano | None = None) -> None:
        self.factor = (names or Volcano()).gpu_memory_factor
        self.granule = self.factor * MIB
        self.unit = "MiB" if self.factor == 1 else f"units of {self.factor} MiB"
        self.quota_units = {
            MEMORY: QuotaUnit(self.name, memory=True, factor=self.factor),
            CORES: QuotaUnit(self.name, memory=False),
        }
        self.measures = {
            NUMBER: [Measure(Part.SLOTS)],
            MEMORY: [Measure(Part.MEMORY, self.granule)],
            PERCENTAGE: [Measure(Part.MEMORY, percent=True)],
            CORES: [Measure(Part.CORES)],
        }

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container asks for slices or a part of one."""
        return mentions(pod, self.resources)

    def admit(self, pod: manifest.Pod) -> Patch:
        """One slice where only its size is given: kubelet calls Volcano's plugin for `vgpu-number` alone."""
        _check_policies(pod.annotations)
        patch = Patch()
        for position, ask in enumerate(asked(pod)):
            amounts = self.amounts(ask)
            ask.check_most(CORES, FULL_CORES)
            if amounts is not None and not ask.has(NUMBER):
                patch.set_limit(position, NUMBER, amounts.count)
        return patch

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per container, init containers included: unlike in Volcano they cannot overcommit a card."""
        annotations = pod.annotations
        _check_policies(annotations)
        policy, selection = self.policy(annotations), self.selection(annotations)
        claims = [
            hami.claim(self.name, FAMILY, i, role, selection=selection, policy=policy, **asdict(amounts))
            for i, (ask, role) in enumerate(zip(asked(pod), pod.roles, strict=True))
            if (amounts := self.amounts(ask)) is not None
        ]
        # A percentage must come out in whole units, or the device string could not hold it.
        complete = tuple(replace(claim, granule=self.granule, rules=rules(pod)) for claim in claims)
        return Ask(complete, node_policy=hami.node_policy(annotations))

    def policy(self, annotations: Mapping[str, str]) -> CardPolicy:
        """The order of cards: Volcano counts down unless the pod has a policy."""
        policy = hami.card_policy(annotations, default=(HIGHEST_INDEX,))
        return replace(policy, order=tuple(ORDERS.get(word, word) for word in policy.order))

    def selection(self, annotations: Mapping[str, str]) -> Selection:
        """The cards that the pod's annotations admit."""
        return hami.selection(
            annotations,
            use_ids="volcano.sh/vgpu-use-gpuuuid",
            nouse_ids="volcano.sh/vgpu-nouse-gpuuuid",
            use_types="nvidia.com/use-gputype",
            nouse_types="nvidia.com/nouse-gputype",
            modes="volcano.sh/vgpu-mode",
        )

    def amounts(self, ask: Asked) -> Amounts | None:
        """What a container asks for; None if it asks for no card."""
        count, memory = ask(NUMBER, "slices"), ask(MEMORY, self.unit) or 0
        percent, cores = ask(PERCENTAGE, "percent") or 0, ask(CORES, "percent") or 0
        memory_bytes = hami.check_mib(memory, self.factor, ask, MEMORY, self.unit)
        if percent > 100:
            text = ask.text(PERCENTAGE)
            raise Refusal(ask.path(PERCENTAGE), text, f"{PERCENTAGE} is {text}: give a whole number from 0 to 100")
        part = memory or percent or cores
        ask.check_counted(NUMBER, (MEMORY, PERCENTAGE, CORES))
        if not count and not part:
            return None
        if not memory and not percent:
            percent = 100
        # Unlike in HAMi, of both the percentage counts.
        return Amounts(count or 1, 0 if percent else memory_bytes, percent, cores)

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards of the register annotation."""
        offered = offers(node.allocatable, (NUMBER,))
        text = node.annotations.get(REGISTER)
        if text is None:
            return Sight(offered)
        cordoned = frozenset(hami.words(node.annotations.get(hami.CORDON)))
        try:
            sightings = tuple(self._sighting(piece, cordoned) for piece in text.split(":") if piece.strip())
        except ValueError as error:
            return Sight.unreadable(node, REGISTER, error, FAMILY, offered)
        return Sight(True, Source.REGISTER, sightings, death=death(node, NUMBER, sightings))

    def _sighting(self, piece: str, cordoned: frozenset[str]) -> Sighting:
        """A card of the register.  It has no index, so that the order of the register counts."""
        fields = [field.strip() for field in piece.split(",")]
        if len(fields) < 6 or not fields[0]:
            raise ValueError(f"{piece!r} is no card: need UUID,count,MiB,type,health,mode")
        id, slots, memory, model, health, mode = fields[:6]
        return Sighting(
            FAMILY,
            None,
            id,
            model=model,
            memory_bytes=_natural(memory, piece) * self.granule,
            slots=_natural(slots, piece),
            healthy=health.lower() == "true",
            mode=mode or "hami-core",
            cordoned=id in cordoned,
        )

    def publish(self, node: Node) -> Published:
        """The register; slices, memory and cores, since Volcano's scheduler wants to see all three."""
        cards = [each for each in node.devices if each.family == FAMILY]
        register = "".join(
            f"{each.id},{each.slots},{each.memory_bytes // self.granule},{each.model},"
            f"{str(each.healthy).lower()},{each.mode}:"
            for each in cards
        )
        return Published.counted(cards, self._count, {REGISTER: register} if cards else {})

    def _count(self, cards: Sequence[Device]) -> dict[str, str]:
        return {
            NUMBER: str(sum(each.slots for each in cards)),
            MEMORY: str(sum(each.memory_bytes // self.granule for each in cards)),
            CORES: str(FULL_CORES * len(cards)),
        }

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """Volcano's annotations."""
        containers = [
            [Held(share.id, WORD, share.memory_bytes // self.granule, share.cores) for share in shares]
            for shares in hami.cards_by_container(pod, placement, self.name)
        ]
        early = len(pod.spec.init_containers or ())
        text = hami.encode_devices(containers if any(containers[:early]) else containers[early:])
        seconds = str(now_ns // 10**9)
        return {
            NODE: placement.node,
            TIME: seconds,
            ALLOCATED: text,
            TO_ALLOCATE: text,
            BIND_PHASE: "allocating",
            BIND_TIME: seconds,
        }

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """The grants of the device string.  Entries that cannot be read are passed over unless that leaves nothing."""
        text = pod.annotations.get(ALLOCATED)
        if not text:
            return ()
        places, warnings = decode(text)
        if not any(places):
            if warnings:
                raise ValueError(f"{ALLOCATED}: {warnings[0]}")
            return ()
        roles = pod.roles
        asking = [i for i, ask in enumerate(asked(pod)) if self.amounts(ask) is not None]
        return tuple(
            Grant(self.name, (i,), roles[i], tuple(self._share(held, node) for held in cards), rules(pod).tag)
            for i, cards in _aligned(pod, places, asking)
        )

    def _share(self, held: Held, node: Node) -> Share:
        id = held.uuid.partition("[")[0]  # Volcano names a MIG instance UUID[group-position]
        device = node.device(id)
        return Share(id, -1 if device is None else device.index, held.memory_mib * self.granule, held.cores)

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """The visible cards, and the limits that libsubak holds."""
        injection = isolation.limits(pod, position, grant.shares)
        injection.env = {"NVIDIA_VISIBLE_DEVICES": isolation.visible(grant.shares, node), **injection.env}
        return injection


def decode(text: str) -> tuple[list[list[Held]], list[str]]:
    """The places of a device string, and a sentence for each entry that had to be dropped.

    The string of a running pod may have been written by anyone: what can be read must be booked all the same.
    """
    warnings: list[str] = []
    places = [
        [held for piece in place.split(":") if piece.strip() for held in _entry(piece, warnings)]
        for place in text.removesuffix(";").split(";")
    ]
    return places, warnings


def _entry(piece: str, warnings: list[str]) -> list[Held]:
    try:
        entries = [held for place in hami.decode_devices(piece) for held in place]
    except ValueError as error:
        warnings.append(f"{error}; dropped")
        return []
    if "," not in piece or any(held.memory_mib < 0 or held.cores < 0 for held in entries):
        warnings.append(f"{piece!r} in a device string is no UUID,Type,MiB,Cores with amounts of 0 or more; dropped")
        return []
    return entries


def _aligned(pod: manifest.Pod, places: Sequence[list[Held]], asking: Sequence[int]) -> list[tuple[int, list[Held]]]:
    """Each container's position with its cards.

    The number of places tells whether init containers are listed.  Some versions of Volcano list only containers that
    ask for cards: then the places are dealt out to those.
    """
    early = len(pod.spec.init_containers or ())
    if len(places) in (len(pod.containers), len(pod.spec.containers)):
        first = len(pod.containers) - len(places)
        return [(first + i, cards) for i, cards in enumerate(places) if cards]
    held = [cards for cards in places if cards]
    for positions in ([position for position in asking if position >= early], asking):
        if len(held) == len(positions):
            return list(zip(positions, held, strict=True))
    raise ValueError(f"{ALLOCATED} speaks of {len(held)} containers with cards, the pod has {len(asking)} that ask")


def _natural(text: str, piece: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{piece!r}: count and MiB must be whole numbers, not {text!r}")
    return int(text)


def rules(pod: manifest.Pod) -> Rules:
    """What the pod demands of its neighbours: by itself it has no group to be apart from."""
    group = volcano_group(pod) if pod.annotations.get(PODGROUP_POLICY, "").strip() == SPREAD else ""
    return Apart(group) if group else PLAIN


def _check_policies(annotations: Mapping[str, str]) -> None:
    """Refuse policies that nobody knows."""
    hami.check_policies(annotations)
    text = annotations.get(PODGROUP_POLICY, "").strip()
    if text not in ("", SPREAD):
        field = f"metadata.annotations[{PODGROUP_POLICY}]"
        raise Refusal(field, text, f"{PODGROUP_POLICY} is {text!r}: give {SPREAD!r}, or remove it")
