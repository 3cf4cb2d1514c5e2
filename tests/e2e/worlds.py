"""Random clusters and pods, in which every rule of Kubernetes about where a pod may go has something to say.

A world has nodes, pods that run there, and pods that wait.  A seed gives the same world each time.  Each feature of a
pod is a function that adds to it (`FEATURES`); names and labels come from small sets, so that pods mean each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

NAMESPACES = {"red": {"team": "a"}, "green": {"team": "b", "tier": "gold"}, "blue": {}}
CLASSES = {"low": -10, "high": 1000}
OVERHEAD = {"name": "heavy", "podFixed": {"cpu": "250m", "memory": "120Mi"}}
HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
DONGLE = "example.com/dongle"
LAST = "last"
"""A label of the node that is written last, and of the pod there, which is created last: when kube-scheduler has seen
them, it has seen all."""

_TAINTS = (
    ("dedicated", "batch", "NoSchedule"),
    ("dedicated", "web", "NoExecute"),
    ("spot", "", "NoSchedule"),
    ("old", "yes", "PreferNoSchedule"),
)


@dataclass
class World:
    """Objects to create; `ending` are names of running pods that are deleted and do not go."""

    seed: int
    nodes: list[Json] = field(default_factory=list)
    running: list[Json] = field(default_factory=list)
    waiting: list[Json] = field(default_factory=list)
    ending: list[str] = field(default_factory=list)


Feature = Callable[[random.Random, Json], None]
"""Adds something to a pod."""


def world(seed: int, waiting: int = 24) -> World:
    """The world of this seed."""
    chance = random.Random(seed)
    made = World(seed)
    made.nodes = [node(chance, number) for number in range(chance.randint(3, 9))]
    for number in range(chance.randint(4, 22)):
        running = pod(chance, f"running-{number}", few=True)
        running["spec"]["nodeName"] = chance.choice(made.nodes)["metadata"]["name"]
        made.running.append(running)
        if chance.random() < 0.15:
            made.ending.append(running["metadata"]["name"])
    made.nodes.append(last(seed))
    made.waiting = [pod(chance, f"waiting-{number}") for number in range(waiting)]
    return made


def node(chance: random.Random, number: int) -> Json:
    """A node."""
    name = f"n{number}"
    labels = {HOSTNAME: name, "size": str(chance.choice([4, 8, 16]))}
    for key, values in ((ZONE, "abc"), (RACK, "xy"), ("disk", ("ssd", "hdd"))):
        if chance.random() < 0.85:
            labels[key] = chance.choice(values)
    taints = [
        {"key": key, "effect": effect, **({"value": value} if value else {})}
        for key, value, effect in _TAINTS
        if chance.random() < 0.12
    ]
    amounts = {
        "cpu": chance.choice(["2", "4", "3500m"]),
        "memory": chance.choice(["2Gi", "4Gi", "1500Mi"]),
        "ephemeral-storage": "10Gi",
        "pods": str(chance.choice([3, 6, 110])),
    }
    if chance.random() < 0.5:
        amounts[DONGLE] = str(chance.randint(1, 3))
    ready = "False" if chance.random() < 0.05 else "True"
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": chance.random() < 0.08},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": ready, "reason": "Test"}],
        },
    }


def last(seed: int) -> Json:
    """A node on which no pod of the world runs, so that nothing keeps the pod off by which kube-scheduler is asked."""
    made = node(random.Random(seed), 0)
    made["metadata"] = {"name": "last", "labels": {HOSTNAME: "last", LAST: f"w{seed}"}}
    made["status"]["allocatable"]["pods"] = "110"
    return made


def pod(chance: random.Random, name: str, few: bool = False) -> Json:
    """A pod with some features; running pods have few of those that only matter while a pod waits."""
    labels = {"app": chance.choice(["web", "db", "cache"])}
    if chance.random() < 0.5:
        labels["tier"] = chance.choice(["gold", "tin"])
    made: Json = {
        "metadata": {"name": name, "namespace": chance.choice(list(NAMESPACES)), "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 3600,
            "containers": [{"name": "c", "image": "none", "resources": {"requests": amounts(chance)}}],
        },
    }
    for likelihood, feature in FEATURES:
        if chance.random() < (likelihood / 2 if few else likelihood):
            feature(chance, made)
    return made


def amounts(chance: random.Random) -> Json:
    """What a container asks for."""
    asked: Json = {}
    if chance.random() < 0.6:
        asked["cpu"] = chance.choice(["100m", "250m", "500m", "1", "1001m"])
    if chance.random() < 0.4:
        asked["memory"] = chance.choice(["64Mi", "300M", "1Gi", "0.5Gi"])
    if chance.random() < 0.1:
        asked["ephemeral-storage"] = chance.choice(["1Gi", "9Gi"])
    return asked


def selector(chance: random.Random) -> Json:
    """A selector of pods."""
    match chance.randrange(6):
        case 0:
            return {"matchExpressions": [{"key": "tier", "operator": chance.choice(["Exists", "DoesNotExist"])}]}
        case 1:
            operator = chance.choice(["In", "NotIn"])
            return {
                "matchExpressions": [{"key": "app", "operator": operator, "values": chance.sample(["web", "db"], 1)}]
            }
        case 2:
            return {"matchLabels": {"app": chance.choice(["web", "db"]), "tier": chance.choice(["gold", "tin"])}}
        case 3 if chance.random() < 0.3:
            return {}
        case _:
            return {"matchLabels": {"app": chance.choice(["web", "db", "cache"])}}


def term(chance: random.Random, made: Json) -> Json:
    """A term of a pod affinity."""
    found: Json = {"topologyKey": chance.choice([HOSTNAME, ZONE, ZONE, RACK])}
    if chance.random() < 0.95:
        found["labelSelector"] = selector(chance)
        if chance.random() < 0.1:
            found[chance.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["tier"]
            found["labelSelector"] = {"matchLabels": {"app": made["metadata"]["labels"]["app"]}}
    if chance.random() < 0.3:
        found["namespaces"] = chance.sample(list(NAMESPACES), 2)
    if chance.random() < 0.3:
        choices: list[Json] = [{}, {"matchLabels": {"team": "a"}}]
        choices.append({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]})
        found["namespaceSelector"] = chance.choice(choices)
    return found


def spread(chance: random.Random, hard: bool) -> Json:
    """A topology spread constraint."""
    found: Json = {
        "maxSkew": chance.randint(1, 3),
        "topologyKey": chance.choice([HOSTNAME, ZONE, RACK]),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }
    if chance.random() < 0.95:
        found["labelSelector"] = selector(chance)
        if chance.random() < 0.15:
            found["matchLabelKeys"] = ["tier"]
            found["labelSelector"] = {"matchLabels": {"app": "web"}}
    if hard and chance.random() < 0.25:
        found["minDomains"] = chance.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if chance.random() < 0.3:
            found[policy] = chance.choice(["Honor", "Ignore"])
    return found


# Features


def more_containers(chance: random.Random, made: Json) -> None:
    spec = made["spec"]
    spec["initContainers"] = [{"name": "i", "image": "none", "resources": {"requests": amounts(chance)}}]
    sidecar = {"name": "s", "image": "none", "restartPolicy": "Always", "resources": {"requests": amounts(chance)}}
    if chance.random() < 0.5:
        spec["initContainers"].insert(chance.randrange(2), sidecar)
    if chance.random() < 0.5:
        spec["containers"].append({"name": "d", "image": "none", "resources": {"limits": amounts(chance)}})


def dongle(chance: random.Random, made: Json) -> None:
    for each in made["spec"]["containers"][:1]:
        each["resources"]["limits"] = {DONGLE: str(chance.randint(1, 2))}


def whole_pod(chance: random.Random, made: Json) -> None:
    """The pod as a whole must ask for no less than its containers do."""
    for each in [*made["spec"].get("initContainers", ()), *made["spec"]["containers"]]:
        each["resources"] = {"requests": {"cpu": "10m"}}
    made["spec"]["resources"] = {"requests": {"cpu": "1500m", "memory": chance.choice(["200Mi", "2200Mi"])}}


def overhead(chance: random.Random, made: Json) -> None:
    made["spec"]["runtimeClassName"] = OVERHEAD["name"]


def priority(chance: random.Random, made: Json) -> None:
    made["spec"]["priorityClassName"] = chance.choice(list(CLASSES))


def ports(chance: random.Random, made: Json) -> None:
    opened: Json = {
        "containerPort": 80,
        "hostPort": chance.choice([80, 443]),
        "protocol": chance.choice(["TCP", "UDP"]),
    }
    if chance.random() < 0.5:
        opened["hostIP"] = chance.choice(["127.0.0.1", "10.0.0.1", "0.0.0.0"])
    containers = [*made["spec"].get("initContainers", ()), *made["spec"]["containers"]]
    chance.choice(containers)["ports"] = [opened]


def tolerations(chance: random.Random, made: Json) -> None:
    found: list[Json] = []
    for key, value, effect in _TAINTS:
        if chance.random() < 0.5:
            toleration = {"key": key, "operator": "Exists"} if chance.random() < 0.5 else {"key": key, "value": value}
            found.append(toleration | ({"effect": effect} if chance.random() < 0.5 else {}))
    if chance.random() < 0.15:
        found.append({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"})
    if chance.random() < 0.1:
        found.append({"operator": "Exists"})
    made["spec"]["tolerations"] = found


def node_selector(chance: random.Random, made: Json) -> None:
    made["spec"]["nodeSelector"] = chance.choice([{"disk": "ssd"}, {ZONE: "a"}, {RACK: "x", "disk": "hdd"}])


def node_affinity(chance: random.Random, made: Json) -> None:
    lines: list[Json] = [
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
        {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
        {"key": "size", "operator": "Gt", "values": ["4"]},
        {"key": "size", "operator": "Lt", "values": ["16"]},
        {"key": RACK, "operator": "Exists"},
        {"key": RACK, "operator": "DoesNotExist"},
    ]
    terms: list[Json] = [{"matchExpressions": chance.sample(lines, chance.randint(1, 2))}]
    if chance.random() < 0.4:
        operator = chance.choice(["In", "NotIn"])
        terms.append({"matchFields": [{"key": "metadata.name", "operator": operator, "values": ["n1"]}]})
    affinity = _affinity(made, "nodeAffinity")
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}


def preferred_nodes(chance: random.Random, made: Json) -> None:
    preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = _affinity(made, "nodeAffinity")
    affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 7, "preference": preference}]


def near(chance: random.Random, made: Json) -> None:
    terms = [term(chance, made) for _ in range(chance.choice([1, 1, 2]))]
    _affinity(made, "podAffinity")["requiredDuringSchedulingIgnoredDuringExecution"] = terms


def away(chance: random.Random, made: Json) -> None:
    terms = [term(chance, made) for _ in range(chance.choice([1, 1, 2]))]
    _affinity(made, "podAntiAffinity")["requiredDuringSchedulingIgnoredDuringExecution"] = terms


def preferred_pods(chance: random.Random, made: Json) -> None:
    wish = {"weight": 5, "podAffinityTerm": term(chance, made)}
    which = chance.choice(["podAffinity", "podAntiAffinity"])
    _affinity(made, which)["preferredDuringSchedulingIgnoredDuringExecution"] = [wish]


def spreading(chance: random.Random, made: Json) -> None:
    stated: dict[tuple[str, str], Json] = {}
    for _ in range(chance.choice([1, 1, 2, 3])):
        each = spread(chance, hard=chance.random() < 0.85)
        stated[each["topologyKey"], each["whenUnsatisfiable"]] = each
    made["spec"]["topologySpreadConstraints"] = list(stated.values())


def gated(chance: random.Random, made: Json) -> None:
    if "nodeName" not in made["spec"] and made["metadata"]["name"].startswith("waiting"):
        made["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]


def _affinity(made: Json, which: str) -> Json:
    found: Json = made["spec"].setdefault("affinity", {}).setdefault(which, {})
    return found


FEATURES: list[tuple[float, Feature]] = [
    (0.25, more_containers),
    (0.15, dongle),
    (0.05, whole_pod),
    (0.15, overhead),
    (0.2, priority),
    (0.25, ports),
    (0.4, tolerations),
    (0.2, node_selector),
    (0.25, node_affinity),
    (0.15, preferred_nodes),
    (0.3, near),
    (0.35, away),
    (0.2, preferred_pods),
    (0.4, spreading),
    (0.03, gated),
]
"""How likely a pod has each.  To try another rule, append a feature."""
