"""What the kubelet asks of whoever knows the cards: each container's share and use, and what the vendor's image has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from subak.dialects import Injection
from subak.local.runtime.spec import File
from subak.model import manifest
from subak.model.device import Device
from subak.node.usage import Use


class Devices(Protocol):
    """The cards of all local nodes."""

    async def allocate(self, pod: manifest.Pod) -> Sequence[Injection]:
        """What each container gets, in the order of `pod.containers`.

        Called once before a pod's first container starts, and again after a restart of the kubelet; asking twice for
        the same pod gives the same answer.  Raises Refusal if the node cannot honour the placement.
        """

    def starting(self, pod: manifest.Pod, position: int) -> None:
        """The container at `position` of `pod.containers` is about to start, and nothing of it runs any more."""

    async def release(self, pod: manifest.Pod) -> None:
        """The pod has ended and holds nothing any more.  Does no harm if it never held anything."""

    def use(self, pod: manifest.Pod) -> Mapping[str, Sequence[tuple[Device, Use]]]:
        """What the pod's containers use of their cards, by the container's name, as far as anybody knows."""

    def files(self, node: str) -> Sequence[File]:
        """What the vendor's image or plugin would bring into a container on this node."""

    def simulated(self, node: str) -> bool:
        """Whether the node's cards are make-believe: then a file that an injection mounts need not exist."""
