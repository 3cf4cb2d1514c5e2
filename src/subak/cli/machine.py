"""This machine's own NVIDIA cards, and the slices of `subak run`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from subak.dialects.interpreter import Interpreter
from subak.local import slices
from subak.local.slices import Slices
from subak.model.card import CardState
from subak.model.node import Node
from subak.node import nvml, usage
from subak.node.usage import Use, Uses


@dataclass(frozen=True, slots=True)
class OwnCards:
    """The cards, what their tenants use, and the commands that wait.  `owner` is the cluster that has the cards now."""

    node: Node
    cards: tuple[CardState, ...]
    uses: Uses
    waiting: tuple[str, ...]
    owner: str


def own_cards() -> OwnCards | None:
    """The cards as they are now; None if the machine has none.  Raises CardsTaken if its slices cannot be read."""
    interpreter = Interpreter()
    machine = nvml.find(interpreter).machine
    if machine is None:
        return None
    digest, _ = machine.digest(interpreter)
    node = replace(digest, taints=())  # they are for pods
    held = Slices(slices.directory(), interpreter, node)
    pods, now = held.pods(), time.monotonic_ns()
    uses: dict[tuple[str, str], Use] = {}
    for region, pod in pods.items():
        uses |= {(card, pod.key): use for card, use in usage.read(region, now).items()}
    waiting = tuple(pod.key for pod in pods.values() if not pod.spec.node_name)
    return OwnCards(node, tuple(held.snapshot().cards(node.name)), uses, waiting, held.owner())


def in_use() -> bool:
    """Whether a command has a slice or waits for one.  Raises CardsTaken if the slices cannot be read."""
    return slices.in_use(slices.directory())
