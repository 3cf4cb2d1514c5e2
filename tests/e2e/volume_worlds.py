"""Random clusters with storage, in which every rule about volumes has something to say.

A world has nodes, storage objects, running and waiting pods.  A seed gives the same world each time.  Names come
from small sets, so that pods share claims and disks, and claims compete for volumes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from subak.model.volume import BIND_COMPLETED, HOSTNAME, SELECTED_NODE
from tests.support.volumes import (
    DRIVER,
    Json,
    affinity,
    attachment,
    capacity,
    claim,
    csi,
    persistent_volume,
    storage_class,
    with_claims,
)

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
COUNTING, CLOUD = "counting.example.com", "ebs.csi.aws.com"
CLASSES = (*["local"] * 5, *["made"] * 3, *["zoned"] * 3, *["counted"] * 3, "cloud", "now", "")
MODES = (
    ["ReadWriteOnce"],
    ["ReadWriteOnce"],
    ["ReadWriteOnce", "ReadOnlyMany"],
    ["ReadWriteMany"],
    ["ReadWriteOncePod"],
)


@dataclass
class VolumeWorld:
    """Objects to create, in this order; `ending` are claims that are deleted and do not go."""

    seed: int
    nodes: list[Json] = field(default_factory=list)
    stored: list[Json] = field(default_factory=list)
    running: list[Json] = field(default_factory=list)
    waiting: list[Json] = field(default_factory=list)
    ending: list[str] = field(default_factory=list)


def world(seed: int, waiting: int = 150) -> VolumeWorld:
    """The world of this seed."""
    chance = random.Random(seed)
    made = VolumeWorld(seed, nodes=[node(chance, number) for number in range(8)])
    names = [each["metadata"]["name"] for each in made.nodes]
    bound = [f"bound-{number}" for number in range(16)]
    unbound = [f"open-{number}" for number in range(30)]
    made.stored = classes()
    made.stored += [any_claim(chance, name, names, volume=f"of-{name}") for name in bound]
    made.stored += [any_claim(chance, name, names) for name in unbound]
    made.stored += [bound_volume(chance, name, names) for name in bound if chance.random() < 0.95]
    made.stored += [free_volume(chance, f"free-{number}", names, unbound) for number in range(30)]
    made.stored += [csi_node(chance, name) for name in names if chance.random() < 0.75]
    made.stored += [room(chance, f"room-{number}", names) for number in range(5)]
    made.stored += [
        attachment(f"attached-{number}", chance.choice(names), f"of-{chance.choice(bound)}") for number in range(4)
    ]
    made.ending = [name for name in (*bound, *unbound) if chance.random() < 0.04]
    made.running = [pod(chance, f"running-{number}", bound + unbound[:12]) for number in range(24)]
    for each in made.running:
        each["spec"]["nodeName"] = chance.choice(names)
    made.waiting = [pod(chance, f"waiting-{number}", [*bound, *unbound, "missing"]) for number in range(waiting)]
    return made


def node(chance: random.Random, number: int) -> Json:
    """A node with room for all pods."""
    labels = {HOSTNAME: f"n{number}"}
    for key, likelihood in ((ZONE, 0.8), (OLD_ZONE, 0.3)):
        if chance.random() < likelihood:
            labels[key] = chance.choice("abc")
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    ready = {"type": "Ready", "status": "True", "reason": "Test"}
    return {
        "metadata": {"name": f"n{number}", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def classes() -> list[Json]:
    """Classes with and without a provisioner, topologies, counted capacity, and one that does not wait."""
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    return [
        storage_class("local", "kubernetes.io/no-provisioner"),
        storage_class("made"),
        storage_class("zoned", allowedTopologies=zones),
        storage_class("counted", COUNTING),
        storage_class("cloud", "kubernetes.io/aws-ebs"),
        storage_class("now", waits=False),
        *(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIDriver",
                "metadata": {"name": name},
                "spec": {"attachRequired": True, "storageCapacity": counts},
            }
            for name, counts in ((DRIVER, False), (COUNTING, True))
        ),
    ]


def any_claim(chance: random.Random, name: str, nodes: list[str], volume: str = "") -> Json:
    """A claim that may be bound, half bound, lost, selected for a node, or just open."""
    more: Json = {"modes": chance.choice(MODES), "volume": volume}
    if chance.random() < 0.1:
        more["selector"] = {"matchLabels": {"kind": "ssd"}}
    if chance.random() < 0.07:
        more["volumeMode"] = "Block"
    if chance.random() < 0.05:
        more["volumeAttributesClassName"] = "fast"
    if chance.random() < 0.15 and not volume:
        more["node"] = chance.choice(nodes)
    class_name = "unknown" if chance.random() < 0.03 else chance.choice(CLASSES)
    made = claim(name, f"{chance.randint(1, 4)}Gi", class_name, **more)
    if volume and chance.random() < 0.06:
        del made["metadata"]["annotations"][BIND_COMPLETED]
    if volume and chance.random() < 0.06:
        made["status"]["phase"] = "Lost"
    if chance.random() < 0.05:
        made["metadata"]["annotations"] |= {SELECTED_NODE: chance.choice(nodes)}
    return made


def reach(chance: random.Random, nodes: list[str]) -> Json | None:
    """The affinity of a volume."""
    match chance.randrange(6):
        case 0 | 1 | 2:
            return affinity(HOSTNAME, *chance.sample(nodes, chance.choice([1, 1, 2])))
        case 3:
            return affinity(ZONE, *chance.sample("abc", chance.choice([1, 2])))
        case 4:
            lines = [{"key": ZONE, "operator": chance.choice(["Exists", "DoesNotExist"])}]
            others = [{"key": HOSTNAME, "operator": "NotIn", "values": chance.sample(nodes, 3)}]
            return {"required": {"nodeSelectorTerms": [{"matchExpressions": lines}, {"matchExpressions": others}]}}
    return None


def free_volume(chance: random.Random, name: str, nodes: list[str], claims: list[str]) -> Json:
    """A volume that nobody has, or that is meant for a claim."""
    more: Json = {"modes": chance.choice(MODES), "labels": {"kind": "ssd"} if chance.random() < 0.4 else {}}
    if (found := reach(chance, nodes)) is not None:
        more["nodeAffinity"] = found
    if chance.random() < 0.2:
        more["claim"], more["uid"] = chance.choice(claims), chance.choice(["", "known", "of-another"])
    if chance.random() < 0.1:
        more["volumeMode"] = "Block"
    if chance.random() < 0.1:
        more["volumeAttributesClassName"], more["csi"] = "fast", csi(name)
    more["phase"] = chance.choice(["Available"] * 6 + ["Released", "Pending"])
    if chance.random() < 0.25:
        more["csi"] = csi(name)
    return persistent_volume(name, f"{chance.randint(1, 5)}Gi", chance.choice(["local", "local", "made", ""]), **more)


def bound_volume(chance: random.Random, claim: str, nodes: list[str]) -> Json:
    """The volume of a bound claim."""
    more: Json = {"claim": claim, "uid": "known"}
    if chance.random() < 0.6 and (found := reach(chance, nodes)) is not None:
        more["nodeAffinity"] = found
    if chance.random() < 0.4:
        more["labels"] = {chance.choice([ZONE, OLD_ZONE]): chance.choice(["a", "b", "a__b", "b__c"])}
    if chance.random() < 0.7:
        more["csi"] = csi(chance.choice([claim, claim, "shared"]))
    return persistent_volume(f"of-{claim}", "4Gi", "made", **more)


def csi_node(chance: random.Random, node: str) -> Json:
    """What drivers say of a node."""
    drivers: list[Json] = []
    for name in (DRIVER, COUNTING, CLOUD):
        if chance.random() < 0.8:
            drivers.append({"name": name, "nodeID": node, "topologyKeys": []})
            if chance.random() < 0.8:
                drivers[-1]["allocatable"] = {"count": chance.randint(1, 4)}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node},
        "spec": {"drivers": drivers},
    }


def room(chance: random.Random, name: str, nodes: list[str]) -> Json:
    """What is left of the class that is counted."""
    made = capacity(name, f"{chance.randint(1, 5)}Gi", "counted")
    key, values = chance.choice([(ZONE, ["a", "b", "c"]), (HOSTNAME, nodes)])
    made["nodeTopology"] = {"matchLabels": {key: chance.choice(values)}}
    if chance.random() < 0.2:
        made["maximumVolumeSize"] = f"{chance.randint(1, 3)}Gi"
    if chance.random() < 0.2:
        del made["nodeTopology"]
    return made


def pod(chance: random.Random, name: str, claims: list[str]) -> Json:
    """A pod with some claims, a disk of its own, or an ephemeral volume."""
    volumes = with_claims(*chance.sample(claims, chance.choice([0, 1, 1, 1, 1, 2, 2, 3])))
    if chance.random() < 0.3:
        volumes.append({"name": "disk", **disk(chance)})
    if chance.random() < 0.05:
        template = {"spec": claim("x")["spec"]}
        volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none"}],
            "volumes": volumes,
        },
    }


def disk(chance: random.Random) -> Json:
    """An inline disk."""
    read_only, which = chance.random() < 0.4, chance.choice("12")
    portal = {"targetPortal": "10.0.0.1", "lun": 0}
    return chance.choice(
        [
            {"gcePersistentDisk": {"pdName": f"disk-{which}", "readOnly": read_only}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{which}", "readOnly": read_only}},
            {"iscsi": {**portal, "iqn": f"iqn.2026-01.com.example:{which}", "readOnly": read_only}},
            {"rbd": {"monitors": chance.sample(["m1", "m2"], 1), "image": which, "readOnly": read_only}},
        ]
    )
