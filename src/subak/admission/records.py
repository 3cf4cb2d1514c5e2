"""Whose the records are: the annotations on a pod that say which cards it holds belong to the scheduler and the agents.

A record that anybody could change would make a card look free that is not.  So every write by which the annotations of
a pod can change is reviewed, and one that adds, changes or removes a record is refused unless a writer of records sent
it.  The doors of a Kubernetes API server are

    pods                    create, update, patch; server-side apply is a patch
    pods/status             update, patch: its metadata is stored too
    pods/binding, bindings  create: the annotations of a Binding become the pod's

The other subresources of pods take no annotations from a request; should one do so some day, it is an update like any
other here.  A write that leaves the records as they are is nobody's business: controllers and users send whole pods
back.  Nobody may create a pod that has a record, not even a writer, see `review`.

On a real cluster this is what a validating webhook answers: it needs nothing but the review.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from subak.admission.review import denied
from subak.dialects.interpreter import Interpreter
from tinykube.admission import Review

LONGEST_SHOWN = 200
"""Letters of a value in a message: the record of a large pod would fill the screen."""

_WHY = "it records an allocation, which only the scheduler and the agents of nodes write"


def guard(interpreter: Interpreter, writers: Container[str], review: Review) -> None:
    """Raises ApiError if the write changes a record and its user is none of the `writers`, who are users or groups."""
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
