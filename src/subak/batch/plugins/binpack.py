"""Which node: the fuller the better, by weights of resources.  `batch.scoring` mixes it with `nodeorder`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from subak.batch import Plugin
from subak.batch.arguments import Arguments

WEIGHT = "binpack.weight"
RESOURCES = "binpack.resources"
PLAIN = ("cpu", "memory")


class Binpack(Plugin):
    """Fills nodes."""

    name = "binpack"
    arguments: ClassVar[Mapping[str, str]] = {
        WEIGHT: "how much it counts (default 1); 0 switches it off",
        "binpack.cpu": "how much cpu counts (default 1)",
        "binpack.memory": "how much memory counts (default 1)",
        RESOURCES: "other resources that count, with commas between them",
        f"{RESOURCES}.*": "how much each of them counts (default 1)",
    }

    @staticmethod
    def weights(arguments: Arguments) -> tuple[int, dict[str, int]]:
        """How much it counts, and how much each resource does, by the name that the configuration has for it."""
        names = [name.strip() for name in arguments.text(RESOURCES).split(",")]
        weights = {name: arguments.integer(f"binpack.{name}", 1) for name in PLAIN}
        weights |= {name: arguments.integer(f"{RESOURCES}.{name}", 1) for name in names if name}
        return arguments.integer(WEIGHT, 1), {name: 1 if weight < 0 else weight for name, weight in weights.items()}
