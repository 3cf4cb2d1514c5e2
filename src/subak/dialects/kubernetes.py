"""What every pod and node says, whatever its dialect: plain resources, selectors, tolerations, readiness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from subak.model import manifest
from subak.model.device import MOST_AMOUNT
from subak.model.manifest import Amount, Amounts, Container, Role
from subak.model.reason import Refusal
from subak.model.request import Needs
from tinykube.quantity import Quantity, QuantityError


def units(name: str, amount: Amount) -> int:
    """An amount as the ledger counts it: cpu in thousandths, all else in whole units, rounded up."""
    quantity = Quantity.parse(amount)
    return -(-quantity.nanos // 10**6) if name == "cpu" else quantity.ceil()


def peak(pod: manifest.Pod, amounts: Callable[[Container, str], Mapping[str, int]]) -> dict[str, int]:
    """What the pod takes at most of each resource, by the rule that Kubernetes itself uses.

    Sidecars add up with everything that starts after them; init containers run alone with the sidecars so far.
    """
    most: dict[str, int] = {}
    running: dict[str, int] = {}
    for container, role, field in zip(pod.containers, pod.roles, pod.fields, strict=True):
        mine = amounts(container, field)
        for name, amount in mine.items():
            total = running.get(name, 0) + amount
            most[name] = max(most.get(name, 0), total)
            if role is not Role.INIT:
                running[name] = total
    return most


def needs(pod: manifest.Pod, owned: frozenset[str]) -> Needs:
    """What the pod asks of a node besides cards.  `owned` are the resource names that dialects account for."""

    def plain(container: Container, field: str) -> dict[str, int]:
        # What has only a limit counts as requested, see `Container.requests`; an error names where it stands.
        requests = (container.resources and container.resources.requests) or {}
        limits = {name: amount for name, amount in container.limits.items() if name not in requests}
        counted = _counted(limits, owned, f"{field}.resources.limits")
        return {**counted, **_counted(requests, owned, f"{field}.resources.requests")}

    resources = peak(pod, plain)
    if pod.spec.resources is not None:  # what the pod states as a whole counts instead of its containers' sum
        resources.update(_counted(pod.spec.resources.requests or {}, owned, "spec.resources.requests"))
    for name, amount in _counted(pod.spec.overhead or {}, owned, "spec.overhead").items():
        resources[name] = resources.get(name, 0) + amount
    resources["pods"] = 1
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    return Needs(
        resources=tuple(sorted((name, amount) for name, amount in resources.items() if amount)),
        selector=tuple(sorted((pod.spec.node_selector or {}).items())),
        terms=tuple(
            (tuple(t.match_expressions or ()), tuple(t.match_fields or ())) for t in required.node_selector_terms
        )
        if required
        else None,
        tolerations=tuple(pod.spec.tolerations or ()),
        unsupported=tuple(_unsupported(pod)),
    )


def _counted(amounts: Mapping[str, Amount], owned: frozenset[str], field: str) -> dict[str, int]:
    counted: dict[str, int] = {}
    for name, amount in amounts.items():
        if name in owned:
            continue
        try:
            number = units(name, amount)
        except QuantityError as error:
            raise Refusal(f"{field}[{name}]", amount, f"{error}") from None
        if not 0 <= number <= MOST_AMOUNT:
            wrong = "must not be negative" if number < 0 else "is more than any node can have"
            raise Refusal(f"{field}[{name}]", amount, f"{name} of {amount} {wrong}")
        counted[name] = number
    return counted


def _unsupported(pod: manifest.Pod) -> Iterable[str]:
    if pod.spec.scheduling_gates:
        yield "scheduling gates"
    if pod.spec.resource_claims:
        yield "resource claims"


def allocatable(node: manifest.Node, owned: frozenset[str]) -> tuple[dict[str, int], list[str]]:
    """What a node has of plain resources, and what could not be read (then the node has none of it)."""
    amounts: Amounts = node.allocatable
    counted: dict[str, int] = {}
    warnings: list[str] = []
    for name, amount in amounts.items():
        if name in owned:
            continue
        try:
            counted[name] = min(max(units(name, amount), 0), MOST_AMOUNT)
        except QuantityError as error:
            counted[name] = 0
            warnings.append(f"node {node.name}: allocatable {name}: {error}; counted as 0")
    return counted, warnings


def ready(node: manifest.Node) -> bool:
    """Whether the node says it is ready; a node without conditions (a hand-written file) is."""
    return all(each.status == "True" for each in node.status.conditions or () if each.type == "Ready")
