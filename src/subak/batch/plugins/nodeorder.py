"""Which node: by weights of Kubernetes' own scores.  `batch.scoring` mixes them with those of `binpack`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from subak.batch import Plugin
from subak.batch.arguments import Arguments
from subak.model.request import Mixture
from subak.policy.preferred_nodes import FewerTaints, PreferredNodes
from subak.policy.preferred_pods import PreferredPods
from subak.policy.preferred_spread import EvenSpread

LEAST, MOST, BALANCED = "leastrequested.weight", "mostrequested.weight", "balancedresource.weight"
IMAGES = "imagelocality.weight"
PREFERENCES = {
    "nodeaffinity.weight": (PreferredNodes.name, 2),
    "podaffinity.weight": (PreferredPods.name, 2),
    "tainttoleration.weight": (FewerTaints.name, 3),
    "podtopologyspread.weight": (EvenSpread.name, 2),
}
"""The preference that each argument weighs, and its default."""


class NodeOrder(Plugin):
    """Weights of node scores."""

    name = "nodeorder"
    arguments: ClassVar[Mapping[str, str]] = {
        LEAST: "emptier nodes first, by cpu and memory (default 1)",
        MOST: "fuller nodes first (default 0)",
        BALANCED: "nodes on which cpu and memory are used evenly (default 1)",
        IMAGES: "nodes that have the images (not honoured: Subak does not know nodes' images)",
        "nodeaffinity.weight": "preferred node affinity (default 2)",
        "podaffinity.weight": "preferred pod affinity and anti-affinity (default 2)",
        "tainttoleration.weight": "nodes without taints that say PreferNoSchedule (default 3)",
        "podtopologyspread.weight": "topology spread that need not hold (default 2)",
    }

    @staticmethod
    def weights(arguments: Arguments) -> Mixture:
        """What the arguments say."""
        return Mixture(
            least=arguments.integer(LEAST, 1),
            most=arguments.integer(MOST, 0),
            balanced=arguments.integer(BALANCED, 1),
            preferences=tuple(
                (name, arguments.integer(argument, weight)) for argument, (name, weight) in PREFERENCES.items()
            ),
        )
