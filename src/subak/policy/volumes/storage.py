"""All storage objects of a cluster as they are now, by the questions that decisions ask of them.

    free(class, host)     volumes that nobody has claimed; those of one host apart, as local disks are many
    reserved(claim)       volumes whose `claimRef` names the claim
    capacities(class)     what drivers say is left of a class
    attachments(node)     volumes that are attached to a node, whoever needs them

`see` and `lose` say in `news` what may help a pod that waits: something about a claim, or about a class.  A binding
that goes its usual way helps nobody but the pods of its claim.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
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
from subak.snapshot.watcher import Change

ANYWHERE = ""
"""Stands for a host, where a volume is not bound to few."""

AVAILABLE = "Available"

T = TypeVar("T")


def of_claim(key: str) -> str:
    """The news that something about a claim, or its users, has changed."""
    return f"{Change.VOLUME_CHANGED}: claim {key}"


def of_class(name: str) -> str:
    """The news that a class may give volumes to more pods."""
    return f"{Change.VOLUME_CHANGED}: class {name}"


class Storage:
    """The storage objects.  `news` and `nodes`, on which something has changed, are for others to empty."""

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, Class] = {}
        self.limits: dict[str, dict[str, int]] = {}
        """For each node how many volumes of a driver it takes; drivers without a limit are left out."""
        self.drivers: dict[str, Driver] = {}
        self.news: dict[Hashable, None] = {}
        self.nodes: dict[str, None] = {}
        self._free: dict[str, dict[str, dict[str, Volume]]] = {}
        self._reserved: dict[str, dict[str, Volume]] = {}
        self._claims_of: dict[str, dict[str, None]] = {}
        self._capacities: dict[str, Capacity] = {}
        self._of_class: dict[str, dict[str, Capacity]] = {}
        self._attachments: dict[str, Attachment] = {}
        self._on_node: dict[str, dict[str, Attachment]] = {}

    def free(self, class_name: str, host: str) -> Iterable[Volume]:
        """Volumes of a class that nobody has claimed and that this host may reach."""
        hosts = self._free.get(class_name, {})
        yield from hosts.get(ANYWHERE, {}).values()
        if host:
            yield from hosts.get(host, {}).values()

    def any_free(self, class_name: str) -> bool:
        """Whether a class has volumes that nobody has claimed."""
        return bool(self._free.get(class_name))

    def reserved(self, claim: Claim) -> list[Volume]:
        """Volumes of the claim's class that are meant for it, by name."""
        found = self._reserved.get(claim.key, {})
        mine = [each for each in found.values() if each.spec.claim_ref and each.spec.claim_ref.means(claim)]
        return sorted((each for each in mine if each.class_name == claim.class_name), key=lambda each: each.name)

    def claims_of(self, volume: str) -> list[str]:
        """The keys of the claims that name a volume."""
        return list(self._claims_of.get(volume, ()))

    def capacities(self, class_name: str) -> Iterable[Capacity]:
        """What is left of a class."""
        return self._of_class.get(class_name, {}).values()

    def attachments(self, node: str) -> Iterable[Attachment]:
        """What is attached to a node."""
        return self._on_node.get(node, {}).values()

    def see(self, object: Stored) -> None:
        """Take in an object that was added or has changed."""
        match object:
            case Claim():
                self._replace_claim(self.claims.get(object.key), object)
            case Volume():
                self._replace_volume(self.volumes.get(object.name), object)
            case Class():
                self.classes[object.name] = object
                self.news[of_class(object.name)] = None
            case CsiNode():
                self.limits[object.name] = object.limits
                self.nodes[object.name] = None
            case Driver():
                self.drivers[object.name] = object
                self.news[Change.VOLUME_CHANGED] = None
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
                self.nodes[object.name] = None  # no limits any more
            case Driver():
                self.drivers.pop(object.name, None)
                self.news[Change.VOLUME_CHANGED] = None  # its capacity is not checked any more
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
            self.news[of_claim(new.key)] = None

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
            self._reserved.setdefault(_claimed_by(new), {})[new.name] = new
            self.news[of_claim(_claimed_by(new))] = None
            return
        for host in hosts(new.terms):
            self._free.setdefault(new.class_name, {}).setdefault(host, {})[new.name] = new
        if new.status.phase == AVAILABLE:
            self.news[of_class(new.class_name)] = None

    def _replace_capacity(self, old: Capacity | None, new: Capacity | None) -> None:
        if old is not None:
            del self._capacities[old.key]
            _take_out(self._of_class, old.storage_class_name, old.key)
        if new is not None:
            self._capacities[new.key] = new
            self._of_class.setdefault(new.storage_class_name, {})[new.key] = new
            if old is None or new.largest > old.largest:
                self.news[of_class(new.storage_class_name)] = None

    def _replace_attachment(self, old: Attachment | None, new: Attachment | None) -> None:
        if old is not None:
            del self._attachments[old.name]
            _take_out(self._on_node, old.spec.node_name, old.name)
            self.nodes[old.spec.node_name] = None
        if new is not None:
            self._attachments[new.name] = new
            self._on_node.setdefault(new.spec.node_name, {})[new.name] = new


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
