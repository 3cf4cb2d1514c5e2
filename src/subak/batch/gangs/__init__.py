"""To which group a pod belongs, as it says itself, in whichever words; and what its members and its object agree on.

    volcano      annotation `scheduling.k8s.io/group-name`, the group is Volcano's PodGroup
    kubernetes   `spec.schedulingGroup`, the group is Kubernetes' own PodGroup
    plugins      label `scheduling.x-k8s.io/pod-group`, the group is a PodGroup of the scheduler plugins
    koordinator  `gang.scheduling.koordinator.sh/...`, `pod-group.scheduling.sigs.k8s.io...`, with or without an object

There is one file for each of them.  This is the only place where pods are asked for their group.
"""

from __future__ import annotations

from collections.abc import Callable

from subak.batch.gangs import koordinator, kubernetes, plugins, volcano
from subak.batch.gangs.membership import Membership
from subak.batch.gangs.terms import Terms, agreed
from subak.batch.gangs.volcano import GROUP, OLDER_GROUP, QUEUE, ROLE
from subak.model import manifest
from subak.model.group import Group, Words
from subak.model.reason import Refusal

__all__ = [
    "GROUP",
    "OLDER_GROUP",
    "QUEUE",
    "ROLE",
    "Membership",
    "Terms",
    "agreed",
    "key",
    "membership",
    "refusal",
]

READERS: tuple[Callable[[manifest.Pod], Membership | None], ...] = (
    volcano.membership,
    kubernetes.membership,
    plugins.membership,
    koordinator.membership,
)
"""The first to know a group wins."""


def membership(pod: manifest.Pod) -> Membership | None:
    """The group that a pod says it belongs to; None if it is by itself.

    Raises Refusal if it asks for what cannot be honoured, or names two different groups.
    """
    if pod.spec.scheduling_group is None and not pod.metadata.annotations and not pod.metadata.labels:
        return None
    found = [each for read in READERS if (each := read(pod)) is not None]
    if not found:
        return None
    first = found[0]
    for other in found[1:]:
        if other.name != first.name:
            raise Refusal(
                other.field,
                other.name,
                f"{other.field} names the group {other.name}, and {first.field} the group {first.name}: "
                "a pod can be in one group only, so remove one of them",
            )
    return first


def refusal(group: Group) -> str:
    """Why the pods of a group cannot start, because its object asks for what cannot be honoured; empty if they can."""
    if not group.refusal and group.words == Words.KOORDINATOR:
        return koordinator.objection(group)
    return group.refusal


def key(words: str, name: str) -> str:
    """What the job of a group is known by; without words, of a pod by itself."""
    return f"{words or 'pod'} {name}"
