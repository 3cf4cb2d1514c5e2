"""This machine's own NVIDIA cards, and the slices that `subak run` has given of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from subak.dialects.interpreter import Interpreter
from subak.local import slices
from subak.local.slices import DIRECTORY, Slices
from subak.model.card import CardState
from subak.model.node import Node
from subak.node import nvml, usage
from subak.node.usage import Use, Uses


@dataclass(frozen=True, slots=True)
class OwnCards:
    """The cards with their tenants, what these use, and who waits.  `owner` is the cluster that has the cards now."""

    node: Node
    cards: tuple[CardState, ...]
    uses: Uses
    waiting: tuple[str, ...]
    owner: str


def own_cards() -> OwnCards | None:
    """How things are; None if the machine has no cards.  Raises Taken if its slices cannot be read."""
    interpreter = Interpreter()
    machine = nvml.find(interpreter).machine
    if machine is None:
        return None
    digest, _ = machine.digest(interpreter)
    node = replace(digest, taints=())  # they are for pods
    held = Slices(DIRECTORY, interpreter, node)
    pods, now = held.pods(), time.monotonic_ns()
    uses: dict[tuple[str, str], Use] = {}
    for region, pod in pods.items():
        uses |= {(card, pod.key): use for card, use in usage.read(region, now).items()}
    waiting = tuple(pod.key for pod in pods.values() if not pod.spec.node_name)
    return OwnCards(node, tuple(held.snapshot().cards(node.name)), uses, waiting, held.owner())


def in_use() -> bool:
    """Whether somebody has a slice of them, or waits for one.  Raises Taken if that cannot be known."""
    return slices.in_use(DIRECTORY)
