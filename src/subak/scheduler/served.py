"""Which pods are ours.  A pod names its scheduler (`spec.schedulerName`), and all other schedulers leave it alone.

On a cluster, pods of `default-scheduler` belong to kube-scheduler.  On one machine there is none, so they are ours.
"""

from __future__ import annotations

from subak.model import manifest

DEFAULT = "default-scheduler"
"""The API server's default."""

NAMES = ("subak", "hami-scheduler", "volcano", "koord-scheduler")
"""Our own name, and those in the YAML of users who come from the systems whose requests we read."""

ON_ONE_MACHINE = (DEFAULT, *NAMES)


def on_one_machine(pod: manifest.Pod) -> bool:
    """Whether a pod is ours where we are the only scheduler."""
    return (pod.spec.scheduler_name or DEFAULT) in ON_ONE_MACHINE
