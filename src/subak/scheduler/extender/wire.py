"""What kube-scheduler sends to an extender and reads from it: `k8s.io/kube-scheduler/extender/v1`, in JSON."""

from __future__ import annotations

import msgspec

from subak.model import manifest
from tinykube.codec import Header, decode

HIGHEST = 10
"""The best score that an extender may give."""


class Wire(msgspec.Struct, rename="pascal", kw_only=True):
    """A message; Go writes the names of its fields as they are."""


class NodeList(msgspec.Struct, omit_defaults=False):
    """Whole nodes.  We read only their names, and send back what we got."""

    items: list[msgspec.Raw] | None = None
    metadata: dict[str, str] = {}

    def named(self) -> dict[str, msgspec.Raw]:
        """The nodes by name."""
        return {decode(Header, bytes(each)).metadata.name: each for each in self.items or ()}


class Args(Wire):
    """A pod and the nodes that passed kube-scheduler's own filters: names if `nodeCacheCapable`, else whole nodes."""

    pod: manifest.Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class Filtered(Wire):
    """The nodes that pass, and why the others do not; preemption is no cure on the unresolvable ones."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class Priority(Wire):
    """The score of a node."""

    host: str
    score: int


class BindingArgs(Wire):
    """A pod and the node that it goes to."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str

    @property
    def key(self) -> str:
        """The pod's key."""
        return f"{self.pod_namespace}/{self.pod_name}"


class Bound(Wire):
    """An error, or none if the pod is bound."""

    error: str = ""


class Victim(Wire):
    """A pod that would go."""

    uid: str = msgspec.field(name="UID")


class Victims(Wire):
    """The pods of a node that would go, by UID."""

    pods: list[Victim] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class WholeVictims(Wire):
    """The same with whole pods, if not `nodeCacheCapable`."""

    pods: list[manifest.Pod] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class PreemptionArgs(Wire):
    """A pod, and for each candidate node who would have to go."""

    pod: manifest.Pod
    node_name_to_victims: dict[str, WholeVictims] | None = None
    node_name_to_meta_victims: dict[str, Victims] | None = None


class Preemption(Wire):
    """The candidates that remain, and who has to go from each."""

    node_name_to_meta_victims: dict[str, Victims]
