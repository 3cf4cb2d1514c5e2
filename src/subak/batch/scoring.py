"""How a configuration scores nodes and orders cards: its weights, mixed into the requests of pods.

    nodeorder    emptier, fuller, evenly used nodes, and what pods would rather have
    binpack      fuller nodes, by the resources that it names
    deviceshare  which cards vGPU pods get, and how much these count for the choice of the node

Without any of them all nodes are equal, and the first by name wins.  A pod that names a policy of its own keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from subak.batch.amounts import Amounts
from subak.batch.arguments import Arguments
from subak.batch.configuration import Configuration
from subak.batch.plugins.binpack import Binpack
from subak.batch.plugins.deviceshare import DeviceShare
from subak.batch.plugins.nodeorder import PREFERENCES, NodeOrder
from subak.dialects import hami, kubernetes, volcano_vgpu
from subak.dialects.volcano_vgpu import VolcanoVgpu
from subak.model import manifest
from subak.model.manifest import Container
from subak.model.request import HIGHEST_INDEX, Claim, Mixture, Packed, Request

GUESSED = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What Kubernetes guesses that a container uses which does not say."""

FLAG = "enableNodeOrder"
"""By which switch a configuration takes a plugin out of the choice of nodes."""

Named = Callable[[str], str]
"""Our name of a resource (see `batch.amounts`), by the one that users write."""


class Scoring:
    """The weights of a configuration; `doubts` say what of them makes no sense."""

    def __init__(self, configuration: Configuration, named: Named) -> None:
        self.doubts: list[str] = []
        self._packing: Mapping[str, int] = {}
        self._mixture = Mixture(preferences=tuple((name, 0) for name, _ in PREFERENCES.values()))
        for name, arguments in self._taking_part(configuration):
            if name == NodeOrder.name:
                self._mixture = NodeOrder.weights(arguments)
        for name, arguments in self._taking_part(configuration):
            if name == Binpack.name:
                packing, resources = Binpack.weights(arguments)
                self._packing = {named(each): weight for each, weight in resources.items()}
                self._mixture = replace(self._mixture, packing=packing)
            elif name == DeviceShare.name:
                policy, weight = DeviceShare.policy(arguments), DeviceShare.weight(arguments)
                self._mixture = replace(self._mixture, cards=weight if policy else 0, card_policy=policy)

    def mixed(self, pod: manifest.Pod, request: Request, asked: Amounts) -> Request:
        """The request of a pod that asks for these amounts, as this configuration has it."""
        claims = tuple(map(self._ordered, request.claims)) if self._mixture.card_policy else request.claims
        if hami.NODE_POLICY in pod.annotations:
            return replace(request, claims=claims)
        guessed = kubernetes.peak(pod, _guessed)
        packed = tuple(
            Packed(name, weight, int(asked[name])) for name, weight in self._packing.items() if asked.get(name)
        )
        vgpu = any(claim.dialect == VolcanoVgpu.name for claim in claims)
        mixture = replace(
            self._mixture,
            cpu=guessed.get("cpu", 0),
            memory=guessed.get("memory", 0),
            packed=packed,
            cards=self._mixture.cards if vgpu else 0,
        )
        return replace(request, claims=claims, mixture=mixture)

    def _taking_part(self, configuration: Configuration) -> Iterator[tuple[str, Arguments]]:
        """The plugins that have a say about nodes, by name."""
        for option in (option for tier in configuration.tiers for option in tier):
            if option.flags.get(FLAG, True):
                yield option.name, Arguments(option.arguments, f"plugin {option.name}", self.doubts)

    def _ordered(self, claim: Claim) -> Claim:
        """A claim of vGPU with the order of cards that the configuration says, if its pod says none."""
        if claim.dialect != VolcanoVgpu.name or claim.policy.order != (HIGHEST_INDEX,):
            return claim
        order = (volcano_vgpu.ORDERS[self._mixture.card_policy],)
        return replace(claim, policy=replace(claim.policy, order=order))


def _guessed(container: Container, field: str) -> Mapping[str, int]:
    said = container.requests
    return {name: kubernetes.units(name, said[name]) if name in said else GUESSED[name] for name in GUESSED}
