"""A gang as `subak why` shows it: why it waits, its queue, and each of its members.

What the controller knows of it comes first; else what it has written to the objects; else what the objects tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from subak.batch import explain, gangs
from subak.batch.gangs import Membership, Terms
from subak.batch.world import DEFAULT
from subak.cli import window
from subak.cli.columns import aligned
from subak.cli.connection import Connection
from subak.cli.plain import plain
from subak.model import manifest
from subak.model.group import GROUPS, QUEUES, Group
from subak.model.reason import Refusal
from tinykube.resource import PODS, Resource
from tinykube.status import ApiError

OBJECTS = {kind.words: resource for resource, kind in GROUPS.items()}
"""Where the object of a group is, by the words in which pods name it."""

UNSCHEDULABLE = "Unschedulable"


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a gang, and what its user was told of why it waits."""

    pod: manifest.Pod
    told: str

    @property
    def waits(self) -> bool:
        """Whether it has no place yet."""
        return not self.pod.spec.node_name and not self.pod.finished

    @property
    def state(self) -> str:
        """Where it is in its life, in a word."""
        if self.pod.metadata.deletion_timestamp is not None:
            return "Terminating"
        return "Waiting" if self.waits else self.pod.status.phase or "Pending"


@dataclass(slots=True)
class Gang:
    """Pods that start together; `name` is `namespace/name`, for gangs that start together several of them.

    `written` is what its object says of why it waits.  `queue` is None if it cannot be seen, and has no metadata if it
    is not there.
    """

    words: str
    name: str
    members: list[Member] = field(default_factory=list)
    memberships: list[Membership] = field(default_factory=list)
    group: Group | None = None
    written: str = ""
    queue: dict[str, Any] | None = None
    known: window.KnownGang | None = None

    @property
    def terms(self) -> Terms | None:
        """What holds for it; None if its object is not there."""
        return gangs.agreed(self.memberships, self.group)

    @property
    def queue_name(self) -> str:
        """The queue that it is in."""
        named = next((queue for each in self.members if (queue := each.pod.annotations.get(gangs.QUEUE))), "")
        return (self.group.queue if self.group is not None else "") or named or DEFAULT

    @property
    def outlook(self) -> explain.Outlook:
        """How it stands, as far as objects tell."""
        there = [each.pod for each in self.members if each.state not in ("Failed", "Terminating")]
        terms = self.terms
        return explain.Outlook(
            needed=len(there) if terms is None else terms.min_member,
            there=len(there),
            bound=sum(1 for pod in there if pod.spec.node_name),
            missing=f"PodGroup {self.name} ({OBJECTS[self.words].api_version}) is not there" if terms is None else "",
            refusal="" if self.group is None else gangs.refusal(self.group),
            queue=self.queue_name,
            state=self._queue_state(),
        )

    @property
    def waits(self) -> bool:
        """Whether it has too few places to run."""
        outlook = self.outlook
        return bool(outlook.missing) or outlook.bound < outlook.needed or not self.members

    @property
    def sentence(self) -> str:
        """Why it waits, or that it does not."""
        outlook = self.outlook
        if not self.waits:
            return f"{outlook.bound:,} of {len(self.members):,} members have places, {outlook.needed:,} needed"
        known = "" if self.known is None else self.known.message
        told = [each.told for each in self.members if each.waits and each.told]
        introduction = explain.introduction(self.name)
        shared = next((each.removeprefix(introduction) for each in told if each.startswith(introduction)), "")
        return (
            known
            or explain.obstacle(outlook)
            or shared
            or self.written
            or next(iter(told), "")
            or explain.sentence(outlook)
        )

    def data(self) -> dict[str, Any]:
        """The gang as data for scripts."""
        outlook, queue = self.outlook, self.queue or {}
        return {
            "gang": self.name,
            "words": self.words,
            "waits": self.waits,
            "message": self.sentence,
            "minMember": outlook.needed,
            "phase": "" if self.group is None else self.group.phase,
            "queue": {
                "name": outlook.queue,
                "state": outlook.state,
                "allocated": queue.get("status", {}).get("allocated", {}),
            },
            "warnings": list(() if self.terms is None else self.terms.warnings),
            "members": [self._member_data(each) for each in self.members],
        }

    def show(self, wide: bool = False) -> None:
        """Print the gang for people; if wide, with the stories of its members."""
        click.echo(plain(f"gang {self.name} {'waits' if self.waits else 'runs'}: {self.sentence}"))
        for warning in () if self.terms is None else self.terms.warnings:
            click.echo(plain(f"  mind: {warning}"))
        if self.queue is not None:
            click.echo(f"  {self._queue_line()}")
        if self.members:
            rows = [["MEMBER", "STATE", "NODE", "WHY"], *(self._row(each) for each in self.members)]
            for line in aligned(rows):
                click.echo(f"  {line}")
        for key, story in self.known.stories.items() if wide and self.known is not None else ():
            for sentence in story:
                click.echo(plain(f"  {key}: {sentence}"))

    def _queue_state(self) -> str:
        if self.queue is None:
            return "Open"
        if not self.queue:
            return "Open" if self.queue_name == DEFAULT else ""
        return str(self.queue.get("status", {}).get("state") or "Open")

    def _queue_line(self) -> str:
        outlook = self.outlook
        if not outlook.state:
            return f"there is no queue {outlook.queue}"
        held = (self.queue or {}).get("status", {}).get("allocated") or {}
        amounts = ", ".join(f"{name} {amount}" for name, amount in sorted(held.items()))
        return f"queue {outlook.queue} is {outlook.state}, and holds {amounts or 'nothing'}"

    def _why(self, member: Member) -> str:
        """What a member was told, unless it is what the whole gang is told."""
        return "" if not member.waits or self.sentence in member.told else member.told

    def _row(self, member: Member) -> list[str]:
        nominated = member.pod.status.nominated_node_name
        node = member.pod.spec.node_name or (f"({nominated})" if nominated else "-")
        return [self._short(member), member.state, node, self._why(member)]

    def _short(self, member: Member) -> str:
        """Its name, with the namespace where its gang is in several."""
        several = len({each.pod.namespace for each in self.members}) > 1
        return member.pod.key if several else member.pod.name

    def _member_data(self, member: Member) -> dict[str, Any]:
        return {
            "namespace": member.pod.namespace,
            "name": member.pod.name,
            "state": member.state,
            "node": member.pod.spec.node_name,
            "nominated": member.pod.status.nominated_node_name,
            "message": member.told if member.waits else "",
            "story": [] if self.known is None else self.known.stories.get(member.pod.key, []),
        }


async def named(connection: Connection, namespace: str, name: str) -> list[Gang]:
    """All gangs of this name, in whichever words: those that have members or an object, the former first."""
    full = f"{namespace}/{name}"
    found = await _members(connection, [namespace], full)
    for words in OBJECTS:
        if (words, full) not in found:
            gang = Gang(words, full)
            await _read_object(connection, gang)
            if gang.group is not None:
                found[words, full] = gang
    complete = [await _completed(connection, gang) for gang in found.values()]
    return sorted(complete, key=lambda gang: (not gang.members, gang.words))


async def of_pod(connection: Connection, pod: manifest.Pod) -> Gang | None:
    """The gang of a pod; None if it is by itself, says of its gang what cannot be, or the user may not see others."""
    try:
        member = gangs.membership(pod)
    except Refusal:
        return None
    if member is None:
        return None
    namespaces = {each.partition("/")[0] for each in member.name.split(",")}
    try:
        found = await _members(connection, sorted(namespaces), member.name)
    except ApiError as error:
        if error.code != 403:
            raise
        return None
    gang = found.get((member.words, member.name), Gang(member.words, member.name))
    return await _completed(connection, gang)


async def _members(connection: Connection, namespaces: Sequence[str], name: str) -> dict[tuple[str, str], Gang]:
    """The gangs of this name, or of which it is a part, with their members; by their words and full names."""
    listed = await asyncio.gather(*(connection.client.list(PODS, each) for each in namespaces))
    found: dict[tuple[str, str], Gang] = {}
    for full in (each for answer in listed for each in answer.items):
        pod = msgspec.convert(full, manifest.Pod, strict=False)
        try:
            member = gangs.membership(pod)
        except Refusal:
            continue
        if member is not None and (member.name == name or name in member.name.split(",")):
            gang = found.setdefault((member.words, member.name), Gang(member.words, member.name))
            gang.members.append(Member(pod, _told(full)))
            gang.memberships.append(member)
    return found


async def _completed(connection: Connection, gang: Gang) -> Gang:
    """The gang with its object, its queue, and what the controller knows of it."""
    if gang.group is None:
        await _read_object(connection, gang)
    gang.queue = await _get(connection, QUEUES, gang.queue_name, "")
    gang.known = await window.of_gang(connection.client, gang.words, gang.name) if gang.waits else None
    gang.members.sort(key=lambda each: each.pod.key)
    return gang


async def _read_object(connection: Connection, gang: Gang) -> None:
    namespace, _, name = gang.name.partition("/")
    resource = OBJECTS.get(gang.words)
    if resource is None or "," in gang.name:
        return
    full = await _get(connection, resource, name, namespace)
    if full:
        gang.group = msgspec.convert(full, GROUPS[resource], strict=False).as_group()
        gang.written = _written(full)


async def _get(connection: Connection, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
    """An object; empty if it is not there, None if the user may not see it."""
    try:
        return await connection.client.get(resource, name, namespace)
    except ApiError as error:
        if error.code == 403:
            return None
        if error.code != 404:
            raise
        return {}


def _told(pod: dict[str, Any]) -> str:
    """What the scheduler has written to a pod of why it waits."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((str(each.get("message", "")) for each in conditions if each.get("type") == "PodScheduled"), "")


def _written(group: dict[str, Any]) -> str:
    """What the scheduler has written to a PodGroup of why it waits."""
    conditions = group.get("status", {}).get("conditions") or ()
    waits = [each for each in conditions if each.get("type") == UNSCHEDULABLE and each.get("status") == "True"]
    return next((str(each.get("message", "")) for each in waits), "")
