"""Guards the end of pods: only the node of a pod says that it, or one of its containers, has ended.

The cards of a pod that has ended are given to the next one.  If anybody could write that a pod has ended, a card in use
would look free; if anybody could write that it runs again, a card that others hold would look overcommitted.  So a
user's write to the status of a bound pod is refused if it says either.  All else that users write there is harmless,
and the kubelet puts it right.

For `subak up` alone: on a real cluster others end pods by their status too, such as the garbage collector of pods, and
the kubelet of the node then ends the containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from subak.admission.review import denied
from tinykube.admission import Review
from tinykube.user import NODES

ENDED = ("Succeeded", "Failed")
REMEDY = "to end it, delete the pod"

Json = Mapping[str, Any]


def guard(review: Review) -> None:
    """Raise ApiError if a user who is no node writes that a bound pod has ended, or runs again."""
    if review.subresource != "status" or review.old is None or review.object is None or NODES in review.user.groups:
        return
    node = (review.old.get("spec") or {}).get("nodeName")
    if not node:
        return
    lie = next(_lies(review.old.get("status") or {}, review.object.get("status") or {}), None)
    if lie is None:
        return
    field, deed = lie
    pod = f"pod {review.namespace}/{review.object['metadata'].get('name', '')}"
    text = f'{pod}: user "{review.user.name}" may not {deed}: only node {node} knows what has ended: {REMEDY}'
    raise denied(text, field, "FieldValueForbidden")


def _lies(before: Json, after: Json) -> Iterator[tuple[str, str]]:
    """The fields that say that something has ended, or runs again, and what is done to them."""
    was, becomes = before.get("phase") or "", after.get("phase") or ""
    if (was in ENDED or becomes in ENDED) and was != becomes:
        yield "status.phase", f'change status.phase from "{was}" to "{becomes}"'
    for name in ("containerStatuses", "initContainerStatuses"):
        ended = {each.get("name") for each in before.get(name) or () if _ended(each)}
        for index, each in enumerate(after.get(name) or ()):
            if _ended(each) and each.get("name") not in ended:
                field = f"status.{name}[{index}].state.terminated"
                yield field, f"set {field} of container {each.get('name')}"


def _ended(container: Json) -> bool:
    return "terminated" in (container.get("state") or {})
