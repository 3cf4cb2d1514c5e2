"""Volcano: an annotation names a PodGroup, which says everything else."""

from __future__ import annotations

from subak.batch.gangs.membership import Membership, annotation, check_name, one_of
from subak.model import manifest
from subak.model.group import VOLCANO_NAMES, Words

GROUP, OLDER_GROUP = VOLCANO_NAMES
SCHEDULER = "volcano"
QUEUE = "scheduling.volcano.sh/queue-name"
ROLE = "volcano.sh/task-spec"

TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
"""What Volcano's controller copies from a pod into the PodGroup that it makes for it."""

_MODES = {"soft": "", "hard": "Subak does not know networks (HyperNodes) and could not keep the members close together"}


def membership(pod: manifest.Pod) -> Membership | None:
    """The PodGroup that the pod names.  Raises Refusal if it names none, and wants one that cannot be honoured."""
    annotations = pod.annotations
    used = GROUP if annotations.get(GROUP) else OLDER_GROUP
    name = annotations.get(used)
    if not name:
        if pod.spec.scheduler_name == SCHEDULER and (mode := annotations.get(TOPOLOGY_MODE)):
            one_of(annotation(TOPOLOGY_MODE), mode, _MODES)
        return None
    field = annotation(used)
    group = f"{pod.namespace}/{check_name(field, name)}"
    return Membership(Words.VOLCANO, group, role=annotations.get(ROLE, ""), field=field)
