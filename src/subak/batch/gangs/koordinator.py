"""Koordinator: pods say themselves how large their gang is, or name a PodGroup of `scheduling.sigs.k8s.io`.

    pod-group.scheduling.sigs.k8s.io                 label: the PodGroup, which says the rest
    pod-group.scheduling.sigs.k8s.io/name            label, the old scheduler plugins' form without an object;
    pod-group.scheduling.sigs.k8s.io/min-available   so many start together
    gang.scheduling.koordinator.sh/name              annotations: the same in Koordinator's own words
    gang.scheduling.koordinator.sh/min-available

    gang.scheduling.koordinator.sh/waiting-time      the timeout of the gang
    gang.scheduling.koordinator.sh/groups            a JSON list of gangs, namespace/name: they all start together
    gang.scheduling.koordinator.sh/mode              Strict or NonStrict
    gang.scheduling.koordinator.sh/total-number      how many there will be; nothing depends on it here
    gang.scheduling.koordinator.sh/match-policy      only waiting-and-running: members that run count

Gangs that start together are one job.  Each gang is a role in it, with its own minimum; a gang whose pods are not there
yet counts with one, because only they know how many.

Koordinator finds places for members one by one.  If one finds none, a Strict gang gives all places back, a NonStrict
one keeps them until its waiting time is over.  Here all places are found at once or none is taken.  So both modes mean
Strict: two gangs that keep a part of their places could wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from subak.batch.gangs.membership import Membership, annotation, check_name, duration, label, natural, one_of
from subak.model import manifest
from subak.model.group import Group, Words
from subak.model.reason import Refusal

PREFIX = "gang.scheduling.koordinator.sh/"
NAME, MIN, TOTAL = PREFIX + "name", PREFIX + "min-available", PREFIX + "total-number"
MODE, GROUPS, WAITING = PREFIX + "mode", PREFIX + "groups", PREFIX + "waiting-time"
MATCH = PREFIX + "match-policy"
TIMEOUT = PREFIX + "timeout"
"""Koordinator's own note that a gang gave up."""

OBJECT = "pod-group.scheduling.sigs.k8s.io"
LIGHT_NAME, LIGHT_MIN, LIGHT_MATCH = f"{OBJECT}/name", f"{OBJECT}/min-available", f"{OBJECT}/match-policy"

KNOWN = frozenset({NAME, MIN, TOTAL, MODE, GROUPS, WAITING, MATCH, TIMEOUT})

_MODES = {"Strict": "", "NonStrict": ""}
_RUNNING_COUNT = "members that run always count for their gang here, with those that wait"
_MATCHES = {"waiting-and-running": "", "only-waiting": _RUNNING_COUNT, "once-satisfied": _RUNNING_COUNT}


def membership(pod: manifest.Pod) -> Membership | None:
    """The gang that the pod names, or the bundle of gangs that start together.  Raises Refusal."""
    field, name = _named(pod)
    if not name:
        _check_nameless(pod.annotations)
        return None
    gang = f"{pod.namespace}/{check_name(field, name)}"
    _check(pod.annotations)
    minimum = _minimum(pod)
    timeout = _timeout(pod.annotations)
    warnings = doubts(pod.annotations)
    bundle = _bundle(pod.annotations, gang)
    if len(bundle) == 1:
        return Membership(Words.KOORDINATOR, gang, minimum, timeout=timeout, warnings=warnings, field=field)
    if minimum is None:
        text = pod.annotations[GROUPS]
        raise Refusal(
            annotation(GROUPS), text, f"{annotation(GROUPS)} needs {MIN} beside it: say how many of {gang} start"
        )
    return Membership(
        Words.KOORDINATOR,
        ",".join(bundle),
        minimum + len(bundle) - 1,
        tuple((each, minimum if each == gang else 1) for each in bundle),
        gang,
        timeout,
        warnings,
        field,
    )


def objection(group: Group) -> str:
    """What a PodGroup asks for in Koordinator's annotations and cannot get; empty if nothing."""
    try:
        _check(group.annotations)
        bundle = _bundle(group.annotations, group.key)
    except Refusal as refusal:
        return f"PodGroup {group.key}: {refusal.message}"
    if len(bundle) > 1:
        return (
            f"PodGroup {group.key}: {annotation(GROUPS)} names other gangs, which is read from pods only: "
            f"give the pods of all these gangs {GROUPS} and {MIN}"
        )
    return ""


def doubts(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """What annotations of a pod or a PodGroup mean otherwise than in Koordinator."""
    if annotations.get(MODE) == "NonStrict":
        return (f"{MODE} is NonStrict: no places are kept for a part of the gang, as in Strict mode",)
    return ()


def _named(pod: manifest.Pod) -> tuple[str, str]:
    """The field that names the gang, and the name; Koordinator's order."""
    for field, name in (
        (label(OBJECT), pod.labels.get(OBJECT)),
        (label(LIGHT_NAME), pod.labels.get(LIGHT_NAME)),
        (annotation(LIGHT_NAME), pod.annotations.get(LIGHT_NAME)),
        (annotation(NAME), pod.annotations.get(NAME)),
    ):
        if name:
            return field, name
    return "", ""


def _minimum(pod: manifest.Pod) -> int | None:
    """How many start together, as the pod says; None if its PodGroup does."""
    if pod.labels.get(OBJECT):
        return None
    for field, text in (
        (label(LIGHT_MIN), pod.labels.get(LIGHT_MIN)),
        (annotation(LIGHT_MIN), pod.annotations.get(LIGHT_MIN)),
        (annotation(MIN), pod.annotations.get(MIN)),
    ):
        if text:
            return natural(field, text)
    return None


def _check_nameless(annotations: Mapping[str, str]) -> None:
    """Refuse a pod that speaks of a gang and does not say which."""
    if MIN in annotations:
        raise Refusal(annotation(MIN), annotations[MIN], f"{annotation(MIN)} needs {NAME} beside it: name the gang")


def _check(annotations: Mapping[str, str]) -> None:
    """Refuse what nobody knows, and what cannot be honoured."""
    for each, text in annotations.items():
        if each.startswith(PREFIX) and each not in KNOWN:
            raise Refusal(annotation(each), text, f"{annotation(each)} is not supported: remove it")
    if mode := annotations.get(MODE):
        one_of(annotation(MODE), mode, _MODES)
    for each in (MATCH, LIGHT_MATCH):
        if policy := annotations.get(each):
            one_of(annotation(each), policy, _MATCHES)
    if total := annotations.get(TOTAL):
        minimum = annotations.get(MIN)
        if natural(annotation(TOTAL), total) < (natural(annotation(MIN), minimum) if minimum else 0):
            raise Refusal(
                annotation(TOTAL), total, f"{annotation(TOTAL)} is {total}, fewer than {MIN}, {minimum}: raise it"
            )


def _timeout(annotations: Mapping[str, str]) -> float | None:
    text = annotations.get(WAITING)
    return duration(annotation(WAITING), text) if text else None


def _bundle(annotations: Mapping[str, str], gang: str) -> list[str]:
    """All gangs that start together with this one, in order; only itself if it names no others.  Raises Refusal."""
    text = annotations.get(GROUPS)
    if not text:
        return [gang]
    field = annotation(GROUPS)
    try:
        listed = msgspec.json.decode(text, type=list[str])
    except ValueError:  # also texts that are no UTF-8
        raise Refusal(field, text, f'{field} must be a JSON list of gangs, such as ["{gang}"]') from None
    for each in listed:
        namespace, slash, name = each.partition("/")
        if not slash:
            raise Refusal(field, text, f"{field} names the gang {each!r:.80}: write NAMESPACE/NAME, such as {gang}")
        check_name(field, namespace)
        check_name(field, name)
    if listed and gang not in listed:
        raise Refusal(field, text, f"{field} does not name the pod's own gang: add {gang}")
    return sorted({gang, *listed})
