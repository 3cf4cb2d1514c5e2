"""Other systems that give out the same cards, by the names of their programs and images."""

from __future__ import annotations

import re
from collections.abc import Iterable

RIVALS = {
    "HAMi's device plugin": re.compile(r"\b(hami|vgpumonitor|vgpu-monitor)\b", re.IGNORECASE),
    "NVIDIA's device plugin": re.compile(r"\b(nvidia-device-plugin|k8s-device-plugin)\b"),
    "Volcano's device plugin": re.compile(r"\bvolcano-(vgpu-)?device-plugin\b"),
    "Koordinator's koordlet": re.compile(r"\bkoordlet\b"),
}
"""HAMi comes first: the program of its plugin is called as NVIDIA's."""

REMEDY = (
    "let one of them serve the node: keep it off by its DaemonSet's nodeSelector (HAMi's is gpu=on), "
    "or take the agent of Subak off there"
)


def known(texts: Iterable[str]) -> str:
    """The rival that one of these names of programs or images means; empty if none."""
    given = [text for text in texts if text]
    return next((name for name, words in RIVALS.items() if any(words.search(text) for text in given)), "")
