"""What a default API server adds to objects or refuses before it looks at their fields.

In its order: is there such a namespace, whose account does a pod run under, which taint has a new node, how important
is a pod, how long does it stay on a node that is gone.  Pods get no token of their account: none are issued here.
Kinds that are not served count as being there: a pod may name any runtime class.
"""

from __future__ import annotations

from typing import Any, Protocol

from tinykube.server import errors, kinds
from tinykube.server.kinds import Kind
from tinykube.server.rules.validation import names
from tinykube.status import ApiError, Cause

Json = dict[str, Any]

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_MIRROR = "kubernetes.io/config.mirror"
_LONGEST_PREFIX = 58
_SUFFIX = 5
_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


NAMESPACE_TERMINATING = "NamespaceTerminating"


class View(Protocol):
    """What admission may look at: all that is stored, and of which kinds."""

    kinds: tuple[Kind, ...]

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """One object."""

    def list(self, kind: Kind, namespace: str = "") -> list[Json]:
        """All objects of a namespace, or of all."""


def creation(kind: Kind, object: Json, view: View) -> None:
    """Complete a new object in place.  Raises ApiError if it is not wanted."""
    if kind.namespaced:
        namespace(kind, object, view)
    if kind is kinds.POD:
        _account(object, view)
        _priority(object, view)
        _tolerations(object["spec"])
        _topology(object, view)
    elif kind is kinds.NODE:
        _taint(object["spec"])


def update(kind: Kind, new: Json, old: Json) -> None:
    """Complete an object that changes, in place."""
    if kind is kinds.POD:
        for key in ("priority", "preemptionPolicy"):
            if key not in new["spec"] and key in old["spec"]:
                new["spec"][key] = old["spec"][key]
        _tolerations(new["spec"])


def decision(kind: Kind, object: Json, view: View, *, new: bool) -> None:
    """The last word on an object that makes sense."""
    if kind is kinds.PRIORITY_CLASS and object.get("globalDefault"):
        other = _default_class(view)
        if other is not None and (new or other["metadata"]["name"] != object["metadata"]["name"]):
            words = (
                f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist"
            )
            raise errors.forbidden(kind, object["metadata"]["name"], words)


def namespace(kind: Kind, object: Json, view: View) -> None:
    """Nothing is created in a namespace that is not there, or is about to go."""
    name = object["metadata"].get("namespace", "")
    found = view.get(kinds.NAMESPACE, "", name)
    if found is None:
        raise errors.not_found(kinds.NAMESPACE, name)
    if found.get("status", {}).get("phase") == "Terminating":
        words = f"unable to create new content in namespace {name} because it is being terminated"
        refusal = errors.forbidden(kind, _name(object["metadata"]), words)
        cause = Cause(NAMESPACE_TERMINATING, f"namespace {name} is being terminated", "metadata.namespace")
        raise ApiError(refusal.code, refusal.reason, refusal.message, refusal.details, [cause])


def _account(pod: Json, view: View) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    if _MIRROR in meta.get("annotations", {}):
        _mirror(pod)
        return
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    account = view.get(kinds.SERVICE_ACCOUNT, meta["namespace"], name)
    if account is None:
        strange = names.path_segment(name)
        why = (
            f'invalid resource name "{name}": [{" ".join(strange)}]'
            if strange
            else f'serviceaccount "{name}" not found'
        )
        words = f"error looking up service account {meta['namespace']}/{name}: {why}"
        raise errors.forbidden(kinds.POD, _name(meta), words)
    secrets = account.get("imagePullSecrets")
    if secrets and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": each["name"]} for each in secrets if each.get("name")]


def _mirror(pod: Json) -> None:
    """The image of a pod that a kubelet runs on its own has no account."""
    spec, name = pod["spec"], _name(pod["metadata"])
    if spec.get("serviceAccountName"):
        raise errors.forbidden(kinds.POD, name, "a mirror pod may not reference service accounts")
    if any("secret" in volume for volume in spec.get("volumes", ())):
        raise errors.forbidden(kinds.POD, name, "a mirror pod may not reference secrets")


def _priority(pod: Json, view: View) -> None:
    spec, name = pod["spec"], _name(pod["metadata"])
    wanted = spec.get("priorityClassName")
    if wanted:
        found = view.get(kinds.PRIORITY_CLASS, "", wanted)
        if found is None:
            raise errors.forbidden(kinds.POD, name, f"no PriorityClass with name {wanted} was found")
    else:
        found = _default_class(view)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    priority = found.get("value", 0) if found else 0
    policy = found.get("preemptionPolicy") if found else "PreemptLowerPriority"
    computed = "must not be provided in pod spec; priority admission controller computed"
    source = "from the given PriorityClass name"
    if spec.get("priority", priority) != priority:
        words = f"the integer value of priority ({spec['priority']}) {computed} {priority} {source}"
        raise errors.forbidden(kinds.POD, name, words)
    spec["priority"] = priority
    if policy:
        if spec.get("preemptionPolicy", policy) != policy:
            words = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) {computed} {policy} {source}"
            raise errors.forbidden(kinds.POD, name, words)
        spec["preemptionPolicy"] = policy


def _default_class(view: View) -> Json | None:
    found = [each for each in view.list(kinds.PRIORITY_CLASS) if each.get("globalDefault")]
    return min(found, key=lambda each: each.get("value", 0), default=None)


def _tolerations(spec: Json) -> None:
    """A pod stays for five minutes on a node that is lost, unless it says otherwise."""
    given = spec.get("tolerations", [])
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in (_NOT_READY, _UNREACHABLE)
        if not any(each.get("key", "") in ("", key) and each.get("effect", "") in ("", "NoExecute") for each in given)
    ]
    if added:
        spec["tolerations"] = [*given, *added]


def _topology(pod: Json, view: View) -> None:
    """A pod that is born on a node learns where that is; others learn it when they are bound."""
    node = pod["spec"].get("nodeName")
    found = view.get(kinds.NODE, "", node) if node else None
    labels = (found or {}).get("metadata", {}).get("labels", {})
    inherited = {key: labels[key] for key in _TOPOLOGY if key in labels}
    if inherited:
        pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **inherited}


def _taint(spec: Json) -> None:
    """A new node takes no pods until it is ready."""
    taints = spec.get("taints", [])
    if not any(each.get("key") == _NOT_READY and each.get("effect") == "NoSchedule" for each in taints):
        spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]


def _name(meta: Json) -> str:
    """What a new object is called in a refusal: by its own name, or by that from which one was made."""
    name, prefix = str(meta.get("name", "")), str(meta.get("generateName", ""))
    generated = prefix and name.startswith(prefix[:_LONGEST_PREFIX]) and len(name) <= len(prefix) + _SUFFIX
    return (prefix if generated else name) or "Unknown"
