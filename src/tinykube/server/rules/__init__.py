"""What the served kinds mean: what a request's content says, and whether it may be stored.

    content ── read ──> decoded and complete ── create, update ──> admitted, prepared, judged ──> to be stored
               fields, types, defaults          namespace, account, priority, quota, immutable fields

All refusals are `ApiError`s with the code, the reason and the words of a kube-apiserver.  Nothing that is stored is
changed in place, and nothing is stored here.
"""

from __future__ import annotations

from typing import Any

from tinykube.server import errors
from tinykube.server.kinds import Kind
from tinykube.server.rules import admission, preparation, quota, validation
from tinykube.server.rules.admission import View
from tinykube.server.rules.content import NotOfKind, read
from tinykube.server.rules.problem import Problems

__all__ = ["NotOfKind", "View", "create", "read", "update"]

Json = dict[str, Any]


def create(kind: Kind, object: Json, view: View, *, dry_run: bool = False) -> Json:
    """A new object as it is to be stored.  Its name, uid and time of creation are set already."""
    object = _own(object)
    admission.creation(kind, object, view)
    preparation.creation(kind, object, view, dry_run)
    _judge(kind, object, validation.of_creation(kind, object))
    admission.decision(kind, object, view, new=True)
    quota.creation(kind, object, view)
    return object


def update(kind: Kind, new: Json, old: Json, view: View, subresource: str = "", *, dry_run: bool = False) -> Json:
    """What an object becomes when `new` is written over `old`, or over a part of it."""
    new = _own(new)
    if not subresource:
        admission.update(kind, new, old)
    preparation.update(kind, new, old, view, subresource, dry_run)
    _judge(kind, new, validation.of_update(kind, new, old, subresource))
    if not subresource:
        admission.decision(kind, new, view, new=False)
    return new


def _own(object: Json) -> Json:
    """A copy whose upper parts may be changed.  What is deeper comes from `read` and belongs to this request."""
    object = dict(object)
    for part in ("metadata", "spec", "status"):
        if type(object.get(part)) is dict:
            object[part] = dict(object[part])
    return object


def _judge(kind: Kind, object: Json, problems: Problems) -> None:
    if problems:
        raise errors.invalid(kind, object["metadata"].get("name", ""), problems)
