"""Who must leave, the slow and obvious way: every set of less important pods on every node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from subak.model import manifest
from subak.model.budget import Budget
from subak.model.request import Request
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot

Cost = tuple[int, float, int, int, float]


def importance(pod: manifest.Pod) -> tuple[int, str]:
    """The lowest is the most important; a pod that was not started is the last of its priority."""
    return (-pod.priority, pod.status.start_time or "later")


def violations(victims: Sequence[manifest.Pod], budgets: Iterable[Budget]) -> int:
    """How many of the victims go against a budget, one after the other."""
    allowed = {budget.key: budget.status.disruptions_allowed for budget in budgets}
    count = 0
    for pod in victims:
        mine = [each.key for each in budgets if each.protects(pod)]
        for key in mine:
            allowed[key] -= 1
        count += any(allowed[key] < 0 for key in mine)
    return count


def cost(victims: Iterable[manifest.Pod], budgets: Sequence[Budget], seconds: dict[str, float]) -> Cost:
    """What kube-scheduler compares, the lowest being the best; `seconds` says when each pod was started."""
    ranked = sorted(victims, key=lambda pod: (*importance(pod), pod.key))
    highest = max(pod.priority for pod in ranked)
    first = min(seconds[pod.key] for pod in ranked if pod.priority == highest)
    return (
        violations(ranked, budgets),
        highest,
        sum(pod.priority + 2**31 for pod in ranked),
        len(ranked),
        -first,
    )


def fits(snapshot: Snapshot, request: Request, node: str, without: Iterable[str]) -> bool:
    """Whether the request fits on the node once these have left."""
    with snapshot.transaction():
        for key in without:
            snapshot.forget(key)
        return place(snapshot, request, [node]) is not None


def cheapest(
    snapshot: Snapshot,
    request: Request,
    lower: dict[str, list[manifest.Pod]],
    budgets: Sequence[Budget],
    seconds: dict[str, float],
) -> Cost | None:
    """The lowest cost of all sets of pods, by node, that make room."""
    costs = [
        cost(victims, budgets, seconds)
        for node, pods in lower.items()
        for size in range(1, len(pods) + 1)
        for victims in combinations(pods, size)
        if fits(snapshot, request, node, [pod.key for pod in victims])
    ]
    return min(costs, default=None)


def as_kube_scheduler(
    snapshot: Snapshot,
    request: Request,
    lower: dict[str, list[manifest.Pod]],
    budgets: Sequence[Budget],
    seconds: dict[str, float],
) -> Cost | None:
    """The cost of what kube-scheduler would choose, if it knew the cards: all leave, some are taken back."""
    costs = []
    for node, pods in lower.items():
        leaving = sorted(pods, key=lambda pod: (*importance(pod), pod.key))
        if not leaving or not fits(snapshot, request, node, [pod.key for pod in leaving]):
            continue
        protected = [
            pod
            for i, pod in enumerate(leaving)
            if violations(leaving[: i + 1], budgets) > violations(leaving[:i], budgets)
        ]
        for pod in [*protected, *(each for each in leaving if each not in protected)]:
            rest = [each for each in leaving if each is not pod]
            if fits(snapshot, request, node, [each.key for each in rest]):
                leaving = rest
        costs.append(cost(leaving, budgets, seconds))
    return min(costs, default=None)
