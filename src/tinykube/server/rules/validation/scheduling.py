"""What a pod may ask of the nodes and the pods around it."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names

Json = dict[str, Any]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = "must be in the range 1-100"


def tolerations(problems: Problems, path: str, given: list[Json]) -> None:
    """Of tolerations."""
    for index, toleration in enumerate(given):
        here = f"{path}[{index}]"
        key, operator, value, effect = (toleration.get(each, "") for each in ("key", "operator", "value", "effect"))
        if key:
            metadata.label_key(problems, f"{here}.key", key)
        elif operator != "Exists":
            words = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            problems.append(problem.invalid(f"{here}.operator", operator, words))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            words = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            problems.append(problem.invalid(f"{here}.effect", effect, words))
        if operator in ("Equal", ""):
            wrong = names.label_value(value)
            if wrong:
                problems.append(problem.invalid(f"{here}.operator", value, ";".join(wrong)))
        elif operator == "Exists":
            if value:
                words = "value must be empty when `operator` is 'Exists'"
                problems.append(problem.invalid(f"{here}.operator", value, words))
        else:
            known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
            problems.append(problem.unsupported(f"{here}.operator", operator, known))
        if effect and effect not in _EFFECTS:
            problems.append(problem.unsupported(f"{here}.effect", effect, _EFFECTS))


def taints(problems: Problems, path: str, given: list[Json]) -> None:
    """Of a node's taints."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(given):
        here, key, effect = f"{path}[{index}]", taint.get("key", ""), taint.get("effect", "")
        metadata.label_key(problems, f"{here}.key", key)
        wrong = names.label_value(taint.get("value", ""))
        if wrong:
            problems.append(problem.invalid(f"{here}.value", taint["value"], ";".join(wrong)))
        if not effect:
            problems.append(problem.required(f"{here}.effect"))
        elif effect not in _EFFECTS:
            problems.append(problem.unsupported(f"{here}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            problems.append(problem.duplicate(here, taint, "taints must be unique by key and effect pair"))
        seen.add((key, effect))


def affinity(problems: Problems, path: str, given: Json) -> None:
    """Of `spec.affinity`."""
    if "nodeAffinity" in given:
        _node_affinity(problems, f"{path}.nodeAffinity", given["nodeAffinity"])
    for kind in ("podAffinity", "podAntiAffinity"):
        if kind in given:
            _pod_affinity(problems, f"{path}.{kind}", given[kind])


def spread(problems: Problems, path: str, given: list[Json]) -> None:
    """Of topology spread constraints."""
    pairs = [(each.get("topologyKey", ""), each.get("whenUnsatisfiable", "")) for each in given]
    last = {pair: index for index, pair in enumerate(pairs)}
    for index, constraint in enumerate(given):
        here = f"{path}[{index}]"
        key, action = pairs[index]
        if constraint.get("maxSkew", 0) <= 0:
            problems.append(
                problem.invalid(f"{here}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero")
            )
        if not key:
            problems.append(problem.required(f"{here}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            known = ("DoNotSchedule", "ScheduleAnyway")
            problems.append(problem.unsupported(f"{here}.whenUnsatisfiable", action, known))
        if last[key, action] > index:
            place = f"{here}.{{topologyKey, whenUnsatisfiable}}"
            problems.append(problem.duplicate(place, f"{{{key}, {action}}}"))
        _spread_options(problems, here, constraint, action)
        _match_keys(problems, here, constraint)
        metadata.label_selector(problems, f"{here}.labelSelector", constraint.get("labelSelector"))


def gates(problems: Problems, path: str, given: list[Json]) -> None:
    """Of scheduling gates."""
    seen: set[str] = set()
    for index, gate in enumerate(given):
        name = gate.get("name", "")
        problem.each(problems, f"{path}[{index}]", name, names.label_key(name))
        if name in seen:
            problems.append(problem.duplicate(f"{path}[{index}]", name))
        seen.add(name)


def _spread_options(problems: Problems, path: str, constraint: Json, action: str) -> None:
    domains = constraint.get("minDomains")
    if domains is not None:
        if domains <= 0:
            problems.append(problem.invalid(f"{path}.minDomains", domains, "must be greater than zero"))
        if action != "DoNotSchedule":
            words = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            problems.append(problem.invalid(f"{path}.minDomains", domains, words))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = constraint.get(name)
        if policy not in (None, "Honor", "Ignore"):
            problems.append(problem.unsupported(f"{path}.{name}", policy, ("Honor", "Ignore")))


def _node_affinity(problems: Problems, path: str, given: Json) -> None:
    if _REQUIRED in given:
        here = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = given[_REQUIRED].get("nodeSelectorTerms")
        if not terms:
            problems.append(problem.required(here, "must have at least one node selector term"))
        for index, term in enumerate(terms or ()):
            _node_term(problems, f"{here}[{index}]", term, values=True)
    for index, preference in enumerate(given.get(_PREFERRED, ())):
        here = f"{path}.{_PREFERRED}[{index}]"
        if not 0 < preference.get("weight", 0) <= 100:
            problems.append(problem.invalid(f"{here}.weight", preference.get("weight", 0), _WEIGHT))
        _node_term(problems, f"{here}.preference", preference.get("preference", {}), values=False)


def _node_term(problems: Problems, path: str, term: Json, *, values: bool) -> None:
    for index, line in enumerate(term.get("matchExpressions", ())):
        _node_expression(problems, f"{path}.matchExpressions[{index}]", line, values)
    for index, line in enumerate(term.get("matchFields", ())):
        here, operator, given = f"{path}.matchFields[{index}]", line.get("operator", ""), line.get("values", ())
        if operator not in ("In", "NotIn"):
            problems.append(problem.invalid(f"{here}.operator", operator, "not a valid selector operator"))
        elif len(given) != 1:
            words = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            problems.append(problem.required(f"{here}.values", words))
        if line.get("key") != "metadata.name":
            problems.append(problem.invalid(f"{here}.key", line.get("key", ""), "not a valid field selector key"))
        else:
            for place, value in enumerate(given):
                problem.each(problems, f"{here}.values[{place}]", value, names.subdomain_name(value))


def _node_expression(problems: Problems, path: str, line: Json, check_values: bool) -> None:
    operator, values = line.get("operator", ""), line.get("values", ())
    if operator in ("In", "NotIn"):
        if not values:
            words = "must be specified when `operator` is 'In' or 'NotIn'"
            problems.append(problem.required(f"{path}.values", words))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            words = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            problems.append(problem.forbidden(f"{path}.values", words))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            words = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            problems.append(problem.required(f"{path}.values", words))
    else:
        problems.append(problem.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    metadata.label_key(problems, f"{path}.key", line.get("key", ""))
    if check_values:
        for place, value in enumerate(values):
            problem.each(problems, f"{path}.values[{place}]", value, names.label_value(value))


def _pod_affinity(problems: Problems, path: str, given: Json) -> None:
    for index, term in enumerate(given.get(_REQUIRED, ())):
        _pod_term(problems, f"{path}.{_REQUIRED}[{index}]", term)
    for index, weighted in enumerate(given.get(_PREFERRED, ())):
        here = f"{path}.{_PREFERRED}[{index}]"
        if not 0 < weighted.get("weight", 0) <= 100:
            problems.append(problem.invalid(f"{here}.weight", weighted.get("weight", 0), _WEIGHT))
        _pod_term(problems, f"{here}.podAffinityTerm", weighted.get("podAffinityTerm", {}))


def _pod_term(problems: Problems, path: str, term: Json) -> None:
    for kind in ("labelSelector", "namespaceSelector"):
        metadata.label_selector(problems, f"{path}.{kind}", term.get(kind))
    for name in term.get("namespaces", ()):
        problem.each(problems, f"{path}.namespace", name, names.label_name(name))
    _match_keys(problems, path, term)
    key = term.get("topologyKey", "")
    if not key:
        problems.append(problem.required(f"{path}.topologyKey", "can not be empty"))
    metadata.label_key(problems, f"{path}.topologyKey", key)


def _match_keys(problems: Problems, path: str, given: Json) -> None:
    """Of the keys whose values are taken from the pod itself; the selector has got them already."""
    matched, mismatched, selector = (
        given.get("matchLabelKeys", ()),
        given.get("mismatchLabelKeys", ()),
        given.get("labelSelector"),
    )
    for name, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and selector is None:
            words = "must not be specified when labelSelector is not set"
            problems.append(problem.forbidden(f"{path}.{name}", words))
        elif keys:
            for index, key in enumerate(keys):
                metadata.label_key(problems, f"{path}.{name}[{index}]", key)
    places = {key: index for index, key in reversed([*enumerate(matched)])}
    if selector is not None and matched:
        seen = set(selector.get("matchLabels", {}))
        for line in selector.get("matchExpressions", ()):
            key = line.get("key", "")
            if key in places and key in seen:
                words = "exists in both matchLabelKeys and labelSelector"
                problems.append(problem.invalid(f"{path}[{places[key]}]", key, words))
            seen.add(key)
    opposite = set(mismatched)
    for index, key in enumerate(matched):
        if key in opposite:
            words = "exists in both matchLabelKeys and mismatchLabelKeys"
            problems.append(problem.invalid(f"{path}.matchLabelKeys[{index}]", key, words))
