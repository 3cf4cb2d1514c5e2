"""To which group a pod belongs, as it says itself, in whichever words."""

from __future__ import annotations

from dataclasses import dataclass

from subak.model import manifest
from subak.model.group import Words

GROUP = "scheduling.k8s.io/group-name"
OLDER_GROUP = "scheduling.volcano.sh/group-name"
"""Annotations by which pods name Volcano's PodGroup; the first wins."""

QUEUE = "scheduling.volcano.sh/queue-name"
ROLE = "volcano.sh/task-spec"


@dataclass(frozen=True, slots=True)
class Membership:
    """The group of a pod: in whose words, and its `namespace/name`.

    What the pod does not say itself, because an object does, is None.  `role` is the kind of member, of which the group
    may want so many (`min_roles`).
    """

    words: str
    name: str
    min_member: int | None = None
    min_roles: tuple[tuple[str, int], ...] = ()
    role: str = ""
    timeout: float | None = None


def membership(pod: manifest.Pod) -> Membership | None:
    """The group that a pod says it belongs to; None if it is by itself.

    Raises Refusal if it asks for what cannot be honoured.
    """
    name = pod.annotations.get(GROUP) or pod.annotations.get(OLDER_GROUP)
    if name:
        return Membership(Words.VOLCANO, f"{pod.namespace}/{name}", role=pod.annotations.get(ROLE, ""))
    return None


def key(words: str, name: str) -> str:
    """What the job of a group is known by; without words, of a pod by itself."""
    return f"{words or 'pod'} {name}"
