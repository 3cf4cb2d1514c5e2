"""Speaks all dialects at once: all that other rooms need to know of them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

import msgspec

from subak.dialects import (
    MOST_CARDS,
    NOTHING_SEEN,
    Ask,
    Death,
    Dialect,
    Injection,
    Patch,
    downward,
    hami,
    kubernetes,
    mark,
    volcano_vgpu,
)
from subak.dialects.config import Config
from subak.dialects.koordinator import Koordinator, owns_whole_cards
from subak.dialects.koordinator_names import canonical, kind
from subak.dialects.loopholes import DISABLE_CONTROL, check_loopholes
from subak.dialects.metax_sgpu import MetaxSgpu
from subak.dialects.nvidia import Nvidia
from subak.dialects.registry import dialects
from subak.dialects.stock import one_stock
from subak.model import manifest, variables
from subak.model.device import GPU, MIB, MOST_AMOUNT, MOST_CARD_BYTES
from subak.model.node import Node
from subak.model.placement import Grant, Placement, uncut
from subak.model.reason import Refusal
from subak.model.request import BINPACK, Request
from tinykube.quantity import Quantity, QuantityError

MOST_SHAPES = 4_096
LONGEST_LABEL = 63
"""What the API server takes as the value of a label; names of nodes may be longer."""

CHOSEN = (hami.NODE, volcano_vgpu.NODE)
"""Annotations that name a node before the pod is bound to it."""

K = TypeVar("K")
V = TypeVar("V")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Interpreter:
    """All dialects under one configuration."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.dialects = dialects(self.config)
        self.by_name = {dialect.name: dialect for dialect in self.dialects}
        self.resources = frozenset().union(*(dialect.resources for dialect in self.dialects))
        self.quota_units = {name: unit for dialect in self.dialects for name, unit in dialect.quota_units.items()}
        self.measures = _first(
            (name, (dialect.families, measures))
            for dialect in self.dialects
            for name, measures in dialect.measures.items()
        )
        self._shapes: dict[Request, Request] = {}
        self._understood: dict[bytes, Request] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._domains = {each.name: {_domain(name) for name in each.resources} for each in self.dialects}
        self.owned = frozenset({f"{variables.STEM}*"}).union(*(dialect.owned for dialect in self.dialects))
        self._recorder = {key: number for number, each in enumerate(self.dialects) for key in each.recorded}
        self.recorded = frozenset(self._recorder)
        self._written_labels = frozenset(each.agent.label for each in self.dialects) - {""}
        self._owned_stems = tuple(sorted(key.removesuffix("*") for key in self.owned if key.endswith("*")))

    def speaking(self, pod: manifest.Pod) -> list[Dialect]:
        """The dialects in which the pod asks."""
        mentioned = {_domain(name) for name in pod.resource_names()}
        names = {
            dialect.name: dialect
            for dialect in self.dialects
            if not mentioned.isdisjoint(self._domains[dialect.name]) and dialect.speaks(pod)
        }
        if Koordinator.name in names:
            # Koordinator's users name the vendor's own resource beside Koordinator's, for the kubelet's sake only.
            sgpu = names.get(MetaxSgpu.name)
            if isinstance(sgpu, MetaxSgpu) and _stands_beside(pod, sgpu):
                del names[MetaxSgpu.name]
            if owns_whole_cards(pod):
                names.pop(Nvidia.name, None)
        return list(names.values())

    def describing(self, family: str, model: str, mode: str) -> tuple[Dialect, ...]:
        """The dialects whose agents describe such cards."""
        return tuple(each for each in self.dialects if each.agent.describes(family, model, mode))

    def owned_among(self, annotations: Mapping[str, str]) -> dict[str, str]:
        """Those of a pod's annotations that only the scheduler and the agents may write."""
        owned, stems = self.owned, self._owned_stems
        return {key: text for key, text in annotations.items() if key in owned or key.startswith(stems)}

    def admit(self, pod: manifest.Pod, allowed: Container[str] = (DISABLE_CONTROL,)) -> manifest.Pod:
        """The pod with all defaults filled in.  Raises Refusal if it cannot mean anything.

        `allowed` are the loopholes that it may use.  On one machine that is HAMi's switch, which its users know.
        """
        self._check(pod)
        speaking = self.speaking(pod)
        _check_contradictions(pod, speaking)
        for dialect in speaking:
            pod = apply(pod, dialect.admit(pod))
        check_loopholes(pod, self.request(pod).claims, allowed)
        return pod

    def _check(self, pod: manifest.Pod) -> None:
        if not pod.name:
            raise Refusal("metadata.name", "", "the pod has no name: give metadata.name or metadata.generateName")
        _check_names(pod)
        if not pod.spec.containers:
            raise Refusal("spec.containers", "", "the pod has no containers")
        if pod.spec.node_name:
            raise Refusal("spec.nodeName", pod.spec.node_name, "the pod has a node already: leave spec.nodeName empty")
        for key, text in sorted(self.owned_among(pod.annotations).items()):
            raise Refusal(
                f"metadata.annotations[{key}]",
                text,
                f"{key} records an allocation, which only the scheduler may write: remove it from the pod",
            )
        for container, field in zip(pod.containers, pod.fields, strict=True):
            self._check_resources(container, field)

    def _check_resources(self, container: manifest.Container, field: str) -> None:
        """Kubernetes demands equal requests and limits of extended resources."""
        resources = container.resources
        if resources is None or not resources.limits or not resources.requests:
            return
        for name in sorted(self.resources & resources.limits.keys() & resources.requests.keys()):
            limit, request = resources.limits[name], resources.requests[name]
            try:
                equal = Quantity.parse(limit) == Quantity.parse(request)
            except QuantityError:
                continue  # the dialect says better what is wrong with it
            if not equal:
                raise Refusal(
                    f"{field}.resources.requests[{name}]",
                    request,
                    f"{name} requests {request} but its limit is {limit}: they must be equal",
                )

    def request(self, pod: manifest.Pod) -> Request:
        """What an admitted pod asks for; a pod without cards asks for a node only."""
        # Pods come in few shapes.  What a pod says is looked up whole, since to understand it takes ten times as long;
        # and equal requests become one object, so that later look-ups by shape are by identity.
        try:
            said = self._said(pod)
        except OverflowError:  # a number beyond 64 bits: nothing to remember
            return self._understand(pod)
        known = self._understood.get(said)
        if known is None:
            request = self._understand(pod)
            if len(self._understood) >= MOST_SHAPES:
                self._understood.clear()
                self._shapes.clear()
            known = self._understood[said] = self._shapes.setdefault(request, request)
        return known

    def _said(self, pod: manifest.Pod) -> bytes:
        """All that dialects and Kubernetes' own rules read of a pod; its volumes are none of it."""
        spec = pod.spec
        if spec.node_name or spec.volumes:
            spec = msgspec.structs.replace(spec, node_name="", volumes=None)
        owned, stems = self.owned, self._owned_stems
        annotations = {
            key: "" if key in owned or key.startswith(stems) else text for key, text in pod.annotations.items()
        }
        return self._encoder.encode((spec, annotations, self._own_labels(pod)))

    def _understand(self, pod: manifest.Pod) -> Request:
        asks = [dialect.ask(pod) for dialect in self.speaking(pod)]
        for ask in asks:
            _check_amounts(pod, ask)
        return Request(
            claims=tuple(claim for ask in asks for claim in ask.claims),
            needs=kubernetes.needs(pod, self.resources),
            node_policy=asks[0].node_policy if asks else BINPACK,
        )

    def node(
        self, node: manifest.Node, device: manifest.Device | None = None, now: float | None = None
    ) -> tuple[Node, list[str]]:
        """The node with its one stock of cards, and what could not be read or is contradictory.  Never raises.

        Whether an agent that was asked still lives depends on the time, `now` in seconds since 1970: without it such
        agents live.  `Node.doubtful_until` says when to look again.
        """
        seen = [(dialect.name, dialect.sight(node, device)) for dialect in self.dialects]
        sights = {name: sight for name, sight in seen if sight is not NOTHING_SEEN}
        devices, contradictions = one_stock(node.name, sights.values())
        allocatable, unreadable = kubernetes.allocatable(node, self.resources)
        way = mark.way(node)
        if way != mark.PLUGIN:
            allocatable[variables.SLOT] = MOST_AMOUNT  # kubelet ignores it there
        deaths = {name: sight.death for name, sight in sights.items() if sight.death is not None}
        dead = {name: death.detail for name, death in deaths.items() if _proven(death, now)}
        digest = Node(
            name=node.name,
            devices=devices,
            offers=frozenset(name for name, sight in sights.items() if sight.offered),
            allocatable=allocatable,
            labels=node.labels,
            taints=tuple(node.spec.taints or ()),
            ready=kubernetes.ready(node),
            unschedulable=node.spec.unschedulable,
            tables={name: table for sight in sights.values() for name, table in sight.tables.items()},
            dead=dead,
            doubtful_until=min(
                (each.after for name, each in deaths.items() if each.after and name not in dead), default=None
            ),
            way=way,
        )
        warnings = [warning for sight in sights.values() for warning in sight.warnings]
        warnings += [f"node {node.name}: {name}: {detail}; no new pods" for name, detail in dead.items()]
        return digest, warnings + contradictions + unreadable

    def annotations(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """All annotations that record the placement, and those to which variables of the pod refer."""
        written: dict[str, str] = {}
        for name in dict.fromkeys(grant.dialect for grant in placement.grants):
            written |= self.by_name[name].write(pod, placement, node, now_ns)
        if downward.refers(pod):
            written |= downward.values(pod, self.injections(pod, placement, node))
        return written

    def labels(self, placement: Placement) -> dict[str, str]:
        """The labels that go with them, for the agents' monitors.  A label holds no longer name of a node."""
        names = {self.by_name[grant.dialect].agent.label for grant in placement.grants} - {""}
        return dict.fromkeys(sorted(names), placement.node) if len(placement.node) <= LONGEST_LABEL else {}

    def same_labels(self, one: manifest.Pod, other: manifest.Pod) -> bool:
        """Whether two versions of a pod have the same labels, but for those that a Binding writes."""
        return one.metadata.labels == other.metadata.labels or self._own_labels(one) == self._own_labels(other)

    def _own_labels(self, pod: manifest.Pod) -> Mapping[str, str]:
        """The labels of a pod but for those that a Binding writes."""
        labels = pod.labels
        if self._written_labels.isdisjoint(labels):
            return labels
        return {key: text for key, text in labels.items() if key not in self._written_labels}

    def locks(self, placement: Placement, node: Node | None) -> tuple[str, ...]:
        """The node locks that the vendors' agents need for the cards of a placement, in order."""
        found: set[str] = set()
        for grant in placement.grants:
            agent = self.by_name[grant.dialect].agent
            found.add(agent.lock)
            if agent.locks and node is not None:
                devices = (node.device(share.id) for share in grant.shares)
                found |= {agent.locks.get(device.family, "") for device in devices if device is not None}
        return tuple(sorted(found - {""}))

    def placement(self, pod: manifest.Pod, node: Node) -> Placement:
        """What a bound pod holds, by its annotations.  Raises ValueError if they are malformed."""
        grants, problems = self.grants(pod, node)
        if problems:
            raise ValueError("; ".join(problems))
        return Placement(node.name, grants)

    def grants(self, pod: manifest.Pod, node: Node) -> tuple[tuple[Grant, ...], list[str]]:
        """What the annotations of a bound pod record, and why some of them cannot be read."""
        grants: list[Grant] = []
        problems: list[str] = []
        recorder = self._recorder
        for dialect in sorted({recorder[key] for key in pod.annotations if key in recorder}):
            try:
                read = self.dialects[dialect].read(pod, node)
                _check_shares(read)
                grants += [_apart(grant, node) for grant in read] if node.cut else read
            except ValueError as error:
                problems.append(str(error))
        return tuple(grants), problems

    def record(self, pod: manifest.Pod) -> dict[str, str]:
        """The annotations of a pod that record its allocation."""
        recorded = self.recorded
        return {key: text for key, text in pod.annotations.items() if key in recorded}

    def chosen(self, pod: manifest.Pod) -> str:
        """The node that a pod's own scheduler has recorded, as HAMi's does before it binds; empty if none.

        A node without cards does not count: such a record is not complete.
        """
        annotations = pod.annotations
        if self.recorded.isdisjoint(annotations):
            return ""
        return next((annotations[key] for key in CHOSEN if key in annotations), "")

    def injections(self, pod: manifest.Pod, placement: Placement, node: Node) -> list[Injection]:
        """What each container gets, in the order of `Pod.containers`."""
        result = [Injection() for _ in pod.containers]
        for grant in placement.grants:
            for position in grant.containers:
                result[position].add(self.by_name[grant.dialect].inject(pod, grant, position, node))
        return result

    def variables(self, pod: manifest.Pod) -> list[dict[str, str]]:
        """The variables that each container of an admitted pod would get, of cards that are made up."""
        placement, node = downward.imagined(self.request(pod).claims)
        return [each.env for each in self.injections(pod, placement, node)]


def _check_shares(grants: Iterable[Grant]) -> None:
    for grant in grants:
        for share in grant.shares:
            if not (0 <= share.memory_bytes <= MOST_AMOUNT and 0 <= share.cores <= MOST_AMOUNT):
                raise ValueError(f"a share of {share.memory_bytes:,} bytes and {share.cores:,} cores cannot be true")


def _apart(grant: Grant, node: Node) -> Grant:
    """The grant with every place of a card in MIG mode whose instance the record does not tell."""
    shares = tuple(
        share if share.mig else msgspec.structs.replace(share, mig=uncut(node.device(share.id)))
        for share in grant.shares
    )
    return msgspec.structs.replace(grant, shares=shares)


def _first(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """Of several values of one key the first."""
    found: dict[K, V] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _proven(death: Death, now: float | None) -> bool:
    return death.after is None or (now is not None and now > death.after)


def _domain(resource: str) -> str:
    return resource.partition("/")[0]


def _stands_beside(pod: manifest.Pod, sgpu: MetaxSgpu) -> bool:
    """Whether MetaX's count is all that the pod says of sGPUs, and Koordinator's amounts are always beside it."""
    for container in pod.containers:
        asked = container.requests
        mine = sgpu.resources & asked.keys()
        amounts = (canonical(name) for name in asked)
        if mine and (mine != {sgpu.names.resource_v_count_name} or GPU not in (kind(name) for name in amounts if name)):
            return False
    return True


def apply(pod: manifest.Pod, patch: Patch) -> manifest.Pod:
    """The pod with the patch filled in."""
    containers = [_patched(each, patch, position) for position, each in enumerate(pod.containers)]
    early = len(pod.spec.init_containers or ())
    spec = msgspec.structs.replace(pod.spec, init_containers=containers[:early] or None, containers=containers[early:])
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **patch.annotations})
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def _patched(container: manifest.Container, patch: Patch, position: int) -> manifest.Container:
    limits, env = patch.limits.get(position, {}), patch.env.get(position)
    removed = patch.remove.get(position, ())
    if limits or removed:
        old = container.resources or manifest.Resources()
        limited, requested = (
            {name: amount for name, amount in (amounts or {}).items() if name not in removed}
            for amounts in (old.limits, old.requests)
        )
        requests = {**requested, **limits} if old.requests else None
        resources = manifest.Resources(limits={**limited, **limits}, requests=requests)
        container = msgspec.structs.replace(container, resources=resources)
    if env:
        added = [manifest.EnvVar(name=name, value=value) for name, value in env.items()]
        container = msgspec.structs.replace(container, env=[*(container.env or ()), *added])
    return container


def _check_names(pod: manifest.Pod) -> None:
    """Refuse names that the API server refuses; they also become parts of paths on the node."""
    name = pod.metadata.name or f"{pod.metadata.generate_name}x"
    if len(name) > 253 or not all(_LABEL.fullmatch(part) for part in name.split(".")):
        field = "metadata.name" if pod.metadata.name else "metadata.generateName"
        raise _bad_name(field, pod.name, "digits, '-' and '.', at most 253")
    labels = {"metadata.namespace": pod.namespace}
    labels |= {f"{field}.name": each.name for each, field in zip(pod.containers, pod.fields, strict=True)}
    for field, label in labels.items():
        if not _LABEL.fullmatch(label):
            raise _bad_name(field, label, "digits and '-', at most 63")


def _bad_name(field: str, name: str, allowed: str) -> Refusal:
    return Refusal(field, name, f"{name!r} is no valid name: use lower-case letters, {allowed}")


def _check_amounts(pod: manifest.Pod, ask: Ask) -> None:
    """Refuse amounts that no card or node could have."""
    for claim in ask.claims:
        if claim.count > MOST_CARDS:
            problem = f"{claim.count:,} cards; no node has more than {MOST_CARDS:,}: give their number"
        elif claim.memory_bytes > MOST_CARD_BYTES:
            problem = f"{claim.memory_bytes // MIB:,} MiB of a card; none has more than {MOST_CARD_BYTES // MIB:,}"
        elif claim.cores > MOST_AMOUNT:
            problem = "more cores than any card can have"
        else:
            continue
        container = pod.containers[claim.containers[0]]
        raise Refusal(
            f"{pod.fields[claim.containers[0]]}.resources",
            ", ".join(f"{name}={amount}" for name, amount in container.requests.items()),
            f"container {container.name} asks for {problem}",
        )


def _check_contradictions(pod: manifest.Pod, speaking: Sequence[Dialect]) -> None:
    """The same cards cannot be asked for in two languages."""
    for one, other in combinations(speaking, 2):
        if not _families(one, pod) & _families(other, pod):
            continue
        related = one.name.startswith("hami-") and other.name.startswith("hami-")
        for container, field in zip(pod.containers, pod.fields, strict=True):
            mine = list(_mentioned(container, one))
            theirs = list(_mentioned(container, other))
            if (mine and theirs) or (not related and (mine or theirs)):
                names = ", ".join(dict.fromkeys(mine + theirs))  # nvidia.com/gpu may be both
                raise Refusal(
                    f"{field}.resources.limits",
                    names,
                    f"the pod asks for the same cards as {one.name} and as {other.name} ({names}): keep to one of them",
                )


def _families(dialect: Dialect, pod: manifest.Pod) -> frozenset[str]:
    """The vendors whose cards the pod asks for in a dialect; all of the dialect's if the request cannot be read."""
    try:
        asked = frozenset[str]().union(*(claim.families for claim in dialect.ask(pod).claims))
    except Refusal:
        return dialect.families
    return asked or dialect.families  # as of a pod whose count is still to be filled in


def _mentioned(container: manifest.Container, dialect: Dialect) -> Iterator[str]:
    return (name for name in container.requests if name in dialect.resources)
