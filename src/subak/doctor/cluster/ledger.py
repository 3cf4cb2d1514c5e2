"""The ledger: whether every record can be read, no card carries too much, and no pod is stuck.

It is read as `subak top` and `subak why` read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from subak.doctor import Finding, failed, listed, ok, warning
from subak.doctor.cluster import Cluster, Ledger
from subak.model import manifest
from subak.model.card import CardState
from subak.model.device import MIB
from subak.model.node import Node
from subak.policy.held import held

PATIENCE = 300.0
"""Seconds after which a pod that has not started, or is still ending, counts as stuck."""
UNEXPECTED = "UnexpectedAdmissionError"
"""Kubelet's reason for a pod that its device plugins did not serve; it stays failed for good."""
REPAIR = "the controller evicts what came last within seconds: see whether one leads"


async def readable(cluster: Cluster) -> Sequence[Finding]:
    """Whether all nodes and records can be read."""
    warnings = (await cluster.ledger()).cluster.warnings
    if warnings:
        remedy = (
            "a pod whose record cannot be read counts on every card that it may hold: delete it, and it is placed anew"
        )
        return [warning(each, remedy if each.startswith("pod ") else "see what wrote it") for each in warnings[:10]]
    return [ok("all nodes and records can be read")]


async def overcommitted(cluster: Cluster) -> Sequence[Finding]:
    """Whether a card carries more than it has."""
    ledger = await cluster.ledger()
    snapshot = ledger.cluster.snapshot
    count, found = 0, []
    for node in snapshot:
        for card in snapshot.cards(node.name):
            count += 1
            excess = ", ".join(_excess(card))
            if excess and all(_certain(ledger, key, node) for key in card.tenants):
                holders = listed(sorted(card.tenants), 3)
                found.append(failed(f"card {card.device.id} of {node.name} carries {excess}: {holders}", REPAIR))
    return found or [ok(f"none of {count} cards")]


def _certain(ledger: Ledger, key: str, node: Node) -> bool:
    """Whether the record of a pod names its cards; without one it counts on many, and proves nothing."""
    pod = ledger.pods.get(key)
    return pod is not None and held(ledger.cluster.interpreter, pod, node).known


def _excess(card: CardState) -> Iterator[str]:
    if card.memory_free < 0:
        yield f"{card.memory_used // MIB:,} of {card.device.memory_bytes // MIB:,} MiB"
    if card.cores_free < 0:
        yield f"{card.cores_used} of {card.device.cores} cores"
    if card.slots_free < 0:
        yield f"{card.slots_used} of {card.device.slots} slots"


async def stuck(cluster: Cluster) -> Sequence[Finding]:
    """Which pods with cards have a node and do not start, do not end, or were refused by kubelet."""
    ledger, now = await cluster.ledger(), await cluster.now()
    pods = [pod for pod in ledger.pods.values() if _asks(ledger, pod)]
    starting = [pod.key for pod in pods if _starting(pod, now)]
    ending = [pod.key for pod in pods if now - _time(pod.metadata.deletion_timestamp, now) > PATIENCE]
    refused = [pod.key for pod in await cluster.pods() if pod.status.reason == UNEXPECTED]
    found: list[Finding] = []
    if starting:
        seen = f"bound more than {PATIENCE / 60:.0f} minutes ago and not started: {listed(starting)}"
        found.append(warning(seen, f"kubectl describe pod -n {starting[0].replace('/', ' ')}: see its events"))
    if ending:
        seen = f"deleted more than {PATIENCE / 60:.0f} minutes ago and still there: {listed(ending)}"
        found.append(warning(seen, "see whether kubelet runs on their nodes, and which finalizers they have"))
    if refused:
        seen = f"refused by kubelet ({UNEXPECTED}): {listed(refused)}"
        found.append(warning(seen, "a device plugin was away or guessed wrongly: delete them, and see its log"))
    waiting = [pod.key for pod in pods if not pod.spec.node_name and not pod.finished]
    plain = f"{len(waiting)} of {len(pods)} pods with cards wait for a place (subak why POD)"
    return found or [ok(plain if waiting else f"none of {len(pods)} pods with cards")]


def _starting(pod: manifest.Pod, now: float) -> bool:
    bound = pod.condition("PodScheduled")
    since = _time((bound and bound.since) or pod.metadata.creation_timestamp, now)
    return bool(pod.spec.node_name) and not pod.started and not pod.finished and now - since > PATIENCE


def _time(text: str | None, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return otherwise


def _asks(ledger: Ledger, pod: manifest.Pod) -> bool:
    return bool(ledger.cluster.interpreter.speaking(pod))
