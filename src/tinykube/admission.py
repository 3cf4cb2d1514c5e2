"""What an API server asks about a write before it stores it: the request of an `AdmissionReview`.

The embedded API server and a webhook on a real one put the same question, so that one function can answer both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinykube.user import User

CREATE, UPDATE = "CREATE", "UPDATE"


@dataclass(frozen=True, slots=True)
class Review:
    """A write.  `resource` is a plural; `old` is None for a new object, `object` for one that goes.

    A pod is bound by the creation of a Binding: as `pods/NAME/binding`, or in `bindings`.  Then `old` is None and
    `object` is the Binding, not the pod.
    """

    operation: str
    resource: str
    subresource: str
    namespace: str
    user: User
    object: Mapping[str, Any] | None = None
    old: Mapping[str, Any] | None = None
