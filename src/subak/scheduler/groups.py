"""Shows on the objects of groups how far they are, and makes Volcano's PodGroups for owners that ask for one.

Volcano's PodGroup has no status subresource: its status is patched as a part of the object, and nothing else of it.  A
condition is written when its status, reason or message is another one than before, and then an event tells of it too.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from subak.model import manifest
from subak.model.group import VOLCANO_GROUPS, VolcanoGroup, VolcanoGroupStatus, Words
from subak.scheduler.messages import MakeGroup, Note, ShowGroup
from subak.scheduler.wishes import Status, StatusWriter, Wishes
from tinykube.client import Client
from tinykube.events import NORMAL, WARNING, Recorder, Reference
from tinykube.reflector import Reflector
from tinykube.status import ApiError

SCHEDULED = "Scheduled"
"""The condition that all is well; its reason is a sentence."""

Condition = dict[str, Any]

log = logging.getLogger(__name__)


class Groups:
    """Carries out instructions about groups."""

    def __init__(self, client: Client, volcano: Reflector[VolcanoGroup], recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self._volcano = StatusWriter(client, VOLCANO_GROUPS, VolcanoGroup, volcano, subresource="")
        self._shown: Wishes[ShowGroup] = Wishes("how far a group is, PodGroup", self._show)
        self._made: Wishes[MakeGroup] = Wishes("the PodGroup of", self._make)

    async def show(self, show: ShowGroup) -> None:
        """Write how far a group is.  Never raises."""
        if show.words == Words.VOLCANO:
            await self._shown.carry_out(show.key, show)

    async def make(self, make: MakeGroup) -> None:
        """Create a PodGroup, unless there is one, or the server knows none.  Never raises."""
        await self._made.carry_out(f"{make.owner.kind} {make.namespace}/{make.owner.name}", make)

    async def _show(self, show: ShowGroup) -> None:
        written = await self._volcano.write(show.key, show.uid, lambda group: changes(group, show))
        if "conditions" in written and show.condition is not None:
            namespace, name = show.key.split("/")
            about = Reference(VOLCANO_GROUPS.api_version, VOLCANO_GROUPS.kind, name, namespace, show.uid)
            self._record(about, show.condition)

    def _record(self, about: Reference, note: Note) -> None:
        """Tell people, under the name of the condition."""
        well = note.type == SCHEDULED
        self._recorder.record(about, NORMAL if well else WARNING, note.type, note.message or note.reason)

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
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": note.reason,
        "message": note.message,
    }
