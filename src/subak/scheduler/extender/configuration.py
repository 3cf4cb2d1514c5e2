"""What a kube-scheduler needs to know of the extender: a KubeSchedulerConfiguration.

All resources that Subak counts are `managedResources`: kube-scheduler asks the extender for pods that name one of them,
and for no others.  `ignoredByScheduler` keeps kube-scheduler from counting them too, by sums of a node that say nothing
of single cards.  So is the slot that admission adds: only nodes without NRI have any.  Names in the domain
`kubernetes.io`, which Koordinator once had, cannot be managed: kube-scheduler does not start with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from subak.model.variables import SLOT

PROFILES = ("hami-scheduler", "volcano", "koord-scheduler")
"""The schedulers that pods name, whose work kube-scheduler does with the extender."""
LEASE = "kube-scheduler-subak"
"""Not that of the cluster's own kube-scheduler, or this one would wait for ever."""
TIMEOUT = "10s"


def manageable(resource: str) -> bool:
    """Whether kube-scheduler leaves a resource to an extender."""
    return "/" in resource and "kubernetes.io/" not in resource


def configuration(resources: Iterable[str], url: str, profiles: Iterable[str] = PROFILES) -> dict[str, Any]:
    """The configuration for an extender under this URL, with all resources of the device config."""
    extender: dict[str, Any] = {
        "urlPrefix": url.rstrip("/"),
        "filterVerb": "filter",
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": TIMEOUT,
        "managedResources": [
            {"name": name, "ignoredByScheduler": True} for name in sorted(filter(manageable, {*resources, SLOT}))
        ],
    }
    if url.startswith("https:"):
        extender |= {"enableHTTPS": True, "tlsConfig": {"caFile": "/etc/subak/ca.crt"}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceName": LEASE},
        "profiles": [{"schedulerName": name} for name in profiles],
        "extenders": [extender],
    }
