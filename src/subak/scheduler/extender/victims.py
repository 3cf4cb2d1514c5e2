"""Who must go from a node so that a pod fits there, cards included.

kube-scheduler proposes the fewest victims by its own count, which knows no cards.  All of them are needed.  If cards
are still missing, pods of lower priority are added, the least important first; then those that were added in vain are
spared, the most important first.  Nothing is changed: it is all tried in transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from subak.model import manifest
from subak.scheduler.core import Core


def victims(core: Core, pod: manifest.Pod, node: str, proposed: Collection[str]) -> list[manifest.Pod] | None:
    """The pods that must go, those with the proposed UIDs among them; None if the pod does not fit even then.

    Raises Refusal if what the pod asks for cannot be.
    """
    there = core.pods_on(node)
    chosen = [each for each in there if each.metadata.uid in proposed]
    others = [each for each in there if each.metadata.uid not in proposed and _priority(each) < _priority(pod)]
    others.sort(key=lambda each: (_priority(each), each.key))
    added: list[manifest.Pod] = []
    while not core.fits_without(pod, node, _keys(chosen, added)):
        if not others:
            return None
        added.append(others.pop(0))
    for each in reversed(added[:-1]):  # the last one was needed
        spared = [other for other in added if other is not each]
        if core.fits_without(pod, node, _keys(chosen, spared)):
            added = spared
    return chosen + added


def _priority(pod: manifest.Pod) -> int:
    return pod.spec.priority or 0


def _keys(*groups: Iterable[manifest.Pod]) -> list[str]:
    return [each.key for group in groups for each in group]
