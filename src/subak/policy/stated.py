"""What pods state about other pods, in terms that can be compared: affinity and anti-affinity, hard and soft."""

from __future__ import annotations

from collections.abc import Iterator

from subak.model import manifest
from subak.model.selector import Term
from subak.snapshot.carriers import Stated

HARD_WEIGHT = 1
"""What another pod's demand for company counts among preferences, as kube-scheduler has it by default."""


def demanded(pod: manifest.Pod) -> list[Stated]:
    """Terms of which a pod must be near to some that all of them mean."""
    return [] if pod.spec.affinity is None else _hard(pod.spec.affinity.pod_affinity, pod)


def avoided(pod: manifest.Pod) -> list[Stated]:
    """Terms whose pods it must be away from."""
    return [] if pod.spec.affinity is None else _hard(pod.spec.affinity.pod_anti_affinity, pod)


def preferred(pod: manifest.Pod) -> list[Stated]:
    """Terms whose pods it would rather be near to, or with a negative weight away from."""
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    return [*_soft(affinity.pod_affinity, pod, 1), *_soft(affinity.pod_anti_affinity, pod, -1)]


def _hard(affinity: manifest.PodAffinity | None, pod: manifest.Pod) -> list[Stated]:
    terms = (affinity and affinity.required_during_scheduling_ignored_during_execution) or ()
    return [(Term.of(each, pod), each.topology_key, HARD_WEIGHT) for each in terms]


def _soft(affinity: manifest.PodAffinity | None, pod: manifest.Pod, sign: int) -> Iterator[Stated]:
    for each in (affinity and affinity.preferred_during_scheduling_ignored_during_execution) or ():
        yield Term.of(each.pod_affinity_term, pod), each.pod_affinity_term.topology_key, sign * each.weight
