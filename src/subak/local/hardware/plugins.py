"""The vendors' device plugins: what each publishes on its node, and what it writes on a pod that it has served.

    word            NVIDIA                      Iluvatar             Moore Threads   MetaX
    hami            register, pair scores       register, handshake  totals          register; wiring of whole cards
    hami-legacy     -                           totals, older names  -               -
    volcano         totals, broken cards        -                    -               -
    volcano-vgpu    totals, register            -                    -               -
    koordinator     Device object, node labels  -                    -               Device object, node labels

Totals are in the node's capacity, which the dialects know themselves.  Annotations and labels are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from subak.dialects import Dialect, Source, annotation, metax_gpu, metax_sgpu, nvidia, volcano_share, volcano_vgpu
from subak.dialects.iluvatar import IluvatarChip, IluvatarLegacy
from subak.dialects.interpreter import Interpreter
from subak.dialects.koordinator import Koordinator as KoordinatorDialect
from subak.dialects.koordinator_device import device_object, node_labels
from subak.dialects.koordinator_names import ISOLATION
from subak.dialects.metax_links import topology_tables
from subak.dialects.mthreads import Mthreads as MthreadsDialect
from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.node import Node

WORDS = ("hami", "hami-legacy", "volcano", "volcano-vgpu", "koordinator")
VENDORS = ("nvidia", "iluvatar", "mthreads", "metax")

LINK_WEIGHT, SWITCH_WEIGHT = 60, 50
"""What MetaX's plugin counts for MetaXLink between two cards, and for a common PCIe switch."""

Key = TypeVar("Key", int, str)


class Plugin:
    """A vendor's plugin on one node.

    `source` says where it describes the cards: only a register or a Device object names them by UUID.  `shares` is how
    many containers may have a part of a card; 0 means one for every MiB.  An administrator can choose another number
    where the cards are in a register.  `tells_use`: what it writes depends on which cards are free.  `libraries` and
    `directories` are what the vendor's image has, in every container.
    """

    source = Source.CAPACITY
    shares = 100
    tells_use = False
    libraries: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def capacity(self, node: Node) -> dict[str, str]:
        """What the node has, broken cards included: those are missing in allocatable only."""
        whole = tuple(msgspec.structs.replace(each, healthy=True) for each in node.devices)
        return self.dialect.capacity(replace(node, devices=whole))

    def annotations(self, node: Node) -> dict[str, str]:
        """What it writes on the node."""
        return {}

    def labels(self, node: Node) -> dict[str, str]:
        """The labels that come with it."""
        return {}

    def device_object(self, node: Node) -> dict[str, Any] | None:
        """Koordinator's Device object, where it writes one."""
        return None

    def in_use(self, node: Node, free: Sequence[Device]) -> dict[str, str]:
        """What it writes on the node whenever a card is taken or given back."""
        return {}

    def served(self, pod: manifest.Pod) -> dict[str, str]:
        """What it writes on a pod whose containers have their cards.

        HAMi's plugins take the cards out of the list that waits for them and report success; Volcano's and Iluvatar's
        say that the pod is assigned.
        """
        written: dict[str, str] = {}
        for key in sorted(self.dialect.owned):
            if key.endswith("-to-allocate") and key in pod.annotations:
                written[key] = ";" * len(pod.containers)
            elif key.endswith("/bind-phase"):
                written[key] = "success"
            elif key.endswith("/gpu-assigned"):
                written[key] = "true"
        return written

    def failed(self) -> dict[str, str]:
        """What it writes on a pod that it cannot serve."""
        return {key: "failed" for key in self.dialect.owned if key.endswith("/bind-phase")}


class HamiNvidia(Plugin):
    """HAMi's own plugin."""

    source = Source.REGISTER

    def __init__(self, dialect: nvidia.Nvidia) -> None:
        super().__init__(dialect)
        self.shares = dialect.names.device_split_count

    def annotations(self, node: Node) -> dict[str, str]:
        """The register in JSON, and how well the cards are connected if that is known."""
        written = {nvidia.REGISTER: annotation.encode([_registered(each) for each in node.devices])}
        if any(each.links for each in node.devices):
            scores = [{"uuid": each.id, "score": dict(each.links)} for each in node.devices]
            written[nvidia.PAIR_SCORES] = annotation.encode(scores)
        return written

    def labels(self, node: Node) -> dict[str, str]:
        """HAMi's chart runs the plugin where this label is."""
        return {"gpu": "on"}


class VolcanoShare(Plugin):
    """Volcano's plugin with the strategy `share`; it makes a device of every MiB."""

    shares = 0

    def annotations(self, node: Node) -> dict[str, str]:
        """The broken cards."""
        broken = ",".join(str(each.index) for each in node.devices if not each.healthy)
        return {volcano_share.UNHEALTHY: broken} if broken else {}


class VolcanoVgpu(Plugin):
    """HAMi's plugin for Volcano."""

    source, shares = Source.REGISTER, 10

    def __init__(self, dialect: volcano_vgpu.VolcanoVgpu) -> None:
        super().__init__(dialect)
        self.granule = dialect.granule

    def annotations(self, node: Node) -> dict[str, str]:
        """The register in Volcano's colon form."""
        cards = (
            f"{each.id},{each.slots},{each.memory_bytes // self.granule},{each.model},{_flag(each.healthy)},{each.mode}"
            for each in node.devices
        )
        return {volcano_vgpu.REGISTER: "".join(f"{card}:" for card in cards)}


class Koordinator(Plugin):
    """Koordinator's agents: they describe cards in an object of their own."""

    source = Source.DEVICE_OBJECT

    def capacity(self, node: Node) -> dict[str, str]:
        """Sums over the healthy cards, which koord-manager writes to capacity and allocatable alike."""
        return self.dialect.capacity(node)

    def labels(self, node: Node) -> dict[str, str]:
        """What koord-manager copies from the Device object, and the administrator's word that libsubak may isolate."""
        isolated = all(each.family == nvidia.FAMILY for each in node.devices)
        return {**node_labels(node), **({ISOLATION: "HAMi-core"} if isolated else {})}

    def device_object(self, node: Node) -> dict[str, Any] | None:
        """All cards of the node."""
        return device_object(node)


class Iluvatar(Plugin):
    """Iluvatar's gpu-manager; under the older names it publishes nothing but totals."""

    libraries = tuple(f"/usr/local/iluvatar/lib64/{name}" for name in ("libcuda.so", "libcuda.so.1", "libixml.so"))
    directories = ("/usr/local/corex/lib64",)


class IluvatarRegister(Iluvatar):
    """gpu-manager under the newer names: HAMi's register in colon form."""

    source = Source.REGISTER

    def __init__(self, dialect: IluvatarChip) -> None:
        super().__init__(dialect)
        self.register, self.word = dialect.register, dialect.word

    def annotations(self, node: Node) -> dict[str, str]:
        """The register; its seven fields have no index, so that the order counts."""
        cards = (
            f"{each.id},{each.slots},{each.memory_bytes // MIB},{each.cores},{self.word},{each.numa},"
            f"{_flag(each.healthy)}:"
            for each in node.devices
        )
        return {self.register: "".join(cards)}


class Mthreads(Plugin):
    """Moore Threads' plugin, which publishes nothing but totals."""


class MetaxSgpu(Plugin):
    """MetaX's plugin for shared cards."""

    source, shares = Source.REGISTER, 16

    def annotations(self, node: Node) -> dict[str, str]:
        """The register in JSON."""
        cards = [
            {
                "uuid": each.id,
                "bdf": f"{each.index:04x}:0f:00.0",
                "model": each.mode,
                "totalDevCount": each.slots,
                "totalCompute": each.cores,
                "totalVRam": each.memory_bytes // MIB,
                "numa": each.numa,
                "healthy": each.healthy,
                "qosPolicy": each.qos,
                "linkZone": each.zone,
            }
            for each in node.devices
        ]
        return {metax_sgpu.REGISTER: annotation.encode(cards)}


class MetaxGpu(Plugin):
    """MetaX's plugin for whole cards: how they are wired, and what the free ones are worth together."""

    shares = 1
    tells_use = True

    def annotations(self, node: Node) -> dict[str, str]:
        """Wiring and figures of an unused node."""
        return self.in_use(node, node.devices)

    def in_use(self, node: Node, free: Sequence[Device]) -> dict[str, str]:
        """Groups of cards with those that are free, and the figures for any number of them."""
        links = _grouped(node.devices, lambda each: each.zone)
        switches = _grouped(node.devices, lambda each: each.pcie)
        zones = [_zone(f"gpu-group-{zone - 1}", "DirectLink", LINK_WEIGHT, links[zone], free) for zone in links]
        zones += [_zone(name, "PCIeSwitch", SWITCH_WEIGHT, switches[name], free) for name in switches]
        scores, losses = topology_tables([each for each in free if each.healthy])
        return {
            metax_gpu.ZONES_KEY: annotation.encode(zones),
            metax_gpu.SCORES_KEY: annotation.encode(scores),
            metax_gpu.LOSSES_KEY: annotation.encode(losses),
        }


def plugin(word: str, family: str, model: str, whole: bool, interpreter: Interpreter) -> Plugin | None:
    """The plugin that a word means on a node with such cards; None if there is none."""
    for dialect in interpreter.dialects:
        match dialect, word:
            case nvidia.Nvidia(), "hami" if family == nvidia.FAMILY:
                return HamiNvidia(dialect)
            case volcano_share.VolcanoShare(), "volcano" if family == nvidia.FAMILY:
                return VolcanoShare(dialect)
            case volcano_vgpu.VolcanoVgpu(), "volcano-vgpu" if family == nvidia.FAMILY:
                return VolcanoVgpu(dialect)
            case IluvatarChip(), "hami" if family in dialect.families and model == dialect.word:
                return IluvatarRegister(dialect)
            case IluvatarLegacy(), "hami-legacy" if family in dialect.families:
                return Iluvatar(dialect)
            case MthreadsDialect(), "hami" if family in dialect.families:
                return Mthreads(dialect)
            case metax_sgpu.MetaxSgpu(), "hami" if family in dialect.families and not whole:
                return MetaxSgpu(dialect)
            case metax_gpu.MetaxGpu(), "hami" if family in dialect.families and whole:
                return MetaxGpu(dialect)
            case KoordinatorDialect(), "koordinator" if family in (nvidia.FAMILY, metax_sgpu.FAMILY):
                return Koordinator(dialect)
    return None


def _registered(card: Device) -> dict[str, Any]:
    """A card in HAMi's register.  Its plugin leaves out what is zero or false."""
    fields = {
        "id": card.id,
        "index": card.index,
        "count": card.slots,
        "devmem": card.memory_bytes // MIB,
        "devcore": card.cores,
        "type": card.model,
        "numa": card.numa,
        "mode": card.mode,
        "health": card.healthy,
        "migProfiles": [
            {
                "name": profile.name,
                "memoryMB": profile.memory_bytes // MIB,
                "core": profile.cores,
                "placements": [{"start": start, "size": size} for start, size in profile.placements],
            }
            for profile in card.mig
        ],
    }
    return {name: value for name, value in fields.items() if value}


def _zone(name: str, type: str, weight: int, cards: Sequence[Device], free: Sequence[Device]) -> dict[str, Any]:
    free_ids = {each.id for each in free}
    return {
        "name": name,
        "type": type,
        "topologyLinkWeight": weight,
        "capacity": [each.index for each in cards],
        "allocatable": [each.index for each in cards if each.healthy],
        "available": [each.index for each in cards if each.healthy and each.id in free_ids],
    }


def _grouped(cards: Sequence[Device], group: Callable[[Device], Key]) -> Mapping[Key, list[Device]]:
    """The cards by their group, in order; those without one are left out."""
    groups: dict[Key, list[Device]] = {}
    for each in cards:
        if group(each):
            groups.setdefault(group(each), []).append(each)
    return {key: groups[key] for key in sorted(groups)}


def _flag(value: bool) -> str:
    return "true" if value else "false"
