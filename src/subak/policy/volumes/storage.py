"""All storage objects of a cluster as they are now, by the questions that decisions ask of them.

    free(class, host)     volumes that nobody has claimed; those of one host apart, as local disks are many
    reserved(claim)       volumes whose `claimRef` names the claim
    capacities(class)     what drivers say is left of a class
    attachments(node)     volumes that are attached to a node, whoever needs them

`see` and `lose` note what may help a pod that waits: something about a claim, or about a class.  A binding that goes
its usual way helps nobody but the pods of its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from subak.model.volume import (
    HOSTNAME,
    Attachment,
    Capacity,
    Claim,
    Class,
    CsiNode,
    Driver,
    Stored,
    Terms,
    Volume,
)
from subak.policy.volumes.supply import AVAILABLE, Supply
from subak.snapshot.watcher import Change

ANYWHERE = ""
"""Stands for a host, where a volume is not bound to few."""

T = TypeVar("T")


def of_claim(key: str) -> str:
    """The news that something about a claim, or its users, has changed."""
    return f"{Change.VOLUME_CHANGED}: claim {key}"


def of_class(name: str) -> str:
    """The news that a class may give volumes to more pods."""
    return f"{Change.VOLUME_CHANGED}: class {name}"


class Storage:
    """The storage objects.  `note` hears what may help pods that wait, and `changed` of nodes that may take more."""

    def __init__(self, note: Callable[[Hashable], None], changed: Callable[[str], None]) -> None:
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, Class] = {}
        self.limits: dict[str, dict[str, int]] = {}
        """For each node how many volumes of a driver it takes; drivers without a limit are left out."""
        self.drivers: dict[str, Driver] = {}
        self._note = note
        self._changed = changed
        self._free: dict[str, dict[str, dict[str, Supply]]] = {}
        self._reserved: dict[str, dict[str, Supply]] = {}
        self._claims_of: dict[str, dict[str, None]] = {}
        self._capacities: dict[str, Capacity] = {}
        self._of_class: dict[str, dict[str, Capacity]] = {}
        self._attachments: dict[str, Attachment] = {}
        self._on_node: dict[str, dict[str, Attachment]] = {}
        self._attached: dict[str, dict[str, Attachment]] = {}

    def free(self, class_name: str, host: str) -> list[Supply]:
        """Volumes of a class that nobody has claimed and that this host may reach."""
        hosts = self._free.get(class_name, {})
        return [*hosts.get(ANYWHERE, {}).values(), *(hosts.get(host, {}).values() if host else ())]

    def any_free(self, class_name: str) -> bool:
        """Whether a class has volumes that nobody has claimed."""
        return bool(self._free.get(class_name))

    def reserved(self, claim: Claim) -> list[Supply]:
        """Volumes of the claim's class that are meant for it, by name."""
        found = self._reserved.get(claim.key)
        return [found[name] for name in sorted(found) if _means(found[name].volume, claim)] if found else []

    def claims_of(self, volume: str) -> list[str]:
        """The keys of the claims that name a volume."""
        return list(self._claims_of.get(volume, ()))

    def capacities(self, class_name: str) -> Iterable[Capacity]:
        """What is left of a class."""
        return self._of_class.get(class_name, {}).values()

    def attachments(self, node: str) -> Iterable[Attachment]:
        """What is attached to a node."""
        return self._on_node.get(node, {}).values()

    def attachment(self, name: str) -> Attachment | None:
        """The attachment of this name."""
        return self._attachments.get(name)

    def attached(self, volume: str) -> list[str]:
        """The nodes to which a volume is attached."""
        return [each.spec.node_name for each in self._attached.get(volume, {}).values()]

    def see(self, object: Stored) -> None:
        """Take in an object that was added or has changed."""
        match object:
            case Claim():
                self._replace_claim(self.claims.get(object.key), object)
            case Volume():
                self._replace_volume(self.volumes.get(object.name), object)
            case Class():
                self.classes[object.name] = object
                self._note(of_class(object.name))
            case CsiNode():
                self.limits[object.name] = object.limits
                self._changed(object.name)
            case Driver():
                self.drivers[object.name] = object
                self._note(Change.VOLUME_CHANGED)
            case Capacity():
                self._replace_capacity(self._capacities.get(object.key), object)
            case Attachment():
                self._replace_attachment(self._attachments.get(object.name), object)

    def lose(self, object: Stored) -> None:
        """Remove an object."""
        match object:
            case Claim():
                self._replace_claim(self.claims.get(object.key), None)
            case Volume():
                self._replace_volume(self.volumes.get(object.name), None)
            case Class():
                self.classes.pop(object.name, None)
            case CsiNode():
                self.limits.pop(object.name, None)
                self._changed(object.name)  # no limits any more
            case Driver():
                self.drivers.pop(object.name, None)
                self._note(Change.VOLUME_CHANGED)  # its capacity is not checked any more
            case Capacity():
                self._replace_capacity(self._capacities.get(object.key), None)
            case Attachment():
                self._replace_attachment(self._attachments.get(object.name), None)

    def _replace_claim(self, old: Claim | None, new: Claim | None) -> None:
        if old is not None:
            del self.claims[old.key]
            _take_out(self._claims_of, old.spec.volume_name, old.key)
        if new is not None:
            self.claims[new.key] = new
            if new.spec.volume_name:
                self._claims_of.setdefault(new.spec.volume_name, {})[new.key] = None
            self._note(of_claim(new.key))

    def _replace_volume(self, old: Volume | None, new: Volume | None) -> None:
        if old is not None:
            del self.volumes[old.name]
            if old.spec.claim_ref is not None:
                _take_out(self._reserved, _claimed_by(old), old.name)
            else:
                for host in hosts(old.terms):
                    _take_out(self._free[old.class_name], host, old.name)
                if not self._free[old.class_name]:
                    del self._free[old.class_name]
        if new is None:
            return
        self.volumes[new.name] = new
        if new.spec.claim_ref is not None:
            self._reserved.setdefault(_claimed_by(new), {})[new.name] = Supply.of(new)
            self._note(of_claim(_claimed_by(new)))
            return
        for host in hosts(new.terms):
            self._free.setdefault(new.class_name, {}).setdefault(host, {})[new.name] = Supply.of(new)
        if new.status.phase == AVAILABLE:
            self._note(of_class(new.class_name))

    def _replace_capacity(self, old: Capacity | None, new: Capacity | None) -> None:
        if old is not None:
            del self._capacities[old.key]
            _take_out(self._of_class, old.storage_class_name, old.key)
        if new is not None:
            self._capacities[new.key] = new
            self._of_class.setdefault(new.storage_class_name, {})[new.key] = new
            if old is None or new.largest > old.largest:
                self._note(of_class(new.storage_class_name))

    def _replace_attachment(self, old: Attachment | None, new: Attachment | None) -> None:
        if old is not None:
            del self._attachments[old.name]
            _take_out(self._on_node, old.spec.node_name, old.name)
            _take_out(self._attached, old.spec.source.persistent_volume_name or "", old.name)
            self._changed(old.spec.node_name)
        if new is not None:
            self._attachments[new.name] = new
            self._on_node.setdefault(new.spec.node_name, {})[new.name] = new
            self._attached.setdefault(new.spec.source.persistent_volume_name or "", {})[new.name] = new


def hosts(terms: Terms | None) -> tuple[str, ...]:
    """The hosts that a volume is bound to by its node affinity; ANYWHERE if it says more than that."""
    if not terms:
        return (ANYWHERE,)
    found: dict[str, None] = {}
    for lines, _ in terms:
        named = next((line for line in lines if line.key == HOSTNAME and line.operator == "In"), None)
        if named is None:
            return (ANYWHERE,)
        found |= dict.fromkeys(named.values or ())
    return tuple(found) if found and "" not in found else (ANYWHERE,)


def _means(volume: Volume, claim: Claim) -> bool:
    reference = volume.spec.claim_ref
    return reference is not None and reference.means(claim) and volume.class_name == claim.class_name


def _claimed_by(volume: Volume) -> str:
    claim = volume.spec.claim_ref
    assert claim is not None, "only asked of volumes that are claimed"
    return f"{claim.namespace}/{claim.name}"


def _take_out(index: dict[str, dict[str, T]], name: str, key: str) -> None:
    found = index.get(name)
    if found is not None:
        found.pop(key, None)
        if not found:
            del index[name]
