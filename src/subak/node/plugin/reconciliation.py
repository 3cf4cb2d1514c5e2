"""What kubelet says its containers have, compared with what the node's agent knows of them.

A container that asks for cards and runs without a slot was never put to the gate: it was bound here by hand, or
admitted before kubelet knew of slots.  Nothing holds it to any limit.  Without NRI nobody could keep it from starting;
it can only be found.

A slot that is open for a container that is gone is to be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from subak.model import manifest
from subak.model.manifest import Role
from subak.model.variables import SLOT
from subak.node.plugin.podresources import Holder

Asking = Callable[[manifest.Pod], Collection[int]]
"""The positions of the containers that ask for cards of this node."""


@dataclass(frozen=True, slots=True)
class Unguarded:
    """A container that runs without a slot."""

    pod: manifest.Pod
    container: str

    def __str__(self) -> str:
        return (
            f"container {self.container} runs without {SLOT}, so that no limit holds: create the pod again while "
            "Subak's webhook is up, and let Subak place it"
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """An open slot of which kubelet says something else than we know.

    `owner` is for whom it is open, and `known` the same in words; `over`: that pod has ended, and nobody has the slot.
    """

    slot: str
    owner: str
    known: str
    kubelet: str
    over: bool

    def __str__(self) -> str:
        return f"{SLOT} {self.slot} is open for {self.known}, and kubelet has given it to {self.kubelet}"


def unguarded(pods: Iterable[manifest.Pod], holders: Iterable[Holder], asking: Asking) -> Iterator[Unguarded]:
    """Containers that run, and that kubelet has given no slot.

    Kubelet does not tell of ordinary init containers, and a pod of which it tells nothing is not there, or over.
    """
    said = {(each.namespace, each.pod, each.container): each for each in holders}
    for pod in pods:
        if not pod.started or pod.finished:
            continue
        for position in asking(pod):
            name = pod.containers[position].name
            holder = said.get((pod.namespace, pod.name, name))
            if holder is not None and pod.roles[position] is not Role.INIT and not holder.devices.get(SLOT):
                yield Unguarded(pod, name)


def differences(
    owners: Mapping[str, str], holders: Iterable[Holder], named: Callable[[str], manifest.Pod | None]
) -> Iterator[Difference]:
    """Open slots, by their owners (`UID/CONTAINER`), that kubelet does not give to the same container."""
    said = {slot: each for each in holders for slot in each.devices.get(SLOT, ())}
    for slot, owner in owners.items():
        uid, _, container = owner.partition("/")
        pod, holder = named(uid), said.get(slot)
        known = f"container {container} of pod {pod.key if pod is not None else uid}"
        if holder is None or str(holder) != known:
            over = holder is None and (pod is None or pod.finished)
            yield Difference(slot, owner, known, "nobody" if holder is None else str(holder), over)
