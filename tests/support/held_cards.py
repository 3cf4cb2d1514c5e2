"""Which cards carry more than they have, by the words of HAMi's annotations alone: nothing of Subak reads them here."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

REGISTER, HELD = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"


def overcommitted(nodes: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]]) -> list[str]:
    """What is wrong with the cards of these nodes, in words; pods that have finished hold nothing."""
    taken: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for pod in pods:
        if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            for card, mib, cores in _held(pod):
                taken[card] = [had + more for had, more in zip(taken[card], (1, mib, cores), strict=True)]
    problems = []
    for node in nodes:
        for card in json.loads(node["metadata"].get("annotations", {}).get(REGISTER, "[]")):
            used, has = taken.pop(card["id"], [0, 0, 0]), [card["count"], card["devmem"], card["devcore"]]
            if any(mine > there for mine, there in zip(used, has, strict=True)):
                problems.append(f"card {card['id']} has {has} shares, MiB and cores, and {used} are given")
    return problems + [f"card {card} belongs to no node, and {used} of it are given" for card, used in taken.items()]


def _held(pod: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Card, MiB and cores of each share: a device string is `UUID,Type,MiB,Cores:` per card and `;` per container."""
    pieces = pod["metadata"]["annotations"][HELD].replace(";", ":").split(":")
    fields = [piece.split(",") for piece in pieces if piece]
    return [(each[0], int(each[2]), int(each[3])) for each in fields]
