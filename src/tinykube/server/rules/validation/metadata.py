"""What every object's metadata must be, at its creation and whenever it changes."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import names
from tinykube.server.rules.validation.names import NameRule

Json = dict[str, Any]

_ANNOTATIONS = 256 * 1024
_OWN_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def creation(
    problems: Problems, meta: Json, namespaced: bool, name_rule: NameRule, path: str = "metadata", *, core: bool = True
) -> None:
    """Of a new object.  `core`: a finalizer without a domain must be one that Kubernetes knows."""
    name = meta.get("name")
    if "generateName" in meta:
        problem.each(problems, f"{path}.generateName", meta["generateName"], name_rule(meta["generateName"], True))
    if not name:
        problems.append(problem.required(f"{path}.name", "name or generateName is required"))
    else:
        problem.each(problems, f"{path}.name", name, name_rule(name, False))
    _common(problems, meta, namespaced, path)
    if core and "finalizers" in meta:
        _known_finalizers(problems, meta["finalizers"], path)


def update(problems: Problems, new: Json, old: Json, path: str = "metadata", *, core: bool = True) -> None:
    """Of an object that changes."""
    if "deletionTimestamp" in old:
        added = sorted(set(new.get("finalizers", ())) - set(old.get("finalizers", ())))
        if added:
            shown = "[]string{" + ", ".join(problem.quote(each) for each in added) + "}"
            words = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
            problems.append(problem.forbidden(f"{path}.finalizers", words))
    if not new.get("resourceVersion"):
        problems.append(problem.invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        problems.append(problem.invalid(f"{path}.generation", new.get("generation", 0), "must not be decremented"))
    for key in _KEPT:
        if new.get(key) != old.get(key):
            problem.immutable(problems, f"{path}.{key}", new.get(key), old.get(key))
    labels(problems, f"{path}.labels", new.get("labels"))
    if "annotations" in new and new["annotations"] != old.get("annotations"):
        of_annotations(problems, new["annotations"], path)
    if "ownerReferences" in new:
        _owners(problems, new["ownerReferences"], path)
    if core and "finalizers" in new:
        _known_finalizers(problems, new["finalizers"], path)


def labels(problems: Problems, path: str, given: dict[str, str] | None) -> None:
    """Of labels, or of a selector that asks for labels."""
    if given:
        for key, value in given.items():
            label_key(problems, path, key)
            wrong = names.label_value(value)
            if wrong:
                problem.each(problems, path, value, wrong)


def label_key(problems: Problems, path: str, key: str) -> None:
    """Of the key of a label."""
    wrong = names.label_key(key)
    if wrong:
        problem.each(problems, path, key, wrong)


def label_selector(problems: Problems, path: str, selector: Json | None) -> None:
    """Of a label selector with its expressions."""
    if not selector:
        return
    labels(problems, f"{path}.matchLabels", selector.get("matchLabels"))
    for index, expression in enumerate(selector.get("matchExpressions", ())):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values", ())
        if operator in ("In", "NotIn"):
            if not values:
                words = "must be specified when `operator` is 'In' or 'NotIn'"
                problems.append(problem.required(f"{here}.values", words))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                words = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                problems.append(problem.forbidden(f"{here}.values", words))
        else:
            problems.append(problem.invalid(f"{here}.operator", operator, "not a valid selector operator"))
        label_key(problems, f"{here}.key", expression.get("key", ""))
        for place, value in enumerate(values):
            problem.each(problems, f"{here}.values[{place}]", value, names.label_value(value))


def segment(text: str, prefix: bool = False) -> names.Wrong:
    """The least that any name must be."""
    return names.path_segment(text)


def finalizer(problems: Problems, path: str, name: str) -> None:
    """Of one finalizer of a namespace."""
    problem.each(problems, path, name, names.label_key(name))
    _known_finalizer(problems, path, name)


def _common(problems: Problems, meta: Json, namespaced: bool, path: str) -> None:
    namespace = meta.get("namespace")
    if namespaced:
        if not namespace:
            problems.append(problem.required(f"{path}.namespace"))
        else:
            problem.each(problems, f"{path}.namespace", namespace, names.label_name(namespace))
    elif namespace:
        problems.append(problem.forbidden(f"{path}.namespace", "not allowed on this type"))
    if meta.get("generation", 0) < 0:
        words = "must be greater than or equal to 0"
        problems.append(problem.invalid(f"{path}.generation", meta["generation"], words))
    labels(problems, f"{path}.labels", meta.get("labels"))
    if "annotations" in meta:
        of_annotations(problems, meta["annotations"], path)
    if "ownerReferences" in meta:
        _owners(problems, meta["ownerReferences"], path)
    if "finalizers" in meta:
        _finalizers(problems, meta["finalizers"], path)


def of_annotations(problems: Problems, given: dict[str, str], path: str) -> None:
    """Of annotations: their keys, and how large they are together."""
    size = 0
    for key, value in given.items():
        wrong = names.label_key(key.lower())
        if wrong:
            problem.each(problems, f"{path}.annotations", key, wrong)
        size += len(key) + len(value)
    # A text has at least as many bytes as letters, and at most four times as many.
    if size * 4 > _ANNOTATIONS and sum(len(text.encode()) for pair in given.items() for text in pair) > _ANNOTATIONS:
        problems.append(problem.too_long(f"{path}.annotations", _ANNOTATIONS))


def _owners(problems: Problems, owners: list[Json], path: str) -> None:
    path = f"{path}.ownerReferences"
    controllers = []
    for owner in owners:
        version = owner.get("apiVersion", "").rpartition("/")[2] if owner.get("apiVersion", "").count("/") < 2 else ""
        for key, absent, words in (
            ("apiVersion", not version, "version must not be empty"),
            ("kind", not owner.get("kind"), "must not be empty"),
            ("name", not owner.get("name"), "must not be empty"),
            ("uid", not owner.get("uid"), "must not be empty"),
        ):
            if absent:
                problems.append(problem.invalid(f"{path}.{key}", owner.get(key, ""), words))
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            words = "/v1, Kind=Event is disallowed from being an owner"
            problems.append(problem.invalid(path, _ordered(owner), words))
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
            if len(controllers) == 2:  # said once, since it shows the whole list
                words = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{' and '.join(controllers)}"
                )
                problems.append(problem.invalid(path, [_ordered(each) for each in owners], words))


def _ordered(owner: Json) -> Json:
    keys = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
    return {key: owner[key] for key in keys if key in owner}


def _finalizers(problems: Problems, finalizers: list[str], path: str) -> None:
    for name in finalizers:
        problem.each(problems, f"{path}.finalizers", name, names.label_key(name))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        words = "finalizer orphan and foregroundDeletion cannot be both set"
        problems.append(problem.invalid(f"{path}.finalizers", finalizers, words))


def _known_finalizers(problems: Problems, finalizers: list[str], path: str) -> None:
    for index, name in enumerate(finalizers):
        _known_finalizer(problems, f"{path}.finalizers[{index}]", name)


def _known_finalizer(problems: Problems, path: str, name: str) -> None:
    if "/" not in name and name not in _OWN_FINALIZERS:
        words = "name is neither a standard finalizer name nor is it fully qualified"
        problems.append(problem.invalid(path, name, words))
