"""HAMi's dialect for NVIDIA cards.

`nvidia.com/gpu` asks for cards; `gpumem` (MiB) or `gpumem-percentage` for a part of each one's memory, `gpucores` for a
part of its cores.  Without a memory amount the whole card is meant, and then all cores too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec

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
    agent,
    annotation,
    hami,
    isolation,
)
from subak.dialects.amounts import Asked, asked, mentions, offers
from subak.dialects.config import Nvidia as Names
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB, Device, MigProfile
from subak.model.node import Node
from subak.model.placement import Grant, MigInstance, Placement, Share, uncut
from subak.model.reason import Refusal
from subak.model.request import Claim, Selection

FAMILY = "nvidia"
WORD = "NVIDIA"
REGISTER = "hami.io/node-nvidia-register"
PAIR_SCORES = "hami.io/node-nvidia-score"
HANDSHAKE = "hami.io/node-handshake"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"
NUMA_BIND = "nvidia.com/numa-bind"
MODE = "nvidia.com/vgpu-mode"


class Placed(msgspec.Struct, kw_only=True):
    """A place for a MIG profile; one of no size would not keep anybody out."""

    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    size: Annotated[int, msgspec.Meta(ge=1)]


class Profile(msgspec.Struct, rename="camel"):
    """A MIG profile in the register."""

    name: str
    memory_mb: int = msgspec.field(default=0, name="memoryMB")
    core: int = 0
    placements: list[Placed] = []


class Card(msgspec.Struct, rename="camel"):
    """A card in the register's JSON form.  Zero and false are left out there, so that absence means them."""

    id: str
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    type: str = ""
    numa: int = 0
    mode: str = "hami-core"
    health: bool = False
    mig_profiles: list[Profile] = []


class PairScore(msgspec.Struct):
    """How well a card is connected to others."""

    uuid: str
    score: dict[str, int] = {}


class MigAllocation(msgspec.Struct, rename="camel", kw_only=True):
    """An entry of the MIG annotation; the last three fields are the agent's."""

    container_index: int
    device_index: int
    gpu_uuid: str = msgspec.field(name="gpuUUID")
    profile: str
    placement: Placed
    mig_uuid: str = msgspec.field(default="", name="migUUID")
    gpu_instance_id: int | None = msgspec.field(default=None, name="gpuInstanceID")
    compute_instance_id: int | None = msgspec.field(default=None, name="computeInstanceID")


class Nvidia:
    """HAMi, NVIDIA."""

    name = "hami-nvidia"
    families = frozenset({FAMILY})
    owned = hami.OWNED | {TO_ALLOCATE, ALLOCATED, MIG_ALLOCATIONS}
    recorded = frozenset({ALLOCATED, MIG_ALLOCATIONS})

    def __init__(self, names: Names) -> None:
        self.names = names
        self.agent = Agent(
            "hami",
            (FAMILY,),
            Source.REGISTER,
            names.device_split_count,
            lock=hami.LOCK,
            label=hami.NODE,
            asked=HANDSHAKE,
        )
        self.shares = (names.resource_memory_name, names.resource_memory_percentage_name, names.resource_core_name)
        self.resources = frozenset({names.resource_count_name, names.resource_priority_name, *self.shares})
        self.quota_units = {
            names.resource_memory_name: QuotaUnit(self.name, memory=True, factor=names.memory_factor),
            names.resource_core_name: QuotaUnit(self.name, memory=False),
        }
        self.measures = {
            names.resource_count_name: [Measure(Part.SLOTS)],
            names.resource_memory_name: [Measure(Part.MEMORY, names.memory_factor * MIB)],
            names.resource_memory_percentage_name: [Measure(Part.MEMORY, percent=True)],
            names.resource_core_name: [Measure(Part.CORES)],
        }

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container asks for cards or a part of one."""
        return mentions(pod, (self.names.resource_count_name, *self.shares))

    def admit(self, pod: manifest.Pod) -> Patch:
        """One card where only a part is asked for; all cores where all memory is taken."""
        patch = Patch()
        hami.check_policies(pod.annotations)
        for position, ask in enumerate(asked(pod)):
            self._admit_container(ask, position, patch)
        return patch

    def _admit_container(self, ask: Asked, position: int, patch: Patch) -> None:
        names = self.names
        count = ask(names.resource_count_name, "cards")
        if count is None:
            if not any(ask.has(name) for name in self.shares):
                return
            patch.set_limit(position, names.resource_count_name, names.default_gpu_num)
        memory = ask(names.resource_memory_name, "MiB")
        if memory is not None:
            hami.check_mib(memory, names.memory_factor, ask, names.resource_memory_name, "MiB")
        percent = self._percent(ask)
        cores = ask(names.resource_core_name, "percent")
        ask.check_most(names.resource_core_name, FULL_CORES)
        ask.check_counted(names.resource_count_name, self.shares)
        if ask.has(names.resource_priority_name):
            self._priority(ask)
        if cores is None and count != 0 and (percent == FULL_CORES or (memory is None and percent is None)):
            patch.set_limit(position, names.resource_core_name, FULL_CORES)

    def _percent(self, ask: Asked) -> int | None:
        name = self.names.resource_memory_percentage_name
        if not ask.has(name):
            return None
        message = (
            f"invalid {name} value {ask.text(name)} in container {ask.container.name}: "
            "must be an integer between 0 and 100"
        )
        try:
            percent = ask(name)
        except Refusal as refusal:
            raise Refusal(refusal.field, refusal.value, message) from None
        if percent is not None and percent > 100:
            raise Refusal(ask.path(name), ask.text(name), message)
        return percent

    def _priority(self, ask: Asked) -> int | None:
        name = self.names.resource_priority_name
        priority = ask(name)
        if priority not in (None, 0, 1):
            raise Refusal(ask.path(name), ask.text(name), f"{name} is {ask.text(name)}: 0 is high, 1 is low")
        return priority

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per container."""
        return hami.ask_each(pod, self.amounts, self.claim)

    def claim(self, pod: manifest.Pod, position: int, amounts: hami.Amounts) -> Claim:
        """The claim of the container at `position`."""
        numa_bind = pod.annotations.get(NUMA_BIND, "").strip().lower() in ("true", "1", "t")
        claim = hami.claim(
            self.name,
            FAMILY,
            position,
            pod.roles[position],
            selection=self.selection(pod.annotations),
            policy=hami.card_policy(pod.annotations, numa_bind=numa_bind),
            **amounts,
        )
        return replace(claim, instances=True)

    def selection(self, annotations: Mapping[str, str]) -> Selection:
        """The cards that the pod's annotations admit."""
        return hami.selection(
            annotations,
            use_ids="nvidia.com/use-gpuuuid",
            nouse_ids="nvidia.com/nouse-gpuuuid",
            use_types="nvidia.com/use-gputype",
            nouse_types="nvidia.com/nouse-gputype",
            modes=MODE,
        )

    def amounts(self, ask: Asked) -> hami.Amounts | None:
        """`count`, `memory_bytes`, `percent` and `cores` of a container; None if it asks for no card."""
        names = self.names
        count = ask(names.resource_count_name)
        if not count:
            return None
        memory = ask(names.resource_memory_name) or 0
        percent = ask(names.resource_memory_percentage_name) or 0
        memory_bytes = hami.check_mib(memory, names.memory_factor, ask, names.resource_memory_name, "MiB")
        if not memory and not percent:
            memory_bytes, percent = names.default_memory * MIB, 0 if names.default_memory else 100
        cores = ask(names.resource_core_name)
        return {
            "count": count,
            "memory_bytes": memory_bytes,
            "percent": percent,
            "cores": names.default_cores if cores is None else cores,
        }

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards of the register annotation, in JSON or in the older colon form."""
        offered = offers(node.allocatable, (self.names.resource_count_name,))
        text = node.annotations.get(REGISTER)
        if text is None:
            return Sight(offered)
        try:
            sightings = self._registered(text, frozenset(hami.words(node.annotations.get(hami.CORDON))))
        except ValueError as error:
            return Sight.unreadable(node, REGISTER, error, FAMILY, offered)
        death = agent.death(node, self.names.resource_count_name, sightings, HANDSHAKE, fallen=False)
        try:
            sightings = _connected(sightings, node.annotations.get(PAIR_SCORES))
        except ValueError as error:
            warning = f"node {node.name}: annotation {PAIR_SCORES}: {error}; its cards count as not connected"
            return Sight(True, Source.REGISTER, sightings, (warning,), death=death)
        return Sight(True, Source.REGISTER, sightings, death=death)

    def _registered(self, text: str, cordoned: frozenset[str]) -> tuple[Sighting, ...]:
        if not text.lstrip().startswith("["):
            return hami.decode_register(text, FAMILY, cordoned)
        return tuple([_sighting(each, cordoned) for each in annotation.decode(text, list[Card])])

    def publish(self, node: Node) -> Published:
        """The register in JSON, how well the cards are connected if that is known, and one unit per slot."""
        cards = [each for each in node.devices if each.family == FAMILY]
        annotations = {REGISTER: annotation.encode([_registered(each) for each in cards])} if cards else {}
        if any(each.links for each in cards):
            annotations[PAIR_SCORES] = annotation.encode([PairScore(each.id, dict(each.links)) for each in cards])
        # HAMi's chart runs the plugin where this label is.
        label = Published(labels={"gpu": "on"} if cards else {})
        return Published.counted(cards, self._count, annotations) | label

    def _count(self, cards: Sequence[Device]) -> dict[str, str]:
        return {self.names.resource_count_name: str(sum(each.slots for each in cards))}

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """HAMi's annotations; MIG instances in their own."""
        annotations = hami.write(pod, placement, now_ns, self.name, WORD, TO_ALLOCATE, ALLOCATED)
        instances = [
            MigAllocation(
                container_index=position,
                device_index=i,
                gpu_uuid=share.id,
                profile=share.mig.profile,
                placement=Placed(start=share.mig.start, size=share.mig.size),
            )
            for position, shares in enumerate(hami.cards_by_container(pod, placement, self.name))
            for i, share in enumerate(shares)
            if share.mig is not None
        ]
        if instances:
            annotations[MIG_ALLOCATIONS] = annotation.encode(instances)
        return annotations

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """The grants of HAMi's annotations."""
        if ALLOCATED not in pod.annotations:
            return ()  # a pod of another dialect: what it asks for is not ours to judge
        grants = hami.read(pod, node, self.name, ALLOCATED, lambda ask: ask(self.names.resource_count_name))
        if MIG_ALLOCATIONS not in pod.annotations and not node.cut:
            return grants
        allocated = annotation.decode(pod.annotations.get(MIG_ALLOCATIONS) or "[]", list[MigAllocation])
        places = sorted({each.container_index for each in allocated})
        if len(places) != len(grants):
            places = [grant.containers[0] for grant in grants]
        # Else the places are the grants' own, or those of a string that had to be aligned, see `hami.read`.
        instances = {(each.container_index, each.device_index): each for each in allocated}
        return tuple(_cut(grant, place, instances, node) for grant, place in zip(grants, places, strict=True))

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """The visible cards, and the limits that libsubak holds."""
        injection = isolation.limits(pod, position, grant.shares)
        injection.env = {"NVIDIA_VISIBLE_DEVICES": isolation.visible(grant.shares, node), **injection.env}
        if self.names.disable_core_limit:
            injection.env["GPU_CORE_UTILIZATION_POLICY"] = "disable"
        elif self.names.gpu_core_policy not in ("", "default"):
            injection.env["GPU_CORE_UTILIZATION_POLICY"] = self.names.gpu_core_policy
        if self.names.device_memory_scaling > 1:
            injection.env["CUDA_OVERSUBSCRIBE"] = "true"
        priority = asked(pod)[position](self.names.resource_priority_name)
        if priority is not None:
            injection.env["CUDA_TASK_PRIORITY"] = str(priority)
        return injection


def _sighting(card: Card, cordoned: frozenset[str]) -> Sighting:
    return Sighting(
        FAMILY,
        card.index,
        card.id,
        model=card.type,
        memory_bytes=card.devmem * MIB,
        cores=card.devcore,
        slots=card.count,
        numa=card.numa,
        mode=card.mode,
        healthy=card.health,
        cordoned=card.id in cordoned,
        mig=tuple(map(_profile, card.mig_profiles)) if card.mig_profiles else (),
    )


def _profile(profile: Profile) -> MigProfile:
    places = tuple((place.start, place.size) for place in profile.placements)
    return MigProfile(profile.name, profile.memory_mb * MIB, profile.core, places)


def _registered(device: Device) -> dict[str, Any]:
    """A card in the register.  HAMi's plugin leaves out what is zero or false."""
    profiles = [
        Profile(each.name, each.memory_bytes // MIB, each.cores, [Placed(start=a, size=n) for a, n in each.placements])
        for each in device.mig
    ]
    card = Card(device.id, device.index, device.slots, device.memory_bytes // MIB, device.cores, device.model)
    card.numa, card.mode, card.health, card.mig_profiles = device.numa, device.mode, device.healthy, profiles
    return {name: value for name, value in msgspec.to_builtins(card).items() if value}


def _connected(sightings: tuple[Sighting, ...], text: str | None) -> tuple[Sighting, ...]:
    """Add the pair scores that the plugin published."""
    if text is None:
        return sightings
    scores = {each.uuid: each.score for each in annotation.decode(text, list[PairScore])}
    return tuple([msgspec.structs.replace(each, links=scores.get(each.id or "", {})) for each in sightings])


def _cut(grant: Grant, place: int, instances: Mapping[tuple[int, int], MigAllocation], node: Node) -> Grant:
    """The grant with the MIG instances that are recorded for the container at `place`."""
    shares: list[Share] = []
    for i, share in enumerate(grant.shares):
        cut = instances.get((place, i))
        if cut is not None:
            mig: MigInstance | None = MigInstance(cut.profile, cut.placement.start, cut.placement.size)
        else:
            mig = uncut(node.device(share.id))
        shares.append(msgspec.structs.replace(share, mig=mig))
    return msgspec.structs.replace(grant, shares=tuple(shares))
