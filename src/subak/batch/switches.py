"""Which resources of Volcano's cards are switched off.

Volcano moved these switches.  Up to 1.8 they are `predicate.GPUSharingEnable` and so on, of the plugin `predicates`;
from 1.9 on `deviceshare.GPUSharingEnable` and so on, of the plugin `deviceshare`.  There, what nobody switches on is
off, and a key in the wrong place is ignored without a word, so that pods start without a card.  Here both spellings
count, and what nobody switches off is on.  Where both are written, the newer one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from subak.batch.arguments import Arguments
from subak.batch.configuration import Option
from subak.dialects import volcano_share, volcano_vgpu
from subak.dialects.amounts import asked, mentions
from subak.model import manifest
from subak.model.reason import Refusal

PREFIXES = {"predicates": "predicate", "deviceshare": "deviceshare"}
"""The plugins that have the switches, the older one first, and how the keys begin there."""

SWITCHES: Mapping[str, frozenset[str]] = {
    "GPUSharingEnable": frozenset({volcano_share.MEMORY}),
    "GPUNumberEnable": frozenset({volcano_share.NUMBER}),
    "VGPUEnable": volcano_vgpu.VolcanoVgpu.resources,
}


def read(options: Iterable[Option]) -> tuple[dict[str, str], list[str]]:
    """The resources that are switched off, each with the key that does so; and what is wrong with such keys."""
    off: dict[str, str] = {}
    doubts: list[str] = []
    listed = list(options)
    for plugin, prefix in PREFIXES.items():
        for option in (option for option in listed if option.name == plugin):
            arguments = Arguments(option.arguments, f"plugin {plugin}", doubts)
            for switch, resources in SWITCHES.items():
                key = f"{prefix}.{switch}"
                if key not in option.arguments:
                    continue
                on = arguments.flag(key, True)
                for resource in sorted(resources):
                    off.pop(resource, None)
                    if not on:
                        off[resource] = key
    return off, doubts


def check(off: Mapping[str, str], pod: manifest.Pod) -> None:
    """Raise Refusal if the pod asks for what is switched off."""
    if not off or not mentions(pod, off):
        return
    for container in asked(pod):
        for name, key in off.items():
            if container(name):
                message = (
                    f"{key} is false in the scheduler configuration, so that nobody gets {name}: "
                    "set it to true or remove it there, or ask in other words"
                )
                raise Refusal(container.path(name), container.text(name), message)
