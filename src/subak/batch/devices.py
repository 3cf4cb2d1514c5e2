"""What a configuration says about cards.

Volcano moved these arguments.  Up to 1.8 they are `predicate.GPUSharingEnable` and so on, of the plugin `predicates`;
from 1.9 on `deviceshare.GPUSharingEnable` and so on, of the plugin `deviceshare`.  There, what nobody switches on is
off, and a key in the wrong place is ignored without a word, so that pods start without a card.  Here both spellings
count, and what nobody switches off is on.  Where both are written, the newer one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from subak.batch.arguments import Arguments
from subak.batch.configuration import Devices, Option
from subak.dialects import volcano_share, volcano_vgpu
from subak.dialects.amounts import asked, mentions
from subak.model import manifest
from subak.model.reason import Refusal
from subak.model.request import BINPACK, SPREAD

PREFIXES = {"predicates": "predicate", "deviceshare": "deviceshare"}
"""The plugins that have these arguments, the older one first, and how the arguments begin there."""

SWITCHES: Mapping[str, frozenset[str]] = {
    "GPUSharingEnable": frozenset({volcano_share.MEMORY}),
    "GPUNumberEnable": frozenset({volcano_share.NUMBER}),
    "VGPUEnable": volcano_vgpu.VolcanoVgpu.resources,
}
"""The resources that each argument switches on and off."""

NODE_LOCK = "NodeLockEnable"
POLICY, WEIGHT = "deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight"


def read(options: Iterable[Option]) -> tuple[Devices, list[str]]:
    """What the plugins of a configuration say of cards, and what is strange about it."""
    off: dict[str, str] = {}
    policy, weight = "", 0
    doubts: list[str] = []
    for option in sorted(options, key=lambda option: option.name != "predicates"):
        prefix = PREFIXES.get(option.name)
        if prefix is None:
            continue
        arguments = Arguments(option.arguments, f"plugin {option.name}", doubts)
        for switch, resources in SWITCHES.items():
            key = f"{prefix}.{switch}"
            if key in option.arguments:
                off = {name: by for name, by in off.items() if name not in resources}
                if not arguments.flag(key, True):
                    off |= dict.fromkeys(sorted(resources), key)
        if arguments.flag(f"{prefix}.{NODE_LOCK}", False):
            doubts.append(
                f"plugin {option.name}: {prefix}.{NODE_LOCK}: true has no effect: pods take turns where the agent of a "
                "node would confuse them, and nowhere else"
            )
        if option.name == "deviceshare":
            policy, weight = _policy(arguments, doubts), arguments.integer(WEIGHT, 0)
    return Devices(off, policy, weight), doubts


def _policy(arguments: Arguments, doubts: list[str]) -> str:
    policy = arguments.text(POLICY)
    if policy in ("", BINPACK, SPREAD):
        return policy
    doubts.append(f"{arguments.place}: argument {POLICY} is {policy!r}, not {BINPACK} or {SPREAD}; it is ignored")
    return ""


def check(devices: Devices, pod: manifest.Pod) -> None:
    """Raise Refusal if the pod asks for what is switched off."""
    if not devices.off or not mentions(pod, devices.off):
        return
    for container in asked(pod):
        for name, key in devices.off.items():
            if container(name):
                message = (
                    f"{key} is false in the scheduler configuration, so that nobody gets {name}: "
                    "set it to true or remove it there, or ask in other words"
                )
                raise Refusal(container.path(name), container.text(name), message)
