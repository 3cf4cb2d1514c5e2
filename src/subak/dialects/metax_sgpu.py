"""HAMi's dialect for shared MetaX cards (sGPU).

`metax-tech.com/sgpu` asks for cards, `vcore` for a percentage of each one's cores and `vmemory` for a part of its
memory; what is not said is the whole, so that `sgpu: 1` alone is a card of one's own.  Two annotations say who may
share a card with whom: the QoS policy, which all sub-devices of a card have in common, and the application class.
*Online* pods take cores as they need them (they are charged none) and suspend the *offline* ones beside them.

The node's register tells the cards, their QoS policy and their link zone.  MetaX's own plugin cuts the cards: it reads
the annotations that `write` makes, under HAMi's node lock, and we inject nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
    annotation,
    hami,
)
from subak.dialects.amounts import Asked, asked, mentions, offers
from subak.dialects.config import Metax as Names
from subak.dialects.metax_rules import APP_CLASSES, ONLINE, Shared
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB, Device
from subak.model.node import Node
from subak.model.placement import Grant, Placement
from subak.model.reason import Refusal
from subak.model.request import Claim, Pick
from tinykube.quantity import Format, Quantity, QuantityError

FAMILY = "metax"
WORD = "Metax-SGPU"
REGISTER = "metax-tech.com/node-gpu-devices"
TO_ALLOCATE = "hami.io/metax-sgpu-devices-to-allocate"
ALLOCATED = "hami.io/metax-sgpu-devices-allocated"
VENDOR_ALLOCATED = "metax-tech.com/gpu-devices-allocated"
PREDICATE_TIME = "metax-tech.com/predicate-time"
QOS = "metax-tech.com/sgpu-qos-policy"
APP_CLASS = "metax-tech.com/sgpu-app-class"
TOPOLOGY_AWARE = "metax-tech.com/sgpu-topology-aware"

QOS_POLICIES = (BEST_EFFORT, FIXED_SHARE, BURST_SHARE) = ("best-effort", "fixed-share", "burst-share")

GIB_IN_MIB = 1024
LEAST_BYTES = 10**6
"""No smaller number can be one of bytes: it would be less than 1 MiB."""

_YES = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_NO = frozenset({"0", "f", "F", "false", "False", "FALSE"})


class Card(msgspec.Struct, rename="camel"):
    """A card in the register.  The amounts that the plugin calls available are left out: the ledger counts."""

    uuid: str
    bdf: str = ""
    model: str = ""
    total_dev_count: int = 0
    total_compute: int = 0
    total_v_ram: int = msgspec.field(default=0, name="totalVRam")
    numa: int = 0
    healthy: bool = False
    qos_policy: str = ""
    link_zone: int = 0


class Allotment(msgspec.Struct, omit_defaults=True):
    """A part of a card as MetaX's plugin reads it; it expects zeros to be left out."""

    uuid: str
    compute: int = 0
    v_ram: int = msgspec.field(default=0, name="vRam")


class MetaxSgpu:
    """HAMi, MetaX, shared cards."""

    name = "hami-metax-sgpu"
    families = frozenset({FAMILY})
    owned = hami.OWNED | {TO_ALLOCATE, ALLOCATED, VENDOR_ALLOCATED, PREDICATE_TIME}
    recorded = frozenset({ALLOCATED})
    agent = Agent("hami", (FAMILY,), Source.REGISTER, 16, modes=("sgpu", "native"), lock=hami.LOCK, label=hami.NODE)

    def __init__(self, names: Names) -> None:
        self.names = names
        self.parts = (names.resource_v_core_name, names.resource_v_memory_name)
        self.resources = frozenset({names.resource_v_count_name, *self.parts})
        self.quota_units = {
            names.resource_v_memory_name: QuotaUnit(self.name, memory=True, factor=1024),
            names.resource_v_core_name: QuotaUnit(self.name, memory=False),
        }
        self.measures = {
            names.resource_v_count_name: [Measure(Part.SLOTS)],
            names.resource_v_memory_name: [Measure(Part.MEMORY, GIB_IN_MIB * MIB)],
            names.resource_v_core_name: [Measure(Part.CORES)],
        }

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container asks for shared cards or a part of one."""
        return mentions(pod, self.resources)

    def admit(self, pod: manifest.Pod) -> Patch:
        """The default QoS policy; online pods have none."""
        patch = Patch()
        hami.check_policies(pod.annotations)
        for ask in asked(pod):
            ask.check_most(self.names.resource_v_core_name, FULL_CORES)
            ask.check_counted(self.names.resource_v_count_name, self.parts)
        if self._check(pod) and QOS not in pod.annotations and (policy := qos(pod.annotations)) is not None:
            patch.annotations[QOS] = policy
        return patch

    def _check(self, pod: manifest.Pod) -> bool:
        """Refuse what cannot mean anything, and tell whether the pod asks for any card."""
        counts = [(ask, amounts["count"]) for ask in asked(pod) if (amounts := self.amounts(ask)) is not None]
        if not counts:
            return False
        app_class = _one_of(pod.annotations, APP_CLASS, APP_CLASSES)
        if app_class != ONLINE:
            _one_of(pod.annotations, QOS, QOS_POLICIES)
        for ask, count in counts:
            if app_class and count != 1:
                name = self.names.resource_v_count_name
                raise Refusal(ask.path(name), count, "app-class pod must request single device")
        return True

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per container."""
        if not self._check(pod):
            return Ask()
        return hami.ask_each(pod, self.amounts, self.claim)

    def claim(self, pod: manifest.Pod, position: int, amounts: hami.Amounts) -> Claim:
        """The claim of the container at `position`."""
        annotations = pod.annotations
        app_class = annotations.get(APP_CLASS, "")
        cores = 0 if app_class == ONLINE else amounts["cores"]
        zones = cores == FULL_CORES and not app_class
        wish = annotations.get(TOPOLOGY_AWARE)
        aware = zones and topology_aware(wish, self.names.sgpu_topology_aware, (cores,))
        pick = Pick.RULES if zones or app_class == ONLINE else Pick.IN_ORDER
        claim = hami.claim(
            self.name,
            FAMILY,
            position,
            pod.roles[position],
            count=amounts["count"],
            memory_bytes=amounts["memory_bytes"],
            percent=amounts["percent"],
            cores=cores,
            selection=hami.selection(
                annotations, use_ids="metax-tech.com/use-gpuuuid", nouse_ids="metax-tech.com/nouse-gpuuuid"
            ),
            policy=replace(hami.card_policy(annotations), pick=pick),
            clamp=False,  # MetaX alone does not cut vcore to 100: such a pod, admitted by others, fits nowhere
        )
        return replace(claim, rules=Shared(qos(annotations), app_class, zones, aware))

    def amounts(self, ask: Asked) -> hami.Amounts | None:
        """`count`, `memory_bytes`, `percent` and `cores` of a container; None if it asks for no card."""
        names = self.names
        count = ask(names.resource_v_count_name, "cards")
        if count is None:
            self._refuse_parts(ask)
        if not count:
            return None
        memory_bytes = memory(ask, names.resource_v_memory_name)
        cores = ask(names.resource_v_core_name, "percent")
        return {
            "count": count,
            "memory_bytes": memory_bytes,
            "percent": 0 if memory_bytes else 100,
            "cores": FULL_CORES if cores is None else cores,
        }

    def _refuse_parts(self, ask: Asked) -> None:
        for name in self.parts:
            if ask.has(name):
                count = self.names.resource_v_count_name
                message = f"{name} asks for a part of each card but {count} is missing: add {count}: 1"
                raise Refusal(ask.path(name), ask.text(name), message)

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards of the register annotation."""
        offered = offers(node.allocatable, (self.names.resource_v_count_name,))
        text = node.annotations.get(REGISTER)
        if text is None:
            return Sight(offered)
        try:
            sightings = registered(text)
        except ValueError as error:
            return Sight.unreadable(node, REGISTER, error, FAMILY, offered)
        return Sight(offered or bool(sightings), Source.REGISTER, sightings)

    def publish(self, node: Node) -> Published:
        """The register, and one unit per slot of every card that can be divided at all."""
        cards = [each for each in node.devices if each.family == FAMILY]
        register = {REGISTER: annotation.encode([_card(each) for each in cards])} if cards else {}
        return Published.counted([each for each in cards if each.slots > 1], self._count, register)

    def _count(self, cards: Sequence[Device]) -> dict[str, str]:
        return {self.names.resource_v_count_name: str(sum(each.slots for each in cards))}

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """HAMi's annotations, and the two by which MetaX's plugin knows what to cut for which container."""
        allotments = [
            [Allotment(share.id, share.cores, share.memory_bytes // MIB) for share in shares]
            for shares in hami.cards_by_container(pod, placement, self.name)
        ]
        return {
            **hami.write(pod, placement, now_ns, self.name, WORD, TO_ALLOCATE, ALLOCATED),
            VENDOR_ALLOCATED: annotation.encode(allotments),
            PREDICATE_TIME: str(now_ns),
        }

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """The grants of HAMi's annotations, with what the pod's own say about its neighbours."""
        if ALLOCATED not in pod.annotations:
            return ()  # whatever it asks for, in whatever dialect: it was not placed in ours
        tag = (qos(pod.annotations) or "", pod.annotations.get(APP_CLASS, ""))
        return tuple(
            msgspec.structs.replace(grant, tag=tag)
            for grant in hami.read(pod, node, self.name, ALLOCATED, lambda ask: ask(self.names.resource_v_count_name))
        )

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """Nothing: MetaX's plugin makes the sub-devices and hands them to the container."""
        return Injection()


def registered(text: str) -> tuple[Sighting, ...]:
    """The cards of a register; it has no indices, so that their order counts."""
    return tuple(
        [
            Sighting(
                FAMILY,
                index,
                card.uuid,
                memory_bytes=card.total_v_ram * MIB,
                cores=card.total_compute,
                slots=card.total_dev_count,
                numa=card.numa,
                mode=card.model,  # `sgpu` while it is divided, `native` while somebody holds it whole
                healthy=card.healthy,
                qos=card.qos_policy,
                zone=card.link_zone if card.link_zone > 0 else None,  # another source may tell
            )
            for index, card in enumerate(annotation.decode(text, list[Card]))
        ]
    )


def _card(device: Device) -> Card:
    """A card in the register; nobody reads its bus address."""
    return Card(
        device.id,
        f"{device.index:04x}:0f:00.0",
        device.mode,
        device.slots,
        device.cores,
        device.memory_bytes // MIB,
        device.numa,
        device.healthy,
        device.qos,
        device.zone,
    )


def memory(ask: Asked, name: str) -> int:
    """Bytes of each card, 0 for the whole."""
    text = ask.text(name)
    if text is None:
        return 0
    try:
        amount = Quantity.parse(text)
        mib = int(amount.value // MIB) if _in_bytes(amount, text) else amount.integer() * GIB_IN_MIB
    except QuantityError as error:
        raise Refusal(ask.path(name), text, f"{error}; {name} takes GiB, or bytes with a suffix such as Mi") from None
    if amount and not 1 <= mib <= hami.MOST_MIB:
        raise Refusal(
            ask.path(name),
            text,
            f"{name} is {text}, which means {mib:,} MiB: give a whole number of GiB, or an amount such as 2048Mi",
        )
    return mib * MIB


def _in_bytes(amount: Quantity, text: manifest.Amount) -> bool:
    """Whether an amount has a suffix for bytes; a bare number counts GiB.

    The API server writes a bare 1000 as `1k`.  HAMi takes that for 1000 bytes, finds them to be 0 MiB, and gives the
    whole card.  So `k` counts GiB here, and so does every number too small to be one of bytes.
    """
    if amount.format is Format.BINARY:
        return True
    bare = not any(letter.isalpha() for letter in str(text))
    return not bare and not str(amount).endswith("k") and amount.value >= LEAST_BYTES


def qos(annotations: Mapping[str, str]) -> str | None:
    """The QoS policy of a pod; None for online ones, which have no fixed part of the cores."""
    return None if annotations.get(APP_CLASS) == ONLINE else annotations.get(QOS, BEST_EFFORT)


def topology_aware(wish: str | None, default: bool, cores: Iterable[int]) -> bool:
    """Whether link zones decide between nodes: where it is wished (or the default) and some card is taken whole."""
    wished = wish in _YES or (default and wish not in _NO)
    return wished and FULL_CORES in cores


def _one_of(annotations: Mapping[str, str], key: str, words: tuple[str, ...]) -> str:
    """The annotation's value, empty when absent.  The message is HAMi's."""
    value = annotations.get(key)
    if value is not None and value not in words:
        raise Refusal(f"metadata.annotations[{key}]", value, f"{key} must be set one of [{', '.join(words)}]")
    return value or ""
