"""Shared cards: whether they are switched on, in which order vGPU takes cards, and how much the cards count for a node.

Subak shares cards without being told to.  `batch.scoring` mixes the score with that of `nodeorder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from subak.batch import Plugin
from subak.batch.arguments import Arguments
from subak.model.request import BINPACK, SPREAD

POLICY, WEIGHT = "deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight"


class DeviceShare(Plugin):
    """Switches and policies of shared cards."""

    name = "deviceshare"
    arguments: ClassVar[Mapping[str, str]] = {
        "deviceshare.GPUSharingEnable": "volcano.sh/gpu-memory; on unless it says false",
        "deviceshare.GPUNumberEnable": "volcano.sh/gpu-number; on unless it says false",
        "deviceshare.VGPUEnable": "volcano.sh/vgpu-*; on unless it says false",
        "deviceshare.NodeLockEnable": "locks are taken where a vendor's agent needs them, whatever it says",
        POLICY: "binpack or spread: which cards vGPU pods get, if they do not say themselves",
        WEIGHT: "how much those cards count for the choice of the node (default 0)",
        "deviceshare.AscendMindClusterVNPUEnable": "not honoured",
        "deviceshare.AscendHAMiVNPUEnable": "not honoured",
        "deviceshare.KnownGeometriesCMName": "not honoured",
        "deviceshare.KnownGeometriesCMNamespace": "not honoured",
        "deviceshare.GPUExclusiveRules": "not honoured",
    }

    @staticmethod
    def policy(arguments: Arguments) -> str:
        """How vGPU pods choose cards; empty if the configuration does not say."""
        word = arguments.text(POLICY)
        if word not in ("", BINPACK, SPREAD):
            arguments.doubts.append(f"{arguments.place}: argument {POLICY} is {word!r}, not binpack or spread; ignored")
            return ""
        return word

    @staticmethod
    def weight(arguments: Arguments) -> int:
        """How much the cards count for the choice of the node."""
        return max(arguments.integer(WEIGHT, 0), 0)
