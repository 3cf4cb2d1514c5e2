"""Small clusters for preemption: full nodes, pods of several priorities, budgets, and one pod that wants a place.

All of them live on one API server at once: a label keeps each pod on the nodes of its world.  Pods that are deleted are
gone at once, so that victims are those that are missing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

GPU = "example.com/gpu"
CAPACITY = 8
CLASSES = {"lowest": -10, "low": 0, "middle": 100, "high": 1_000, "top": 5_000}
NAMESPACE = "preemption"


@dataclass
class World:
    """The objects of one cluster; `starts` says when some of its pods were started."""

    number: int
    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    budgets: list[Json] = field(default_factory=list)
    starts: dict[str, str] = field(default_factory=dict)
    preemptor: Json = field(default_factory=dict)


def world(number: int) -> World:
    """The same number gives the same world."""
    draw, made = random.Random(number), World(number)
    most_free = 0
    for i in range(draw.randint(1, 4)):
        node = f"w{number}-n{i}"
        made.nodes.append(_node(node, number))
        free = CAPACITY - draw.choice((0, 0, 1))
        while free > 1 and len(made.pods) < 16:
            size = min(draw.randint(1, 5), free)
            name = f"{node}-p{len(made.pods)}"
            made.pods.append(_pod(name, number, size, draw.choice(list(CLASSES)), draw.choice(("", "web", "db")), node))
            if draw.random() < 0.4:
                made.starts[name] = f"2026-01-01T00:00:{draw.randint(10, 19)}Z"
            free -= size
        most_free = max(most_free, CAPACITY - sum(_sizes(made, node)))
    for app in ("web", "db"):
        if draw.random() < 0.4:
            made.budgets.append(_budget(f"w{number}-{app}", number, app, draw.randint(0, 2)))
    wanted = draw.randint(min(most_free + 1, CAPACITY), CAPACITY)
    made.preemptor = _pod(f"w{number}-wish", number, wanted, draw.choice(("middle", "high", "top")), "", "")
    return made


def _sizes(made: World, node: str) -> list[int]:
    there = [each for each in made.pods if each["spec"]["nodeName"] == node]
    return [int(each["spec"]["containers"][0]["resources"]["limits"][GPU]) for each in there]


def _node(name: str, number: int) -> Json:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "100", GPU: str(CAPACITY)}
    return {
        "metadata": {"name": name, "labels": {"world": str(number)}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(name: str, number: int, size: int, rank: str, app: str, node: str) -> Json:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"world": str(number), "app": app}},
        "spec": {
            "priorityClassName": rank,
            "nodeName": node,
            "nodeSelector": {"world": str(number)},
            "tolerations": [{"operator": "Exists"}],  # a new node is tainted until a kubelet reports
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {GPU: str(size)}}}],
        },
    }


def _budget(name: str, number: int, app: str, allowed: int) -> Json:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"world": str(number), "app": app}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3},
    }
