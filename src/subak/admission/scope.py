"""Which new pods are our business.  The rule stands here twice, since the API server must know it without us.

    asks for cards    a container names one of our resources
    is ours           its scheduler is one of those that we serve; or the default one, unless the pod opts out
    carries records   an annotation or label that only writers of records may write

A pod that asks for cards and is ours is completed and reviewed.  One that carries records is refused.  All others pass,
also those that ask for cards of another scheduler, which they name; what they may not do is carry records.

A pod opts out by a label, HAMi's or our own.  It then stays with the default scheduler.  If it names a scheduler that
we serve, it is reviewed all the same: else the label would be a way around the review.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from subak.admission import cel
from subak.admission.owned import Owned
from subak.model import manifest

DEFAULT = "default-scheduler"
OPT_OUT = ("hami.io/webhook", "subak.io/webhook")
IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Scope:
    """The rule, for these resources, keys and names of schedulers."""

    resources: frozenset[str]
    owned: Owned
    schedulers: Collection[str]

    def reviews(self, pod: manifest.Pod) -> bool:
        """Whether a new pod is to be completed and reviewed."""
        return not self.resources.isdisjoint(pod.resource_names()) and self._is_ours(pod)

    def _is_ours(self, pod: manifest.Pod) -> bool:
        scheduler = pod.spec.scheduler_name or DEFAULT
        if scheduler == DEFAULT:
            return not any(pod.labels.get(key) == IGNORE for key in OPT_OUT)
        return scheduler in self.schedulers

    def reviewed(self) -> str:
        """`reviews` in CEL."""
        containers = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
        amounts = "[c.?resources.?limits, c.?resources.?requests]"
        named = f"name in {cel.texts(self.resources)}"
        asks = f"{containers}.exists(c, {amounts}.exists(each, each.orValue({{}}).exists(name, {named})))"
        scheduler = f"object.spec.?schedulerName.orValue({cel.text(DEFAULT)})"
        opted = " || ".join(
            f'object.metadata.?labels[?{cel.text(key)}].orValue("") == {cel.text(IGNORE)}' for key in OPT_OUT
        )
        ours = f"{scheduler} == {cel.text(DEFAULT)} ? !({opted}) : {scheduler} in {cel.texts(self.schedulers)}"
        return f"{asks} && ({ours})"

    def recorded(self) -> str:
        """Whether a pod carries records, in CEL."""
        annotations, labels = ("object.metadata.?annotations.orValue({})", "object.metadata.?labels.orValue({})")
        found = [f"{cel.texts(self.owned.exact)}.exists(key, key in {annotations})"]
        found += [f"{annotations}.exists(key, key.startsWith({cel.text(stem)}))" for stem in self.owned.stems]
        found += [f"{cel.text(label)} in {labels}" for label in sorted(self.owned.labels)]
        return " || ".join(found)
