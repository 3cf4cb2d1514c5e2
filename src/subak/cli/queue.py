"""Places the pods of `-f` files on one ledger, in the order of the files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from subak.cli.cluster import Cluster
from subak.cli.files import FileError, decode, documents, named
from subak.dialects import Injection
from subak.model import manifest
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.policy.decider import Exceeded


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod that was placed."""

    pod: manifest.Pod
    placement: Placement
    annotations: dict[str, str]
    injections: list[Injection]


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod that waits, and why."""

    pod: manifest.Pod
    message: str
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A pod whose request is impossible."""

    namespace: str
    name: str
    field: str
    value: str
    message: str


@dataclass(slots=True)
class Outcome:
    """The results for all pods."""

    placed: list[Placed] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 all placed, 1 some wait, 2 bad input."""
        if self.rejected or self.errors:
            return 2
        return 1 if self.pending else 0


def pods(paths: Iterable[str], outcome: Outcome, namespace: str = "") -> Iterable[manifest.Pod]:
    """The pods in the files, in this namespace if they name none; what is no pod, or malformed, goes to the outcome."""
    found = False
    for path in paths:
        for document in documents(path):
            if isinstance(document, FileError):
                outcome.errors.append(str(document))
            elif document.kind != "Pod":
                outcome.notes.append(f"{document.place}: {document.kind} skipped: only Pods are placed")
            else:
                found = True
                try:
                    yield _in(namespace, decode(document, manifest.Pod))
                except Refusal as refusal:
                    outcome.rejected.append(Rejected(*named(document), refusal.field, refusal.value, refusal.message))
    if outcome.notes and not found and not outcome.errors:
        outcome.errors.append("there is no Pod in the files: give Pods, such as those that a Deployment makes")


def _in(namespace: str, pod: manifest.Pod) -> manifest.Pod:
    if not namespace or pod.metadata.namespace:
        return pod
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))


def admitted(cluster: Cluster, pod: manifest.Pod, outcome: Outcome) -> manifest.Pod | None:
    """The pod with its defaults filled in; None, and a rejection, if its request is impossible."""
    try:
        return cluster.interpreter.admit(pod)
    except Refusal as refusal:
        outcome.rejected.append(Rejected(pod.namespace, pod.name, refusal.field, refusal.value, refusal.message))
        return None


def place_all(cluster: Cluster, paths: Iterable[str], now_ns: int) -> Outcome:
    """Place all pods of the files, as far as they fit."""
    outcome = Outcome()
    for number, pod in enumerate(pods(paths, outcome)):
        complete = admitted(cluster, pod, outcome)
        if complete is not None:
            # A file may hold two pods with one name (the MetaX document does); here they are two pods.
            key = pod.key if pod.key not in cluster.snapshot.bookings else f"{pod.key}#{number}"
            _place(cluster, pod, complete, key, now_ns, outcome)
    return outcome


def _place(
    cluster: Cluster, pod: manifest.Pod, complete: manifest.Pod, key: str, now_ns: int, outcome: Outcome
) -> None:
    request = cluster.request(complete)
    placement = cluster.decide(pod.namespace, request)
    if isinstance(placement, Exceeded):
        outcome.pending.append(_pending(pod, placement.message, placement.reasons))
        return
    if placement is None:
        why = cluster.explain(complete)
        outcome.pending.append(_pending(pod, str(why), why.reasons))
        return
    cluster.assume(key, complete, request, placement)
    node = cluster.snapshot.node(placement.node)
    assert node is not None
    filled = {name: text for name, text in complete.annotations.items() if name not in pod.annotations}
    written = cluster.written(complete, placement, now_ns)
    injections = cluster.interpreter.injections(complete, placement, node)
    outcome.placed.append(Placed(pod, placement, {**filled, **written}, injections))


def _pending(pod: manifest.Pod, message: str, reasons: dict[str, int]) -> Pending:
    return Pending(pod, message, {str(reason): count for reason, count in reasons.items()})
