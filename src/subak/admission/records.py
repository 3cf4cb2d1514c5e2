"""Guards records: only the scheduler and the agents may write the annotations that say which cards a pod holds.

If anybody could change a record, a card that is in use could look free.  So every write that can change the annotations
of a pod is reviewed, and refused if it adds, changes or removes a record and its user is no writer of records.  These
requests to a Kubernetes API server can change annotations:

    pods                    create, update, patch; server-side apply is a patch
    pods/status             update, patch: its metadata is stored too
    pods/binding, bindings  create: the annotations of a Binding become the pod's

The other subresources of pods take no annotations from a request; if one ever does, it counts as an update.  A write
that leaves the records unchanged passes, since controllers and users send whole pods back.  Nobody may create a pod
that has a record, not even a writer (see `review`).

On a real cluster, a validating webhook can answer the same: it needs only the review.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from subak.admission.review import denied
from subak.dialects.interpreter import Interpreter
from tinykube.admission import Review

LONGEST_SHOWN = 200
"""How many letters of a value a message shows: the record of a large pod would fill the screen."""

_WHY = "it records an allocation, which only the scheduler and the agents of nodes write"


def guard(interpreter: Interpreter, writers: Container[str], review: Review) -> None:
    """Raise ApiError if the write changes a record and its user is none of the `writers` (users or groups)."""
    if review.object is None or review.user.is_among(writers):
        return
    before, after = (interpreter.owned_among(_annotations(each)) for each in (review.old, review.object))
    if before == after:
        return
    key = min(key for key in {**before, **after} if before.get(key) != after.get(key))
    field = f"metadata.annotations[{key}]"
    deed = _deed(field, before.get(key), after.get(key))
    pod = f"pod {review.namespace}/{review.object['metadata'].get('name', '')}"
    text = f'{pod}: user "{review.user.name}" may not {deed}: {_WHY}: {_remedy(review)}'
    raise denied(text, field, "FieldValueForbidden")


def _deed(field: str, before: str | None, after: str | None) -> str:
    if after is None:
        return f"remove {field}, which is {_shown(before)}"
    if before is None:
        return f"set {field} to {_shown(after)}"
    return f"change {field} from {_shown(before)} to {_shown(after)}"


def _shown(text: str | None) -> str:
    text = text or ""
    return f'"{text}"' if len(text) <= LONGEST_SHOWN else f'"{text[:LONGEST_SHOWN]}..."'


def _remedy(review: Review) -> str:
    if review.old is not None:
        return "leave it as it is; to give its cards back, delete the pod"
    if review.resource == "pods" and not review.subresource:
        return "remove it"
    return "leave it out of the Binding, and let the scheduler bind the pod"


def _annotations(object: Mapping[str, Any] | None) -> Mapping[str, str]:
    return ((object or {}).get("metadata") or {}).get("annotations") or {}
