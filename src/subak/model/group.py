"""Groups of pods that start together, and the queues that they stand in, as objects of a cluster say it.

Four kinds of object define a group, all called PodGroup: Volcano's, that of the scheduler plugins, Koordinator's (which
the scheduler plugins had before), and Kubernetes' own.  `Group` is what they have in common; each `as_group` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from subak.model.manifest import Amounts, Condition, Lean, Metadata, Namespaced, Object, Pod
from tinykube.resource import Resource

VOLCANO_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", namespaced=True, kind="PodGroup")
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", namespaced=False, kind="Queue")
PLUGIN_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", namespaced=True, kind="PodGroup")
KOORDINATOR_GROUPS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", namespaced=True, kind="PodGroup")
KUBERNETES_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", namespaced=True, kind="PodGroup")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, kind="PriorityClass")


VOLCANO_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations by which pods name Volcano's PodGroup; the first wins."""


class Words:
    """In whose words pods say that they belong together."""

    VOLCANO = "volcano"
    PLUGINS = "scheduler-plugins"
    KOORDINATOR = "koordinator"
    KUBERNETES = "kubernetes"
    OWNER = "owner"


def volcano_group(pod: Pod) -> str:
    """The `namespace/name` of the PodGroup that a pod is in, for Volcano; empty if it is by itself.

    A pod that names none is in one with the other pods of its owner, named so by Volcano's controllers.
    """
    name = next((text for each in VOLCANO_NAMES if (text := pod.annotations.get(each))), "")
    owner = pod.metadata.controller
    if not name and owner is not None:
        name = f"podgroup-{owner.uid}"
    return f"{pod.namespace}/{name}" if name else ""


class Group(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an object says of a group of pods; `key` is its `namespace/name`.

    `timeout` are seconds that a part of it may run alone, None if it does not say.  `phase` is one of Volcano's, in
    whichever words the object tells it.  `refusal` is a sentence about what it asks for and cannot get, empty if there
    is no such thing; `warnings` are about wishes that are not heeded.
    """

    words: str
    key: str
    uid: str = ""
    version: str = ""
    created: str = ""
    min_member: int = 1
    min_roles: dict[str, int] = {}
    min_resources: Amounts | None = None
    queue: str = ""
    priority_class: str = ""
    timeout: float | None = None
    phase: str = ""
    annotations: dict[str, str] = {}
    refusal: str = ""
    warnings: tuple[str, ...] = ()


class NetworkTopology(Lean, frozen=True, gc=False, kw_only=True):
    """How close to each other members must be, in Volcano's words."""

    mode: str = "hard"


class VolcanoGroupSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of Volcano's PodGroup."""

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    min_resources: Amounts | None = None
    queue: str = ""
    priority_class_name: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[Any] | None = None


class VolcanoGroupStatus(Lean, frozen=True, gc=False, kw_only=True):
    """`status` of Volcano's PodGroup; its conditions as they are, since whoever changes one writes all of them."""

    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[dict[str, Any], ...] | None = None


class VolcanoGroup(Namespaced, frozen=True, gc=False, kw_only=True):
    """Volcano's PodGroup."""

    words: ClassVar[str] = Words.VOLCANO

    spec: VolcanoGroupSpec = VolcanoGroupSpec()
    status: VolcanoGroupStatus | None = None

    def as_group(self) -> Group:
        """What it says."""
        spec = self.spec
        return Group(
            words=self.words,
            min_member=spec.min_member,
            min_roles=spec.min_task_member or {},
            min_resources=spec.min_resources,
            queue=spec.queue,
            priority_class=spec.priority_class_name,
            phase="" if self.status is None else self.status.phase,
            refusal=self._refusal(),
            warnings=self._warnings(),
            **_common(self),
        )

    def _refusal(self) -> str:
        topology = self.spec.network_topology
        if topology is not None and topology.mode != "soft":
            return _not_met(self, "spec.networkTopology", f"{_NO_NETWORK}: remove it, or set its mode to soft")
        if self.spec.sub_group_policy:
            return _not_met(self, "spec.subGroupPolicy", f"{_NO_SUBGROUPS}: use minTaskMember, or remove it")
        return ""

    def _warnings(self) -> tuple[str, ...]:
        if self.spec.network_topology is None:
            return ()
        return (_not_met(self, "spec.networkTopology", "how close to each other members are is not heeded"),)


class PluginGroupSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of the scheduler plugins' PodGroup, and of Koordinator's."""

    min_member: int = 0
    min_resources: Amounts | None = None
    schedule_timeout_seconds: int | None = None


class PluginGroupStatus(Lean, frozen=True, gc=False, kw_only=True):
    """`status` of the scheduler plugins' PodGroup."""

    phase: str = ""


class PluginGroup(Namespaced, frozen=True, gc=False, kw_only=True):
    """The scheduler plugins' PodGroup."""

    words: ClassVar[str] = Words.PLUGINS
    phases: ClassVar[Mapping[str, str]] = {
        "Scheduling": "Running",
        "Scheduled": "Running",
        "Running": "Running",
        "Unknown": "Unknown",
        "Failed": "Unknown",
        "Finished": "Completed",
    }
    """Their phases in Volcano's words; in all others the group has never been whole."""

    spec: PluginGroupSpec = PluginGroupSpec()
    status: PluginGroupStatus | None = None

    def as_group(self) -> Group:
        """What it says."""
        timeout = self.spec.schedule_timeout_seconds
        return Group(
            words=self.words,
            min_member=self.spec.min_member,
            min_resources=self.spec.min_resources,
            timeout=float(timeout) if timeout is not None and timeout > 0 else None,
            phase="" if self.status is None else self.phases.get(self.status.phase, ""),
            **_common(self),
        )


class KoordinatorGroup(PluginGroup, frozen=True, gc=False, kw_only=True):
    """Koordinator's PodGroup; `batch.gangs.refusal` knows what its annotations may ask for."""

    words: ClassVar[str] = Words.KOORDINATOR


class GangPolicy(Lean, frozen=True, gc=False, kw_only=True):
    """So many pods start together."""

    min_count: int = 1


class GroupPolicy(Lean, frozen=True, gc=False, kw_only=True):
    """How the pods of Kubernetes' own PodGroup are scheduled: as a gang, or one by one."""

    basic: Any = None
    gang: GangPolicy | None = None


class GroupConstraints(Lean, frozen=True, gc=False, kw_only=True):
    """Where the pods of Kubernetes' own PodGroup may be."""

    topology: list[Any] | None = None


class KubernetesGroupSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of Kubernetes' own PodGroup.  The template that it came from says nothing more: all is copied from it."""

    scheduling_policy: GroupPolicy = GroupPolicy()
    scheduling_constraints: GroupConstraints | None = None
    resource_claims: list[Any] | None = None
    disruption_mode: str | None = None
    priority_class_name: str = ""


class GroupCondition(Condition, frozen=True, gc=False, kw_only=True):
    """A condition of Kubernetes' own PodGroup."""

    message: str = ""


class KubernetesGroupStatus(Lean, frozen=True, gc=False, kw_only=True):
    """`status` of Kubernetes' own PodGroup."""

    conditions: list[GroupCondition] | None = None


class KubernetesGroup(Namespaced, frozen=True, gc=False, kw_only=True):
    """Kubernetes' own PodGroup."""

    words: ClassVar[str] = Words.KUBERNETES

    spec: KubernetesGroupSpec = KubernetesGroupSpec()
    status: KubernetesGroupStatus | None = None

    def as_group(self) -> Group:
        """What it says.  Pods of a `basic` group are placed one by one, as if each were by itself."""
        gang = self.spec.scheduling_policy.gang
        conditions = () if self.status is None else self.status.conditions or ()
        scheduled = any(each.type == SCHEDULED and each.status == "True" for each in conditions)
        return Group(
            words=self.words,
            min_member=1 if gang is None else gang.min_count,
            priority_class=self.spec.priority_class_name,
            phase="Running" if scheduled else "",
            refusal=self._refusal(),
            **_common(self),
        )

    def _refusal(self) -> str:
        spec = self.spec
        if spec.scheduling_policy.basic is None and spec.scheduling_policy.gang is None:
            return _not_met(self, "spec.schedulingPolicy", "it has no policy that is known here: use gang or basic")
        if spec.scheduling_constraints is not None and spec.scheduling_constraints.topology:
            return _not_met(self, "spec.schedulingConstraints.topology", f"{_NO_DOMAIN}: remove it")
        if spec.resource_claims:
            return _not_met(self, "spec.resourceClaims", "claims of a whole group are not supported: remove them")
        if spec.disruption_mode not in (None, "", "Pod"):
            return _not_met(self, "spec.disruptionMode", f"{spec.disruption_mode!r} {_ONE_BY_ONE}: use Pod")
        return ""


SCHEDULED = "PodGroupScheduled"
"""The condition of Kubernetes' own PodGroup that says whether enough of its pods have their places."""

_NO_NETWORK = "Subak does not know networks (HyperNodes), and cannot keep members close together"
_NO_SUBGROUPS = "groups within a group are not supported"
_ONE_BY_ONE = "is not supported, since pods are evicted one by one"
_NO_DOMAIN = "members cannot be kept in one domain of the nodes' labels"


def _not_met(object: Namespaced, field: str, why: str) -> str:
    return f"PodGroup {object.key}: {field}: {why}"


def _common(object: Namespaced) -> dict[str, Any]:
    """What all objects say of themselves."""
    metadata = object.metadata
    return {
        "key": object.key,
        "uid": metadata.uid,
        "version": metadata.resource_version,
        "created": metadata.creation_timestamp or "",
        "annotations": dict(object.annotations),
    }


GroupObject = VolcanoGroup | PluginGroup | KubernetesGroup

GROUPS: Mapping[Resource, type[GroupObject]] = {
    VOLCANO_GROUPS: VolcanoGroup,
    PLUGIN_GROUPS: PluginGroup,
    KOORDINATOR_GROUPS: KoordinatorGroup,
    KUBERNETES_GROUPS: KubernetesGroup,
}
"""All objects that define groups, and how to read them."""


class QueueGuarantee(Lean, frozen=True, gc=False, kw_only=True):
    """What a queue has in any case."""

    resource: Amounts | None = None


class QueueSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of Volcano's Queue."""

    weight: int = 1
    capability: Amounts | None = None
    reclaimable: bool | None = None
    guarantee: QueueGuarantee | None = None
    priority: int = 0
    parent: str = ""


class QueueStatus(Lean, frozen=True, gc=False, kw_only=True):
    """`status` of Volcano's Queue: how many of its groups are in each phase, and what they hold."""

    state: str = ""
    pending: int = 0
    running: int = 0
    unknown: int = 0
    inqueue: int = 0
    completed: int = 0
    allocated: Amounts | None = None


class Queue(Object, frozen=True, gc=False, kw_only=True):
    """Volcano's Queue."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None


class PriorityClass(Lean, frozen=True, gc=False, kw_only=True):
    """How important those are who name it."""

    metadata: Metadata = Metadata()
    value: int = 0
    global_default: bool = False
