"""Shows on the objects of groups how far they are, and makes Volcano's PodGroups for owners that ask for one.

Volcano's PodGroup has no status subresource: its status is patched as a part of the object, and nothing else of it.
Kubernetes' own PodGroup has one condition, which stays True once it was.  A condition is written when its status,
reason or message is another one than before, and then an event tells of it too.  The scheduler plugins' PodGroups are
shown by their own controller.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from subak.model import manifest
from subak.model.group import (
    KUBERNETES_GROUPS,
    SCHEDULED,
    VOLCANO_GROUPS,
    GroupCondition,
    KubernetesGroup,
    VolcanoGroup,
    VolcanoGroupStatus,
    Words,
)
from subak.scheduler.messages import MakeGroup, Note, ShowGroup
from subak.scheduler.wishes import Status, StatusWriter, Wishes
from tinykube.client import STRATEGIC_PATCH, Client
from tinykube.events import NORMAL, WARNING, Recorder, Reference
from tinykube.reflector import Reflector
from tinykube.resource import Resource
from tinykube.status import ApiError

WELL = "Scheduled"
"""Volcano's condition that all is well; its reason is a sentence."""

Condition = dict[str, Any]

log = logging.getLogger(__name__)


class Groups:
    """Carries out instructions about groups."""

    def __init__(self, client: Client, known: Mapping[Resource, Reflector[Any]], recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self._volcanos = StatusWriter(client, VOLCANO_GROUPS, VolcanoGroup, known[VOLCANO_GROUPS], subresource="")
        self._kubernetes = StatusWriter(
            client, KUBERNETES_GROUPS, KubernetesGroup, known[KUBERNETES_GROUPS], patch=STRATEGIC_PATCH
        )
        self._shown: Wishes[ShowGroup] = Wishes("how far a group is,", self._show)
        self._made: Wishes[MakeGroup] = Wishes("the PodGroup of", self._make)

    async def show(self, show: ShowGroup) -> None:
        """Write how far a group is.  Never raises."""
        if show.words in (Words.VOLCANO, Words.KUBERNETES):
            await self._shown.carry_out(f"{show.words} PodGroup {show.key}", show)

    async def make(self, make: MakeGroup) -> None:
        """Create a PodGroup, unless there is one, or the server knows none.  Never raises."""
        await self._made.carry_out(f"{make.owner.kind} {make.namespace}/{make.owner.name}", make)

    async def _show(self, show: ShowGroup) -> None:
        if show.words == Words.VOLCANO:
            resource = VOLCANO_GROUPS
            written = await self._volcanos.write(show.key, show.uid, lambda group: changes(group, show))
        else:
            resource = KUBERNETES_GROUPS
            written = await self._kubernetes.write(show.key, show.uid, lambda group: own_changes(group, show))
        if "conditions" in written and show.condition is not None:
            self._record(resource, show, show.condition)

    def _record(self, resource: Resource, show: ShowGroup, note: Note) -> None:
        """Tell people, under the name of the condition."""
        namespace, name = show.key.split("/")
        about = Reference(resource.api_version, resource.kind, name, namespace, show.uid)
        kind = NORMAL if note.type == WELL else WARNING
        self._recorder.record(about, kind, note.type, note.message or note.reason)

    async def _make(self, make: MakeGroup) -> None:
        try:
            await self._client.create(VOLCANO_GROUPS, group_of(make), make.namespace, type=manifest.Object)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def changes(group: VolcanoGroup, show: ShowGroup) -> Status:
    """What must be written of the status of Volcano's PodGroup."""
    status = group.status or VolcanoGroupStatus()
    wanted = {"phase": show.phase, "running": show.running, "succeeded": show.succeeded, "failed": show.failed}
    found: Status = {name: value for name, value in wanted.items() if getattr(status, name) != value}
    note, conditions = show.condition, status.conditions or ()
    if note is not None and not any(_says(each, note) for each in conditions):
        found["conditions"] = [*_without(conditions, note.type), _condition(note)]
    return found


def own_changes(group: KubernetesGroup, show: ShowGroup) -> Status:
    """What must be written of the status of Kubernetes' own PodGroup."""
    if show.condition is None:
        return {}
    conditions = () if group.status is None else group.status.conditions or ()
    before = next((each for each in conditions if each.type == SCHEDULED), GroupCondition())
    well, message = show.condition.type == WELL, show.condition.message
    status, reason = ("True", "Scheduled") if well else ("False", "Unschedulable")
    if before.status == "True" or (before.status, before.reason, before.message) == (status, reason, message):
        return {}
    since = before.since if before.status == status else None
    condition = {"type": SCHEDULED, "status": status, "reason": reason, "message": message}
    return {"conditions": [condition | {"lastTransitionTime": since or _now()}]}


def group_of(make: MakeGroup) -> dict[str, Any]:
    """The PodGroup of an owner, named and owned as Volcano's controllers would do."""
    owner = make.owner
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    spec = {"minMember": make.min_member, "queue": make.queue, "priorityClassName": make.priority_class}
    return {
        "apiVersion": VOLCANO_GROUPS.api_version,
        "kind": VOLCANO_GROUPS.kind,
        "metadata": {"name": f"podgroup-{owner.uid}", "namespace": make.namespace, "ownerReferences": [reference]},
        "spec": {name: value for name, value in spec.items() if value},
        "status": {"phase": "Pending"},
    }


def _says(condition: Condition, note: Note) -> bool:
    """Whether a condition says this already, whenever that was."""
    said = (condition.get("type"), condition.get("status"), condition.get("reason", ""), condition.get("message", ""))
    return said == (note.type, note.status, note.reason, note.message)


def _without(conditions: Iterable[Condition], type: str) -> list[Condition]:
    return [each for each in conditions if each.get("type") != type]


def _condition(note: Note) -> Condition:
    return {
        "type": note.type,
        "status": note.status,
        "transitionID": str(uuid.uuid4()),
        "lastTransitionTime": _now(),
        "reason": note.reason,
        "message": note.message,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
