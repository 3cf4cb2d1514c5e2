"""What the agent says of its node's cards, and which writes make the Node object say it.

    Machine, what is held ── make ──> Advertisement ── changes ──> patches of metadata and status, if anything differs

Kubelet sets allocatable to capacity, and a kubelet that starts again admits running pods anew against it.  So both are
always equal; a broken card is in neither, except for what pods still hold of it.  An amount is removed, never set to 0:
kubelet passes over a resource that is missing, but fails the pods that hold one of which there is 0.

What we wrote is listed in an annotation of the node.  So we know after a restart what is ours to change or to remove,
and what another agent says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from subak.dialects import mark
from subak.dialects.agent import REQUESTING
from subak.model import manifest
from subak.model.device import Device
from subak.model.placement import Charge
from subak.node.machine import Machine
from tinykube.quantity import Quantity, QuantityError

WRITTEN = "subak.io/advertised"
"""Annotation of the node: the keys of the annotations, labels and amounts that the agent wrote."""


class Written(msgspec.Struct, frozen=True):
    """Keys under which the agent wrote."""

    annotations: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()

    def __or__(self, other: Written) -> Written:
        return Written(self.annotations | other.annotations, self.labels | other.labels, self.amounts | other.amounts)


@dataclass(frozen=True, slots=True)
class Advertisement:
    """What the node is to say of its cards; nothing, if the agent leaves.

    `handshakes` are annotations in which a vendor's scheduler asks whether the agent lives.
    """

    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    amounts: Mapping[str, str] = field(default_factory=dict)
    device: Mapping[str, Any] | None = None
    handshakes: tuple[str, ...] = ()


NOTHING = Advertisement()


@dataclass(frozen=True, slots=True)
class Changes:
    """Merge patches for the metadata and for the status of the Node; empty if it says what it is to say.

    `ours` is what belongs to us once they are written.
    """

    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None]
    amounts: Mapping[str, str | None]
    ours: Written

    def __bool__(self) -> bool:
        return bool(self.annotations or self.labels or self.amounts)


def make(
    machine: Machine, held: Mapping[str, Charge], asked: Mapping[str, int], way: str, free: Mapping[str, str]
) -> Advertisement:
    """What a machine's node is to say.

    `held` is what pods hold of each card, by its id, and `asked` what these pods ask for of each resource: kubelet must
    find that much, even of cards that are gone.  `way` is how containers get their cards, empty while they cannot.
    `free` are the annotations that tell which cards are free.
    """
    if not machine.devices:
        return NOTHING
    said = machine.publish()
    sums = replace(machine, devices=tuple(_left(machine.devices, held))).publish().capacity
    amounts = {
        name: _most(text, asked.get(name, 0))
        for name, text in sums.items()
        if name not in machine.resources and (asked.get(name) or not _same(text, "0"))
    }
    return Advertisement(
        annotations={**said.annotations, **free, **({mark.MARK: way} if way else {})},
        # A label without a domain is the administrator's.  HAMi's `gpu: on` would bring HAMi's own agent here.
        labels={key: text for key, text in said.labels.items() if "/" in key},
        amounts=amounts,
        device=None if said.device is None else _marked(said.device, way),
        handshakes=tuple(filter(None, (each.agent.handshake or each.agent.asked for each in machine.speaks))),
    )


def _left(devices: Iterable[Device], held: Mapping[str, Charge]) -> Iterable[Device]:
    """The cards that count: healthy ones, and of broken ones what is held."""
    for each in devices:
        charge = held.get(each.id)
        if each.healthy:
            yield each
        elif charge is not None:
            yield msgspec.structs.replace(
                each,
                healthy=True,
                memory_bytes=charge.memory_bytes,
                cores=charge.cores,
                slots=charge.slots,
                extras=tuple(charge.extras.items()),
            )


def _marked(device: Mapping[str, Any], way: str) -> Mapping[str, Any]:
    """A Device object by which its writer can be known."""
    metadata = device["metadata"]
    annotations = {**metadata.get("annotations", {}), mark.MARK: way or mark.NRI}
    return {**device, "metadata": {**metadata, "annotations": annotations}}


def written(node: manifest.Node) -> Written:
    """What the agent wrote to a node, by the node's own list; nothing if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(node.annotations.get(WRITTEN, "{}"), type=Written)
    except (msgspec.MsgspecError, RecursionError):
        return Written()


def changes(node: manifest.Node, wanted: Advertisement, ours: Written, answer: str) -> Changes:
    """What has to be written so that the node says what is wanted, and nothing of ours that is not wanted any more.

    `ours` are the keys that we wrote.  `answer` is what a scheduler is told that asks whether we live.
    """
    annotations: dict[str, str | None] = dict(wanted.annotations)
    for key in wanted.handshakes:
        asked = REQUESTING in node.annotations.get(key, "")
        if asked or key in ours.annotations:
            annotations[key] = answer if asked else node.annotations.get(key)
    # What an administrator has labelled stays, whatever we think of it.
    labels = {key: text for key, text in wanted.labels.items() if key in ours.labels or key not in node.labels}
    present = ours.amounts & (node.status.capacity or {}).keys()
    new = Written(frozenset(annotations), frozenset(labels), frozenset(wanted.amounts) | present)
    if new != Written():
        annotations[WRITTEN] = msgspec.json.encode(new, order="sorted").decode()
    return Changes(
        annotations=_difference(node.annotations, annotations, {*ours.annotations, WRITTEN}),
        labels=_difference(node.labels, labels, ours.labels),
        amounts=_amounts(node, wanted.amounts, ours.amounts),
        ours=new,
    )


def _difference(has: Mapping[str, str], wanted: Mapping[str, str | None], ours: Iterable[str]) -> dict[str, str | None]:
    news = {key: text for key, text in wanted.items() if has.get(key) != text}
    return news | {key: None for key in sorted(ours) if key in has and key not in wanted}


def _amounts(node: manifest.Node, wanted: Mapping[str, str], ours: Iterable[str]) -> dict[str, str | None]:
    capacity, allocatable = node.status.capacity or {}, node.status.allocatable or {}
    news: dict[str, str | None] = {
        name: text
        for name, text in wanted.items()
        if not (_same(capacity.get(name), text) and _same(allocatable.get(name), text))
    }
    gone = sorted(name for name in ours if name not in wanted and (name in capacity or name in allocatable))
    return news | dict.fromkeys(gone)


def _same(one: manifest.Amount | None, other: str) -> bool:
    try:
        return one is not None and Quantity.parse(one) == Quantity.parse(other)
    except QuantityError:
        return False


def _most(text: str, least: int) -> str:
    return text if Quantity.parse(text).integer() >= least else str(least)
