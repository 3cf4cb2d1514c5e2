"""Guards records: only the scheduler and the agents may write the annotations that say which cards a pod holds.

If anybody could change a record, a card that is in use could look free.  So every write that can change the annotations
of a pod is reviewed, and refused if it adds, changes or removes a record and its user is no writer of records.  These
requests to a Kubernetes API server can change annotations, and the labels that count as records too:

    pods                    create, update, patch; server-side apply is a patch
    pods/status             update, patch: its metadata is stored too
    pods/binding, bindings  create: the annotations of a Binding become the pod's

The other subresources of pods take no annotations from a request; if one ever does, it counts as an update.  A write
that leaves the records unchanged passes, since controllers and users send whole pods back.  Nobody may create a pod
that has a record, not even a writer (see `review`).

`policy` says the same in CEL, so that a real API server holds to it while no program of ours runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from subak.admission.owned import Owned
from subak.admission.review import denied
from tinykube.admission import Review
from tinykube.user import User

LONGEST_SHOWN = 200
"""How many letters of a value a message shows: the record of a large pod would fill the screen."""

WHY = "it records an allocation, which only the scheduler and the agents of nodes write"
ON_UPDATE = "leave it as it is; to give its cards back, delete the pod"
ON_CREATE = "remove it"
IN_BINDING = "leave it out of the Binding, and let the scheduler bind the pod"


@dataclass(frozen=True, slots=True)
class Writers:
    """Users and groups who may write records: of all pods, or only of those on the node where they run themselves."""

    everywhere: frozenset[str]
    on_own_node: frozenset[str] = frozenset()

    def include(self, user: User, node: str) -> bool:
        """Whether the user may write the record of a pod that is on this node, or on none yet."""
        if user.is_among(self.everywhere):
            return True
        return bool(node) and user.node == node and user.is_among(self.on_own_node)


def guard(owned: Owned, writers: Writers, review: Review) -> None:
    """Raise ApiError if the write changes a record and its user is none of the `writers`."""
    if review.object is None or writers.include(review.user, _node(review)):
        return
    before, after = owned.among(review.old), owned.among(review.object)
    if before == after:
        return
    place = min(place for place in {**before, **after} if before.get(place) != after.get(place))
    field = "metadata.{}[{}]".format(*place)
    deed = _deed(field, before.get(place), after.get(place))
    pod = f"pod {review.namespace}/{review.object['metadata'].get('name', '')}"
    text = f'{pod}: user "{review.user.name}" may not {deed}: {WHY}: {_remedy(review)}'
    raise denied(text, field, "FieldValueForbidden")


def _node(review: Review) -> str:
    """The node of the pod before the write."""
    return ((review.old or {}).get("spec") or {}).get("nodeName") or ""


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
        return ON_UPDATE
    return ON_CREATE if review.resource == "pods" and not review.subresource else IN_BINDING
