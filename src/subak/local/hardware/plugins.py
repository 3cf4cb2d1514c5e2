"""What the vendors' agents do besides publishing cards: what they write on pods and nodes, and what their images have.

Each function plays the agent of a dialect, on a node whose cards are only described.
"""

from __future__ import annotations

from collections.abc import Sequence

from subak.dialects import Dialect, annotation, metax_gpu
from subak.local.hardware.library import empty
from subak.local.runtime.spec import File
from subak.model import manifest
from subak.model.device import Device
from subak.policy.metax import topology_tables


def served(dialect: Dialect, pod: manifest.Pod) -> dict[str, str]:
    """What it writes on a pod whose containers have their cards.

    HAMi's plugins take the cards out of the list that waits for them and report success; Volcano's and Iluvatar's
    say that the pod is assigned.
    """
    written: dict[str, str] = {}
    for key in sorted(dialect.owned):
        if key.endswith("-to-allocate") and key in pod.annotations:
            written[key] = ";" * len(pod.containers)
        elif key.endswith("/bind-phase"):
            written[key] = "success"
        elif key.endswith("/gpu-assigned"):
            written[key] = "true"
    return written


def failed(dialect: Dialect) -> dict[str, str]:
    """What it writes on a pod that it cannot serve."""
    return {key: "failed" for key in dialect.owned if key.endswith("/bind-phase")}


def tells_use(dialect: Dialect) -> bool:
    """Whether it writes on its node which cards are free: only MetaX's plugin for whole cards does."""
    return isinstance(dialect, metax_gpu.MetaxGpu)


def in_use(dialect: Dialect, cards: Sequence[Device], free: Sequence[Device]) -> dict[str, str]:
    """What it writes on its node whenever a card is taken or given back: what the free ones are worth together."""
    if not tells_use(dialect):
        return {}
    scores, losses = topology_tables([each for each in free if each.healthy])
    return {
        metax_gpu.ZONES_KEY: metax_gpu.zones(cards, free),
        metax_gpu.SCORES_KEY: annotation.encode(scores),
        metax_gpu.LOSSES_KEY: annotation.encode(losses),
    }


def files(dialect: Dialect) -> list[File]:
    """The libraries and directories of the vendor's image."""
    return [
        *(File(path, directory=True, mode=0o755) for path in dialect.agent.directories),
        *(File(path, empty(), mode=0o755) for path in dialect.agent.libraries),
    ]
