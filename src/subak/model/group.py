"""Groups of pods that start together, and the queues that they stand in, as objects of a cluster say it.

Three kinds of object define a group: Volcano's PodGroup, that of the scheduler plugins, and Kubernetes' own.  `Group`
is what they have in common; each `as_group` says so.
"""

from __future__ import annotations

from typing import Any

import msgspec

from subak.model.manifest import Amounts, Lean, Metadata, Namespaced, Object
from tinykube.resource import Resource

VOLCANO_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", namespaced=True, kind="PodGroup")
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", namespaced=False, kind="Queue")
PLUGIN_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", namespaced=True, kind="PodGroup")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, kind="PriorityClass")


class Words:
    """In whose words pods say that they belong together."""

    VOLCANO = "volcano"
    PLUGINS = "scheduler-plugins"
    KOORDINATOR = "koordinator"
    KUBERNETES = "kubernetes"
    OWNER = "owner"


class Group(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an object says of a group of pods; `key` is its `namespace/name`.

    `timeout` are seconds that a part of it may run alone, None if it does not say.
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


class VolcanoGroupSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of Volcano's PodGroup."""

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    min_resources: Amounts | None = None
    queue: str = ""
    priority_class_name: str = ""


class VolcanoGroupStatus(Lean, frozen=True, gc=False, kw_only=True):
    """`status` of Volcano's PodGroup; its conditions as they are, since whoever changes one writes all of them."""

    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[dict[str, Any], ...] | None = None


class VolcanoGroup(Namespaced, frozen=True, gc=False, kw_only=True):
    """Volcano's PodGroup."""

    spec: VolcanoGroupSpec = VolcanoGroupSpec()
    status: VolcanoGroupStatus | None = None

    def as_group(self) -> Group:
        """What it says."""
        spec, metadata = self.spec, self.metadata
        return Group(
            words=Words.VOLCANO,
            key=self.key,
            uid=metadata.uid,
            version=metadata.resource_version,
            created=metadata.creation_timestamp or "",
            annotations=dict(self.annotations),
            min_member=spec.min_member,
            min_roles=spec.min_task_member or {},
            min_resources=spec.min_resources,
            queue=spec.queue,
            priority_class=spec.priority_class_name,
            phase="" if self.status is None else self.status.phase,
        )


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
