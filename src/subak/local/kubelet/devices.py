"""The kubelet's interface to the cards: each container's share and use, and the files of the vendor's image."""

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

        Called before a pod's first container starts, and again before later ones, after NotReady and after a restart of
        the kubelet; a pod that has its cards gets the same answer.  Raises Refusal if the node cannot honour the
        placement, NotReady if it cannot at present.
        """

    def starting(self, pod: manifest.Pod, position: int) -> None:
        """The container at `position` of `pod.containers` is about to start; no process of an earlier run is left."""

    async def release(self, pod: manifest.Pod) -> None:
        """Release the cards of a pod that has ended.  Does no harm if it held none."""

    def use(self, pod: manifest.Pod) -> Mapping[str, Sequence[tuple[Device, Use]]]:
        """What the pod's containers use of their cards, by the container's name, as far as it is known."""

    def files(self, node: str) -> Sequence[File]:
        """The files that the vendor's image or plugin brings into a container on this node."""

    def simulated(self, node: str) -> bool:
        """Whether the node's cards are simulated: then a file that an injection mounts need not exist."""
