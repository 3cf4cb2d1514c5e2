"""The scheduler plugins' coscheduling: a label names a PodGroup of `scheduling.x-k8s.io`, which says the rest."""

from __future__ import annotations

from subak.batch.gangs.membership import Membership, check_name, label
from subak.model import manifest
from subak.model.group import Words

GROUP = "scheduling.x-k8s.io/pod-group"


def membership(pod: manifest.Pod) -> Membership | None:
    """The PodGroup that the pod names."""
    name = pod.labels.get(GROUP)
    if not name:
        return None
    return Membership(Words.PLUGINS, f"{pod.namespace}/{check_name(label(GROUP), name)}", field=label(GROUP))
