"""The guard of records in CEL: a ValidatingAdmissionPolicy, which holds while no program of ours runs.

It gives the verdicts of `records.guard`, in the same words.  A webhook could not do this: one that is called for
updates and is down would stop everybody who updates pods, first of all those who remove finalizers.

    matchConditions  a write that leaves annotations and labels as they are, or comes from a writer, is not looked at
    variables        which keys change, the first of them, what it was and what it becomes
    validations      nothing changes; the message says who may not do what, and what to do instead
"""

from __future__ import annotations

from typing import Any

from subak.admission import cel
from subak.admission.owned import Owned
from subak.admission.records import IN_BINDING, LONGEST_SHOWN, ON_CREATE, ON_UPDATE, WHY, Writers
from tinykube.resource import Resource
from tinykube.user import NODE_OF_TOKEN

Json = dict[str, Any]

NAME = "subak-records"
GROUP = "admissionregistration.k8s.io"
POLICIES = Resource(GROUP, "v1", "validatingadmissionpolicies", namespaced=False, kind="ValidatingAdmissionPolicy")
POLICY_BINDINGS = Resource(
    GROUP, "v1", "validatingadmissionpolicybindings", namespaced=False, kind="ValidatingAdmissionPolicyBinding"
)

DOORS = ("pods", "pods/*", "bindings")
"""All that takes a pod's annotations or labels; of the other subresources, none does today."""


def policy(owned: Owned, writers: Writers) -> Json:
    """The `spec` of the policy; it names every field that the API server would fill in."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "scope": "*"}
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [{**rule, "resources": list(DOORS)}],
        },
        "matchConditions": [
            {"name": "keys-change", "expression": _keys_change()},
            {"name": "user-is-no-writer", "expression": f"!({_is_writer(writers)})"},
        ],
        "variables": [{"name": name, "expression": text} for name, text in _variables(owned).items()],
        "validations": [
            {
                "expression": "variables.annotations.size() + variables.labels.size() == 0",
                "message": f"a record may not change: {WHY}",
                "messageExpression": _message(),
                "reason": "Forbidden",
            }
        ],
    }


def binding() -> Json:
    """The `spec` of its binding: everywhere."""
    return {"policyName": NAME, "validationActions": ["Deny"]}


def _keys_change() -> str:
    same = " && ".join(f"object.metadata.?{kind} == oldObject.metadata.?{kind}" for kind in ("annotations", "labels"))
    return f"oldObject == null || !({same})"


def _is_writer(writers: Writers) -> str:
    node = "oldObject.spec.?nodeName"
    own = f"request.userInfo.?extra[?{cel.text(NODE_OF_TOKEN)}][?0]"
    here = f'oldObject != null && {node}.orValue("") != "" && {own} == {node}'
    return f"{_among(writers.everywhere)} || ({here} && ({_among(writers.on_own_node)}))"


def _among(names: frozenset[str]) -> str:
    """Whether the user or one of the groups is named."""
    listed = cel.texts(names)
    user = f'request.userInfo.?username.orValue("") in {listed}'
    return f"{user} || request.userInfo.?groups.orValue([]).exists(g, g in {listed})"


def _variables(owned: Owned) -> dict[str, str]:
    maps = {
        f"{when}_{kind}": f"{object} == null ? {{}} : {object}.metadata.?{kind}.orValue({{}})"
        for kind in ("annotations", "labels")
        for when, object in (("old", "oldObject"), ("new", "object"))
    }
    return {
        **maps,
        "annotations": _changed("annotations", owned.exact, owned.stems),
        "labels": _changed("labels", tuple(owned.labels)),
        "kind": 'variables.annotations.size() > 0 ? "annotations" : "labels"',
        "key": "(variables.annotations.size() > 0 ? variables.annotations : variables.labels).min()",
        "before": '(variables.kind == "labels" ? variables.old_labels : variables.old_annotations)[?variables.key]',
        "after": '(variables.kind == "labels" ? variables.new_labels : variables.new_annotations)[?variables.key]',
        "field": '"metadata." + variables.kind + "[" + variables.key + "]"',
        "deed": _deed(),
    }


def _changed(kind: str, exact: tuple[str, ...], stems: tuple[str, ...] = ()) -> str:
    """The keys of annotations or labels that the write would change."""
    old, new = f"variables.old_{kind}", f"variables.new_{kind}"
    lists = [f"{cel.texts(exact)}.filter(k, {old}[?k] != {new}[?k])"]
    for stem in map(cel.text, stems):
        lists.append(f"{old}.filter(k, k.startsWith({stem}) && {old}[?k] != {new}[?k])")
        lists.append(f"{new}.filter(k, k.startsWith({stem}) && !(k in {old}))")
    return " + ".join(lists)


def _deed() -> str:
    before, after = _shown("variables.before.value()"), _shown("variables.after.value()")
    changed = f'"change " + variables.field + " from " + {before} + " to " + {after}'
    removed = f'"remove " + variables.field + ", which is " + {before}'
    added = f'"set " + variables.field + " to " + {after}'
    return f"!variables.after.hasValue() ? {removed} : !variables.before.hasValue() ? {added} : {changed}"


def _shown(value: str) -> str:
    most = LONGEST_SHOWN
    return rf"""("\"" + ({value}.size() <= {most} ? {value} : {value}.substring(0, {most}) + "...") + "\"")"""


def _message() -> str:
    pod = '"pod " + request.namespace + "/" + object.metadata.?name.orValue("")'
    is_pod = 'request.resource.resource == "pods" && request.?subResource.orValue("") == ""'
    fresh = f"{is_pod} ? {cel.text(ON_CREATE)} : {cel.text(IN_BINDING)}"
    remedy = f"(oldObject != null ? {cel.text(ON_UPDATE)} : {fresh})"
    user = r'": user \"" + request.userInfo.?username.orValue("") + "\" may not "'
    return f"{pod} + {user} + variables.deed + {cel.text(f': {WHY}: ')} + {remedy}"
