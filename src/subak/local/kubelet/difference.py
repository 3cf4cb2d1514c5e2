"""The difference between the status that the API server has of a pod and what the kubelet says of it.

The kubelet owns most of a status, whoever wrote it.  Conditions of other types and all other fields belong to others,
and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subak.local.kubelet.status import CONDITIONS

JsonObject = dict[str, Any]

OWNED = (
    "observedGeneration",
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "startTime",
    "podIP",
    "podIPs",
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
)
"""Fields of a status that only the kubelet writes, besides its conditions."""

_MERGED = ("hostIPs", "podIPs")
"""Lists that a strategic patch would merge with what is there."""


def changes(there: Mapping[str, Any], said: Mapping[str, Any]) -> JsonObject:
    """The strategic merge patch after which the server has what the kubelet says: only what differs."""
    patch: JsonObject = {}
    for name in OWNED:
        now, wanted = there.get(name), said.get(name)
        if not _same(now, wanted):
            patch[name] = [{"$patch": "replace"}, *wanted] if name in _MERGED and wanted else wanted
    before = {each.get("type"): each for each in there.get("conditions") or ()}
    own = [each for each in said.get("conditions") or () if each["type"] in CONDITIONS]
    conditions = [different for each in own if (different := _condition(before.get(each["type"], {}), each))]
    if conditions:
        patch["conditions"] = conditions
    return patch


def _condition(was: Mapping[str, Any], condition: Mapping[str, Any]) -> JsonObject:
    different = {name: value for name, value in condition.items() if was.get(name) != value}
    gone = {name: None for name in ("reason", "message") if was.get(name) and name not in condition}
    return {"type": condition["type"], **different, **gone} if different or gone else {}


def _same(one: Any, other: Any) -> bool:
    """Whether two values differ in no more than servers add or leave out: empty texts, and times that are not known."""
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same(one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one in (None, "") and other in (None, "")
