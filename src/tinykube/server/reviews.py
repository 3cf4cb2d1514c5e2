"""Answers to "who am I" and "what may I do"; every user may do everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinykube.server import errors
from tinykube.user import User

Json = dict[str, Any]

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"

_EVERYTHING = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
# Group and plural: kind, and what to say.
REVIEWS: dict[tuple[str, str], tuple[str, Callable[[User], Json]]] = {
    (AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", lambda user: {"userInfo": user.info()}),
    (AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", lambda user: {"allowed": True}),
    (AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", lambda user: _EVERYTHING),
}


def review(group: str, plural: str, body: Any, user: User, now: str) -> Json:
    """The answer to a question that a client has posted."""
    kind, said = REVIEWS[group, plural]
    if not isinstance(body, dict) or body.get("kind", kind) != kind:
        raise errors.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}')
    metadata = {"creationTimestamp": now} if group == AUTHENTICATION else {}
    made: Json = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": metadata}
    if "spec" in body:
        made["spec"] = body["spec"]
    return made | {"status": said(user)}
