"""The arbiter of a node: whether a pod may have the cards that its annotations record, and what it then gets.

    bound pod ── its annotations ──> placement ── the node's own ledger ──> injections for its containers
                                                       │ no room, no record, unknown cards
                                                       └──> Refusal: the pod is not started, or not yet (NotReady)

It has the last word, whatever any scheduler wrote.  It knows pods by their UID, so that nothing has to be guessed from
sizes and times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from subak.dialects import Dialect, Injection, isolation
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Charge, Grant, Placement, Share
from subak.model.reason import NotReady, Refusal
from subak.node import counters, usage
from subak.node.entitlement import entitled
from subak.node.host import Host
from subak.node.ledger import Ledger, Overcommitted
from subak.node.machine import Machine
from subak.node.tenant import Tenant, tenants
from subak.node.turns import NoTurns
from subak.node.usage import Use
from subak.policy.held import held

log = logging.getLogger(__name__)


class Arbiter:
    """The arbiter of one machine.  Without a `host` nothing is written to disk, for containers without processes."""

    def __init__(self, machine: Machine, interpreter: Interpreter, host: Host | None = None) -> None:
        self.machine = machine
        self._interpreter = interpreter
        self._host = host
        self._node = _truth(machine, interpreter)
        self._ledger = Ledger(self._node)
        self._spoken = {dialect.name: dialect for dialect in machine.speaks}
        self._holders: dict[str, manifest.Pod] = {}
        self.alive: Callable[[str], bool] = lambda uid: False
        """Whether containers of the pod with this UID still run: then it keeps its cards, though its object is gone."""

    def change(self, machine: Machine) -> None:
        """The machine has other cards now, or other health.  What pods hold, they hold."""
        self.machine = machine
        self._node = self._ledger.node = _truth(machine, self._interpreter)
        self._spoken = {dialect.name: dialect for dialect in machine.speaks}

    def restore(self, pod: manifest.Pod) -> None:
        """Book what a pod holds that has been running since before a restart.

        One whose record cannot be read, or gives it what it may not have, counts on every card that it may hold.
        """
        holding = held(self._interpreter, pod, self._node)
        try:
            placement = self._recorded(pod)
        except Refusal as refusal:
            log.warning("pod %s on node %s: %s", pod.key, self._node.name, refusal.message)
            placement = Placement(self._node.name)
        if placement.grants or holding.placement.grants:
            self._ledger.restore(pod.metadata.uid, pod.key, placement, holding.placement)
            self._holders[pod.metadata.uid] = pod

    def restore_cards(self, pod: manifest.Pod, ids: Iterable[str]) -> None:
        """Book these cards for a running pod of which only its record is known: what that says, or the whole card."""
        recorded, problems = self._interpreter.grants(pod, self._node)
        grants = () if problems else recorded
        told = {share.id for grant in grants for share in grant.shares}
        cards = [card for id in ids if id not in told and (card := self._node.device(id)) is not None]
        shares = tuple(Share(each.id, each.index, each.memory_bytes, each.cores) for each in cards)
        whole = (Grant("", (), Role.APP, shares),) if shares else ()
        if grants or whole:
            held = Placement(self._node.name, (*grants, *whole))
            self._ledger.restore(pod.metadata.uid, pod.key, Placement(self._node.name), held)
            self._holders[pod.metadata.uid] = pod

    def admit(self, pod: manifest.Pod) -> list[Injection]:
        """What each container gets, in the order of `pod.containers`; from now on the pod holds its cards.

        The same again for a pod that holds them already.  Raises Refusal if the node cannot honour what the pod's
        annotations record, NotReady if it cannot at present; then the pod holds nothing.
        """
        known = self._ledger.holdings.get(pod.metadata.uid)
        if known is not None and known.placement.grants:
            return self._injections(pod, known.placement)
        if not self._interpreter.speaking(pod):
            return [Injection() for _ in pod.containers]
        placement = self._recorded(pod)
        self._take(pod, placement)
        try:
            injections = self._injections(pod, placement)
        except ValueError:
            if known is None:
                self._ledger.give_back(pod.metadata.uid)
                self._clear_away(pod)
            raise
        self._holders[pod.metadata.uid] = pod
        return injections

    def cards(self, pod: manifest.Pod, position: int) -> list[str]:
        """The ids of the cards that a container of a pod holds."""
        holding = self._ledger.holdings.get(pod.metadata.uid)
        grants = holding.placement.grants if holding is not None else ()
        return [share.id for grant in grants if position in grant.containers for share in grant.shares]

    def holds(self, pod: manifest.Pod) -> bool:
        """Whether the pod has been admitted with cards, and not released."""
        return pod.metadata.uid in self._ledger.holdings

    def holders(self) -> list[manifest.Pod]:
        """The pods that hold cards, as they were when they got them."""
        return list(self._holders.values())

    def starting(self, pod: manifest.Pod, position: int) -> None:
        """The container begins with clean books."""
        for tenant in self.tenants(pod):
            tenant.starting(position)

    def release(self, pod: manifest.Pod) -> bool:
        """The pod has ended; whether it gives anything back.  It does not while containers of it run."""
        if self.alive(pod.metadata.uid) or self._ledger.give_back(pod.metadata.uid) is None:
            return False
        self._holders.pop(pod.metadata.uid, None)
        self._clear_away(pod)
        return True

    def serving(self, pod: manifest.Pod) -> list[Dialect]:
        """The dialects of the node in which the pod holds its cards, or asks for them as long as it has none."""
        holding = self._ledger.holdings.get(pod.metadata.uid)
        if holding is not None:
            names = [grant.dialect for grant in holding.placement.grants]
        else:
            names = [dialect.name for dialect in self._interpreter.speaking(pod)]
        return [self._spoken[name] for name in dict.fromkeys(names) if name in self._spoken]

    def held(self) -> Mapping[str, Charge]:
        """What pods hold of each card, by its id."""
        return self._ledger.held()

    def free(self) -> list[Device]:
        """The machine's cards that nobody holds."""
        free = {each.index for each in self._ledger.free()}
        return [each for each in self.machine.devices if each.index in free]

    def tenants(self, pod: manifest.Pod) -> list[Tenant]:
        """The pod's tenants of the node's cards; none where it holds nothing, or nothing is written to disk."""
        holding = self._ledger.holdings.get(pod.metadata.uid)
        if holding is None or self._host is None:
            return []
        try:
            injections = self._interpreter.injections(pod, holding.placement, self._node)
        except ValueError:
            return []  # a card is gone
        return tenants(pod, holding.placement, injections, self._node, self._host)

    def use(self, pod: manifest.Pod) -> Mapping[str, Sequence[tuple[Device, Use]]]:
        """What the pod's containers use of their cards, by the container's name, as far as their regions say it."""
        found: dict[str, list[tuple[Device, Use]]] = {}
        for tenant in self.tenants(pod):
            for position, uses in usage.of_tenant(tenant, time.monotonic_ns()).items():
                cards = {held.device.id: held.device for held in tenant.cards}  # once, however many instances of it
                known = [(card, uses[id]) for id, card in cards.items() if id in uses]
                found.setdefault(tenant.containers[position], []).extend(known)
        return found

    def _clear_away(self, pod: manifest.Pod) -> None:
        if self._host is not None:
            self._host.remove(pod)

    def _injections(self, pod: manifest.Pod, placement: Placement) -> list[Injection]:
        """What the dialects give each container, made ready on this machine."""
        made = self._interpreter.injections(pod, placement, self._node)
        for position, injection in enumerate(made):
            injection.mounts += isolation.guard(pod, position, injection)
        if self._host is not None:
            _lay_out(self._host, pod, made)
        for grant in placement.grants:
            for position in grant.containers:
                if self.machine.real:
                    _show(made[position], grant, self.machine)
                made[position].bring(self.machine.driver, self.machine.driver_env)
        return made

    def _recorded(self, pod: manifest.Pod) -> Placement:
        """What the pod's annotations give it.  Raises Refusal unless that is all it asks for, in words spoken here."""
        node = self._node.name
        for other in (pod.spec.node_name, self._interpreter.chosen(pod)):
            if other not in ("", node):
                message = f"the record of its cards is of node {other}, this is node {node}: let Subak place the pod"
                raise Refusal("metadata.annotations", other, message, counters.BAD_RECORD)
        try:
            placement = self._interpreter.placement(pod, self._node)
        except Refusal:
            raise
        except ValueError as error:
            message = f"the record of its cards cannot be read: {error}"
            raise Refusal("metadata.annotations", "", message, counters.BAD_RECORD) from None
        served = {(grant.dialect, position) for grant in placement.grants for position in grant.containers}
        claims = self._interpreter.request(pod).claims
        for claim in claims:
            for position in claim.containers:
                if (claim.dialect, position) not in served:
                    container = pod.containers[position]
                    raise Refusal(
                        f"{pod.fields[position]}.resources",
                        ", ".join(f"{name}={amount}" for name, amount in container.requests.items()),
                        f"container {container.name} asks for cards ({claim.dialect}), but no annotation of the pod "
                        f"records any: whoever bound it to node {node} chose no card; let Subak place it",
                        counters.NO_RECORD,
                    )
        for dialect, position in sorted(served):
            if dialect not in self._spoken:
                message = f"node {node} has no plugin for {dialect}; it speaks {', '.join(sorted(self._spoken))}"
                raise Refusal(f"{pod.fields[position]}.resources", dialect, message, counters.NOT_SERVED)
        return entitled(pod, placement, claims, self._node)

    def _take(self, pod: manifest.Pod, placement: Placement) -> None:
        try:
            counted = held(self._interpreter, pod, self._node).placement
            self._ledger.take(pod.metadata.uid, pod.key, placement, counted)
        except Overcommitted as error:
            ids = [share.id for grant in placement.grants for share in grant.shares]
            cards = ", ".join(dict.fromkeys(ids))
            raise Refusal("metadata.annotations", cards, str(error), counters.OVERCOMMITTED) from None


def _truth(machine: Machine, interpreter: Interpreter) -> Node:
    """The node as schedulers see it, but with the health that the cards really have: some agents do not tell it."""
    node, _ = machine.digest(interpreter)
    health = {each.index: each.healthy for each in machine.devices}
    return replace(
        node, devices=tuple(msgspec.structs.replace(each, healthy=health[each.index]) for each in node.devices)
    )


def _lay_out(host: Host, pod: manifest.Pod, injections: Sequence[Injection]) -> None:
    """Give all mounts their sources on this machine.  Raises NotReady."""
    node = pod.spec.node_name
    try:
        for container, injection in zip(pod.containers, injections, strict=True):
            injection.mounts = [host.mount(each, pod, container) for each in injection.mounts]
    except NoTurns as error:
        raise NotReady("spec.nodeName", node, f"no limit would hold: {error}", counters.NOT_READY) from None
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        message = f"no limit would hold: what is mounted into its containers cannot be made ready: {what}"
        raise NotReady("spec.nodeName", node, message, counters.NOT_READY) from None


def _show(injection: Injection, grant: Grant, machine: Machine) -> None:
    """Let a container see real cards: CUDA finds them by UUID, and opens the driver's device nodes."""
    cards = [share.id for share in grant.shares]
    seen = filter(None, injection.env.get(isolation.CUDA_CARDS, "").split(","))
    env = isolation.shown(dict.fromkeys((*seen, *cards)))
    injection.add(Injection(env, devices=[path for id in cards for path in machine.device_files.get(id, ())]))
