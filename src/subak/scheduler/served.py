"""Which pods are ours.  A pod names its scheduler (`spec.schedulerName`), and all other schedulers leave it alone.

On a cluster, pods of `default-scheduler` belong to kube-scheduler.  On one machine there is none, so they are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from subak.model import manifest

DEFAULT = "default-scheduler"
"""The API server's default."""

NAMES = ("subak", "hami-scheduler", "volcano", "koord-scheduler")
"""Our own name, and those in the YAML of users who come from the systems whose requests we read."""

OWN_LEASES = {
    "hami-scheduler": "hami-scheduler",
    "volcano": "volcano",
    "koord-scheduler": "koord-scheduler",
    DEFAULT: "kube-scheduler",
}
"""The Lease that the scheduler holds from which a name comes, in the namespace where it was installed."""

ON_ONE_MACHINE = (DEFAULT, *NAMES)


def on_one_machine(pod: manifest.Pod) -> bool:
    """Whether a pod is ours where we are the only scheduler."""
    return (pod.spec.scheduler_name or DEFAULT) in ON_ONE_MACHINE


class Served:
    """The pods whose scheduler has one of these `names`, except for names that belong to another one for now.

    `foreign` gives those names, each with the reason.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.foreign: dict[str, str] = {}
        self._ours = frozenset(self.names)

    def leave(self, foreign: Mapping[str, str]) -> None:
        """Leave these names to others, and no more."""
        self.foreign = {name: foreign[name] for name in self.names if name in foreign}
        self._ours = frozenset(self.names) - self.foreign.keys()

    def __contains__(self, name: object) -> bool:
        return name in self._ours

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._ours))

    def __len__(self) -> int:
        return len(self._ours)

    def __call__(self, pod: manifest.Pod) -> bool:
        """Whether the pod is ours."""
        return (pod.spec.scheduler_name or DEFAULT) in self._ours
