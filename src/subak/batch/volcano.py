"""Names that Volcano knows and that mean nothing here, so that a configuration that has them gets a clear answer."""

from __future__ import annotations

from collections.abc import Mapping

ABSENT_ACTIONS = frozenset({"shuffle", "gangpreempt", "gangreclaim"})

ABSENT_PLUGINS = frozenset(
    {
        "capacity",
        "capacity-card",
        "cdp",
        "extender",
        "network-topology-aware",
        "nodegroup",
        "numaaware",
        "pdb",
        "rescheduling",
        "resource-strategy-fit",
        "resourcequota",
        "sla",
        "task-topology",
        "tdm",
        "usage",
    }
)

INSTEAD: Mapping[str, str] = {
    "capacity": "proportion shares by weight, and keeps to a queue's capability and guarantee",
    "capacity-card": "proportion counts cards of every dialect",
    "pdb": "PodDisruptionBudgets always count",
    "resourcequota": "quotas of namespaces always count",
    "sla": "a pod's priority decides who waits",
}
"""What does a part of their work here."""

HIERARCHY = "enableHierarchy"

FLAGS_WITHOUT_EFFECT: Mapping[str, bool] = {
    HIERARCHY: False,
    "enabledClusterOrder": False,
    "enablePredicate": True,
    "enableBestNode": True,
    "enableTargetJob": True,
    "enableReservedNodes": True,
    "enabledVictim": True,
    "enabledHyperNodeOrder": True,
    "enabledHyperNodeGradient": True,
    "enabledSubJobReady": True,
    "enabledSubJobPipelined": True,
    "enabledSubJobOrder": True,
}
"""Switches that nothing here obeys, and what they are in Volcano unless somebody says otherwise."""

ERROR_CACHE = "predicateErrorCacheEnable"
TOPOLOGY_AWARE = (
    "enableTopologyAwarePreemption",
    "topologyAwarePreemptWorkerNum",
    "minCandidateNodesPercentage",
    "minCandidateNodesAbsolute",
    "maxCandidateNodesAbsolute",
)
ACTION_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "enqueue": (),
    "allocate": (ERROR_CACHE,),
    "backfill": (ERROR_CACHE,),
    "preempt": (ERROR_CACHE, *TOPOLOGY_AWARE),
    "reclaim": (ERROR_CACHE,),
}
"""The arguments that Volcano's actions know.  They change how long a decision takes there, and nothing here."""

ALWAYS = tuple(
    f"predicate.{rule}Enable"
    for rule in (
        "NodeAffinity",
        "NodePorts",
        "TaintToleration",
        "PodAffinity",
        "NodeVolumeLimits",
        "VolumeZone",
        "PodTopologySpread",
        "VolumeBinding",
        "DynamicResourceAllocation",
    )
)
"""Arguments of `predicates` that switch off rules of Kubernetes, which always hold here."""

_LOCKS = "pods take turns where the agent of a node would confuse them, and nowhere else"
_ASCEND = "Ascend cards are not known here"
_GEOMETRIES = "the instances of MIG cards are those that nodes publish"

ARGUMENTS_WITHOUT_EFFECT: Mapping[str, str] = {
    "predicate.NodeLockEnable": _LOCKS,
    "predicate.CacheEnable": "what nodes answer is always remembered",
    "predicate.ProportionalEnable": "no cpu or memory is kept back for pods with cards",
    "predicate.resources*": "no cpu or memory is kept back for pods with cards",
    "volumebinding.*": "--volume-timeout says how long volumes may take",
    "deviceshare.NodeLockEnable": _LOCKS,
    "deviceshare.AscendMindClusterVNPUEnable": _ASCEND,
    "deviceshare.AscendHAMiVNPUEnable": _ASCEND,
    "deviceshare.KnownGeometriesCMName": _GEOMETRIES,
    "deviceshare.KnownGeometriesCMNamespace": _GEOMETRIES,
    "deviceshare.GPUExclusiveRules": "any two pods may share a card",
    "imagelocality.weight": "which images a node has is not read",
}
"""Arguments of plugins that nothing here obeys, and why; `*` at the end stands for anything."""
