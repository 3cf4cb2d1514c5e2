"""Kubernetes itself: `spec.schedulingGroup` names a PodGroup of `scheduling.k8s.io`, which says everything else.

Only an API server that has the feature `GenericWorkload` switched on, an alpha one in 1.36, lets pods have the field.
"""

from __future__ import annotations

from subak.batch.gangs.membership import Membership, check_name
from subak.model import manifest
from subak.model.group import Words
from subak.model.reason import Refusal

GROUP = "spec.schedulingGroup"
NAME = "podGroupName"


def membership(pod: manifest.Pod) -> Membership | None:
    """The PodGroup that the pod names.  Raises Refusal if it names its group in a way that is not known here."""
    stated = pod.spec.scheduling_group
    if stated is None:
        return None
    name = stated.get(NAME) if isinstance(stated, dict) else None
    if not isinstance(name, str) or not name:
        raise Refusal(GROUP, stated, f"{GROUP} is {stated!r:.80}: name a PodGroup in {GROUP}.{NAME}")
    field = f"{GROUP}.{NAME}"
    return Membership(Words.KUBERNETES, f"{pod.namespace}/{check_name(field, name)}", field=field)
