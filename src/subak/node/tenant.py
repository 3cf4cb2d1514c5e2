"""Tenants: who counts in one region, what they hold of which cards, and by which rules.

Usually that is one container.  The containers of a pod that hold a grant together are one tenant.  Whoever has a card
without our library, such as a pod of another vendor's cards or one that switched its limits off, has no region: nobody
knows what it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from subak.dialects import Injection, isolation
from subak.model import manifest
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Placement, Share
from subak.node import feedback, trees
from subak.node.host import Host


@dataclass(frozen=True, slots=True)
class Held:
    """A share of a card; `number` is the card's in the container's file of limits."""

    number: int
    device: Device
    share: Share


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant; `containers` are its names by their positions in the pod."""

    pod: manifest.Pod
    containers: Mapping[int, str]
    cards: tuple[Held, ...]
    region: Path | None = None
    states: tuple[Path, ...] = ()
    policy: str = isolation.DEFAULT
    priority: int = isolation.USUAL

    @property
    def name(self) -> tuple[str, int]:
        """Unique on a node: the pod's UID, and the position of the first container."""
        return self.pod.metadata.uid, min(self.containers)

    def starting(self, position: int) -> None:
        """Forget what a container used before it starts again: nobody inside can know that its processes ended.

        Its region is thrown away.  In one that it shares the others go on, and only its own processes count as silent.
        """
        if self.region is None or position not in self.containers:
            return
        if len(self.containers) > 1:
            feedback.silence(self.region, position)
        else:
            trees.throw_away(self.region)


def tenants(
    pod: manifest.Pod, placement: Placement, injections: Sequence[Injection], node: Node, host: Host
) -> list[Tenant]:
    """The tenants of a pod that holds the placement, in the order of its containers."""
    shared: dict[str, list[int]] = {}
    for position, injection in enumerate(injections):
        if injection.held and not isolation.switched_off(pod.containers[position]):
            shared.setdefault(injection.env[isolation.REGION], []).append(position)
    found = [_counted(pod, positions, injections, node, host) for positions in shared.values()]
    counted = {position for positions in shared.values() for position in positions}
    for grant in placement.grants:
        rest = [position for position in grant.containers if position not in counted]
        if rest:
            found.append(Tenant(pod, _names(pod, rest), tuple(_cards(grant.shares, node))))
    return sorted(found, key=lambda each: each.name)


def _counted(
    pod: manifest.Pod, positions: Sequence[int], injections: Sequence[Injection], node: Node, host: Host
) -> Tenant:
    """A tenant that our library counts.  The most important of several containers speaks for all of them."""
    containers = [(pod.containers[position], injections[position].env) for position in positions]
    first = injections[positions[0]]
    return Tenant(
        pod,
        _names(pod, positions),
        tuple(_cards(first.held, node)),
        host.region(Path(first.env[isolation.REGION]).stem),
        tuple(host.state(pod, container) for container, _ in containers),
        isolation.policy(*containers[0]),
        min(isolation.priority(*each) for each in containers),
    )


def _names(pod: manifest.Pod, positions: Sequence[int]) -> dict[int, str]:
    return {position: pod.containers[position].name for position in positions}


def _cards(shares: Sequence[Share], node: Node) -> Iterator[Held]:
    for number, share in enumerate(shares):
        device = node.device(share.id)
        if device is not None:
            yield Held(number, device, share)
