"""What of a pod may change: little of its spec, and its status only as life goes."""

from __future__ import annotations

import difflib
import json
from typing import Any

from tinykube.server.rules import problem, scalars
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, scheduling
from tinykube.server.rules.validation.pod import every_container, own_annotations, whole

Json = dict[str, Any]

_MIRROR = "kubernetes.io/config.mirror"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_MAX_INT32 = 2**31 - 1
_MOST_LINES = 2000  # of two specs together; to compare more takes seconds
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def update(problems: Problems, new: Json, old: Json) -> None:
    """Of a pod that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    unchanged = same(new["spec"], old["spec"])
    if not unchanged or new["metadata"] != old["metadata"]:
        whole(problems, new)
    _annotations(problems, new, old)
    if unchanged:
        return
    spec, before = new["spec"], old["spec"]
    for kind in ("containers", "initContainers"):
        if len(spec.get(kind) or ()) != len(before.get(kind) or ()):
            problems.append(problem.forbidden(f"spec.{kind}", "pod updates may not add or remove containers"))
            return
        for index, container in enumerate(spec.get(kind) or ()):
            _image(problems, f"spec.{kind}[{index}].image", container.get("image", ""))
    if _deadline(problems, spec, before):
        return
    _tolerations(problems, spec.get("tolerations", []), before.get("tolerations", []))
    _gates(problems, spec.get("schedulingGates", ()), before.get("schedulingGates", ()))
    _others(problems, spec, before)


def status(problems: Problems, new: Json, old: Json) -> None:
    """Of a pod whose status is written."""
    if new["metadata"] is not old["metadata"]:
        metadata.update(problems, new["metadata"], old["metadata"])
        _annotations(problems, new, old)
    now, before = new["status"], old["status"]
    for index, condition in enumerate(now.get("conditions", ())):
        if condition.get("observedGeneration", 0) < 0:
            here, words = f"status.conditions[{index}].observedGeneration", "must be a non-negative integer"
            problems.append(problem.invalid(here, condition["observedGeneration"], words))
        kind = condition.get("type", "")
        if kind not in _SYSTEM_CONDITIONS:
            problem.each(problems, f"status.conditions[{index}].Type", kind, names.label_key(kind))
    _nomination(problems, now, before, old["spec"])
    if now.get("observedGeneration", 0) < 0:
        words = "must be a non-negative integer"
        problems.append(problem.invalid("status.observedGeneration", now["observedGeneration"], words))
    problem.immutable(problems, "status.qosClass", now.get("qosClass"), before.get("qosClass"))
    for kind, statuses in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
        ("ephemeralContainers", "ephemeralContainerStatuses"),
    ):
        if statuses in before:
            _revived(problems, f"status.{statuses}", now.get(statuses, ()), before[statuses], old["spec"], kind)
    for key in ("podIPs", "hostIPs"):
        if key in now:
            _addresses(problems, key, now, before)


def same(new: Json, old: Json) -> bool:
    """Whether two specs mean the same; quantities may be written differently."""
    return new == old or _equal(new, old, "")


def _equal(new: Any, old: Any, key: str) -> bool:
    if isinstance(new, dict) and isinstance(old, dict):
        return new.keys() == old.keys() and all(
            _equal(new[each], old[each], key if key in _AMOUNTS else each) for each in new
        )
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(_equal(one, other, key) for one, other in zip(new, old, strict=True))
    if key in _AMOUNTS and isinstance(new, str) and isinstance(old, str):
        return scalars.nanos(new) == scalars.nanos(old)
    return bool(new == old)


_AMOUNTS = ("limits", "requests", "overhead", "divisor", "sizeLimit")


def _image(problems: Problems, path: str, image: str) -> None:
    if not image:
        problems.append(problem.required(path))
    if image != image.strip():
        problems.append(problem.invalid(path, image, "must not have leading or trailing whitespace"))


def _annotations(problems: Problems, new: Json, old: Json) -> None:
    given, before = new["metadata"].get("annotations", {}), old["metadata"].get("annotations", {})
    if given == before:
        return
    for key, value in before.items():
        if given.get(key) != value:
            if key.startswith(_APP_ARMOR):
                words = "may not remove or update AppArmor annotations"
                problems.append(problem.forbidden(f"metadata.annotations[{key}]", words))
            if key == _MIRROR:
                words = "may not remove or update mirror pod annotation"
                problems.append(problem.forbidden(f"metadata.annotations[{key}]", words))
    for key in given:
        if key not in before:
            if key.startswith(_APP_ARMOR):
                words = "may not add AppArmor annotations"
                problems.append(problem.forbidden(f"metadata.annotations[{key}]", words))
            if key == _MIRROR:
                problems.append(problem.forbidden(f"metadata.annotations[{key}]", "may not add mirror pod annotation"))
    own_annotations(problems, given, new["spec"])


def _deadline(problems: Problems, spec: Json, before: Json) -> bool:
    """Whether the deadline is so wrong that nothing else matters."""
    path = "spec.activeDeadlineSeconds"
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if new is None:
        if old is not None:
            problems.append(problem.invalid(path, None, "must not update from a positive integer to nil value"))
        return False
    if not 0 <= new <= _MAX_INT32:
        problems.append(problem.invalid(path, new, names.between(0, _MAX_INT32)))
        return True
    if old is not None and old < new:
        problems.append(problem.invalid(path, new, "must be less than or equal to previous value"))
        return True
    return False


def _tolerations(problems: Problems, new: list[Json], old: list[Json]) -> None:
    def plain(toleration: Json) -> frozenset[tuple[str, str]]:
        return frozenset((key, value) for key, value in toleration.items() if key != "tolerationSeconds")

    kept = {plain(each) for each in new}
    if any(plain(each) not in kept for each in old):
        words = "existing toleration can not be modified except its tolerationSeconds"
        problems.append(problem.forbidden("spec.tolerations", words))
        return
    scheduling.tolerations(problems, "spec.tolerations", new)


def _gates(problems: Problems, new: list[Json], old: list[Json]) -> None:
    before = {each.get("name") for each in old}
    for index, gate in enumerate(new):
        if gate.get("name") not in before:
            words = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            problems.append(problem.forbidden(f"spec.schedulingGates[{index}].name", words))


def _others(problems: Problems, spec: Json, before: Json) -> None:
    """Of all that may not change: what is left once the rest is put back."""
    munged = dict(spec)
    for kind in ("containers", "initContainers"):
        if kind in munged:
            pairs = zip(munged[kind] or (), before[kind] or (), strict=True)
            munged[kind] = [{**one, "image": other.get("image")} for one, other in pairs]
    for key in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put_back(munged, before, key)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        _put_back(munged, before, "terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        _gated(problems, munged, before)
    if not same(munged, before):
        words = f"pod updates may not change fields other than {_UPDATABLE}\n{_difference(before, munged)}"
        problems.append(problem.forbidden("spec", words))


def _difference(before: Json, after: Json) -> str:
    """The lines in which two specs differ, with three lines around them; only that they do if there are many."""
    was, becomes = (
        [f"{line}\n" for line in json.dumps(each, indent=1, ensure_ascii=False, sort_keys=True).splitlines()]
        for each in (before, after)
    )
    if len(was) + len(becomes) > _MOST_LINES:
        return f"the differences are not shown: there are {len(was)} lines before and {len(becomes)} after the change"
    changes = difflib.unified_diff(was, becomes)
    return "".join(list(changes)[2:])  # without the names of files


def _gated(problems: Problems, munged: Json, before: Json) -> None:
    """A pod that is not ready to be scheduled may still narrow where it wants to go."""
    wanted, asked = munged.get("nodeSelector", {}), before.get("nodeSelector", {})
    if wanted != asked:
        if any(wanted.get(key) != value for key, value in asked.items()):
            words = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            problems.append(problem.invalid("spec.nodeSelector", wanted or None, words))
        _put_back(munged, before, "nodeSelector")
    new, old = munged.get("affinity", {}).get("nodeAffinity"), before.get("affinity", {}).get("nodeAffinity")
    if new == old:
        return
    _narrowed(problems, new or {}, old or {})
    affinity = {**munged.get("affinity", {}), "nodeAffinity": old}
    munged["affinity"] = {key: value for key, value in affinity.items() if value is not None}
    if not munged["affinity"] and "affinity" not in before:
        del munged["affinity"]


def _narrowed(problems: Problems, new: Json, old: Json) -> None:
    path = f"spec.affinity.nodeAffinity.{_TERMS}.nodeSelectorTerms"
    before = (old.get(_TERMS) or {}).get("nodeSelectorTerms") or []
    after = (new.get(_TERMS) or {}).get("nodeSelectorTerms") or []
    if before and len(before) != len(after):
        words = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        problems.append(problem.invalid(path, after or None, words))
        return
    for index, (term, was) in enumerate(zip(after, before, strict=False)):
        lines = [(term.get(key, []), was.get(key, [])) for key in ("matchExpressions", "matchFields")]
        empty = not any(old_lines for _, old_lines in lines) and any(new_lines for new_lines, _ in lines)
        if empty or any(new_lines[: len(old_lines)] != old_lines for new_lines, old_lines in lines):
            words = "only additions are allowed (no mutations or deletions)"
            problems.append(problem.invalid(f"{path}[{index}]", term, words))


def _put_back(munged: Json, before: Json, key: str) -> None:
    if key in before:
        munged[key] = before[key]
    else:
        munged.pop(key, None)


def _nomination(problems: Problems, now: Json, before: Json, spec: Json) -> None:
    node = now.get("nominatedNodeName", "")
    if node and node != before.get("nominatedNodeName", ""):
        problem.each(problems, "status.nominatedNodeName", node, names.subdomain_name(node))
        if spec.get("nodeName"):
            words = "may not be set on pods that are already bound to a node"
            problems.append(problem.forbidden("status.nominatedNodeName", words))


def _revived(problems: Problems, path: str, new: list[Json], old: list[Json], spec: Json, kind: str) -> None:
    """A container that ended stays so, unless it may be started again."""
    for index, was in enumerate(old):
        ended = was.get("state", {}).get("terminated")
        if ended is None:
            continue
        now = next((each for each in new if each.get("name") == was.get("name")), None)
        if now is None or "terminated" in now.get("state", {}):
            continue
        if kind == "ephemeralContainers" or not _restarts(spec, kind, was.get("name", ""), ended.get("exitCode", 0)):
            words = "may not be transitioned to non-terminated state"
            problems.append(problem.forbidden(f"{path}[{index}].state", words))


def _restarts(spec: Json, kind: str, name: str, code: int) -> bool:
    """Whether a container is started again after it ended with this code."""
    if any(
        rule.get("action") == "RestartAllContainers"
        for _, container in every_container(spec)
        for rule in container.get("restartPolicyRules", ())
    ):
        return True
    container: Json = next((each for each in spec.get(kind) or () if each.get("name") == name), {})
    if not container:
        return False
    for rule in container.get("restartPolicyRules", ()):
        codes = rule.get("exitCodes", {})
        if (code in codes.get("values", ())) == (codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy")
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _addresses(problems: Problems, key: str, now: Json, before: Json) -> None:
    path, given = f"status.{key}", [each.get("ip", "") for each in now[key]]
    if key == "hostIPs" and given and now.get("hostIP", "") != given[0]:
        problems.append(problem.invalid(f"{path}[0].ip", given[0], "must be equal to `hostIP`"))
    known = {each.get("ip") for each in before.get(key, ())}
    for index, address in enumerate(given):
        if address not in known:
            problem.each(problems, f"{path}[{index}]", address, names.ip(address))
    strange = [index for index, address in enumerate(given) if names.is_no_ip(address)]
    if len(given) > 1 and strange:
        words = f"failed to check for dual stack with error:invalid IP[{strange[0]}]: {given[strange[0]]}"
        problems.append(problem.internal(path, words))
    families = [":" in each for each in given]
    if len(given) > 1 and (strange or len(given) > 2 or len(set(families)) < 2):
        problems.append(
            problem.invalid(
                path, [{"ip": each} for each in given], "may specify no more than one IP for each IP family"
            )
        )
