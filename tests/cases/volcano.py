"""Volcano's cases: manifests in the case's shorthand, through interpreter, ledger and placement, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from subak.dialects import Patch, nodelock, volcano_vgpu
from subak.dialects.config import Config
from subak.dialects.hami import CARD_POLICY
from subak.dialects.interpreter import Interpreter, apply
from subak.dialects.volcano_share import ASSIGNED, INDEX, PREDICATE_TIME, UNHEALTHY, VolcanoShare
from subak.dialects.volcano_vgpu import ALLOCATED, REGISTER
from subak.model import manifest
from subak.model.device import MIB
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.cases.runner import Answer

Given = dict[str, Any]

NOW_NS = 1593764466550835304


def interpreter(given: Given) -> Interpreter:
    return Interpreter(Config.of({"volcano": {"gpuMemoryFactor": given.get("factor", 1)}}))


def pod(
    name: str, containers: Sequence[Given], init: Sequence[Given] = (), reason: str = "", **metadata: Any
) -> manifest.Pod:
    """A pod whose containers have these limits, by their short names."""
    return msgspec.convert(
        {
            "metadata": {"name": name, **metadata},
            "status": {"reason": reason},
            "spec": {
                "initContainers": [_container(f"init-{i}", limits) for i, limits in enumerate(init)],
                "containers": [_container(f"app-{i}", limits) for i, limits in enumerate(containers)],
            },
        },
        manifest.Pod,
    )


def _container(name: str, limits: Given) -> Given:
    return {"name": name, "resources": {"limits": {f"volcano.sh/{key}": amount for key, amount in limits.items()}}}


def sharing(name: str, given: Given, resource: str = "gpu-memory", **metadata: Any) -> manifest.Pod:
    """A pod whose containers ask for so much of one resource each."""
    containers, init = ([{resource: amount} for amount in given.get(key) or ()] for key in ("app", "init"))
    return pod(name, containers, init, **metadata)


def node(speaks: Interpreter, given: Given, unhealthy: str = "") -> tuple[Node, list[str]]:
    """A node by its capacity, or by `cards` of `mib` each; `register` gives the exact size of each card."""
    capacity = given.get("capacity")
    if capacity is None:
        capacity = {"gpu-memory": given["cards"] * given["mib"], "gpu-number": given["cards"]}
    annotations = {UNHEALTHY: unhealthy} if unhealthy else {}
    if "register" in given:
        annotations["hami.io/node-nvidia-register"] = json.dumps(
            [
                {"id": f"GPU-{i}", "index": i, "count": 10, "devmem": mib, "devcore": 100, "type": "T", "health": True}
                for i, mib in enumerate(given["register"])
            ]
        )
    return speaks.node(
        msgspec.convert(
            {
                "metadata": {"name": "n1", "annotations": annotations},
                "status": {"capacity": {f"volcano.sh/{name}": amount for name, amount in capacity.items()}},
            },
            manifest.Node,
        )
    )


def placed(speaks: Interpreter, snapshot: Snapshot, asking: manifest.Pod) -> manifest.Pod | None:
    """The pod with what was written for it, booked; None if it fits nowhere."""
    complete = speaks.admit(asking)
    request = speaks.request(complete)
    placement = place(snapshot, request)
    if placement is None:
        return None
    snapshot.assume(asking.key, placement, request.needs.resources)
    home = snapshot.node(placement.node)
    assert home is not None
    return apply(complete, Patch(annotations=speaks.annotations(complete, placement, home, NOW_NS)))


# Requests, annotations, nodes


def pod_amount(given: Given) -> int:
    """What the ledger books for the pod: units of memory, or cards."""
    resource = given.get("resource", "gpu-memory")
    speaks = interpreter(given)
    snapshot = Snapshot([node(speaks, {"cards": 8, "mib": 4096})[0]])
    asking = sharing("case", given, resource)
    assert placed(speaks, snapshot, asking) is not None
    booked = snapshot.bookings[asking.key].charges.values()
    return len(booked) if resource == "gpu-number" else sum(charge.memory_bytes // MIB for charge in booked)


def index_read(given: Given) -> list[int] | None:
    """The cards that a running pod with this annotation holds."""
    speaks = interpreter(given)
    annotations = {INDEX: given["annotation"]} if "annotation" in given else {}
    running = sharing("case", {"app": [1]}, annotations=annotations)
    grants = speaks.placement(running, node(speaks, {"cards": 8, "mib": 4096})[0]).grants
    return [share.index for grant in grants for share in grant.shares] or None


def index_write(given: Given) -> str:
    """What is written for a placement on these cards."""
    speaks = interpreter(given)
    home, _ = node(speaks, {"cards": 8, "mib": 4096})
    shares = tuple(Share(home.devices[i].id, i, home.devices[i].memory_bytes, 100) for i in given["ids"])
    asking = sharing("case", {"app": [len(shares)]}, "gpu-number")
    placement = Placement(home.name, (Grant(VolcanoShare.name, (0,), Role.APP, shares),))
    return speaks.annotations(asking, placement, home, NOW_NS)[INDEX]


def node_cards(given: Given) -> Any:
    seen, warnings = node(interpreter(given), given, given.get("unhealthy", ""))
    cards = [[each.index, each.memory_bytes // MIB] for each in seen.devices if each.healthy]
    return {"cards": cards, "warned": bool(warnings)}


def publish(given: Given) -> dict[str, int]:
    """What a node with these cards publishes."""
    speaks = interpreter(given)
    seen, _ = node(speaks, {**given, "capacity": {}})
    published = speaks.by_name[VolcanoShare.name].publish(seen).allocatable
    return {name.removeprefix("volcano.sh/"): int(amount) for name, amount in published.items()}


# Placement


def place_in_turn(given: Given) -> list[list[int] | None]:
    """The cards of each pod, placed in order; an entry `unhealthy` changes the node on the way."""
    speaks = interpreter(given)
    home, _ = node(speaks, given)
    snapshot = Snapshot([home])
    for index, amount in (given.get("used") or {}).items():
        running = sharing(f"running-{index}", {"app": [amount]}, annotations={INDEX: str(index)})
        snapshot.restore(running.key, speaks.placement(running, home))
    answers: list[list[int] | None] = []
    for number, entry in enumerate(given["pods"]):
        if isinstance(entry, Mapping):
            snapshot.put([node(speaks, given, entry["unhealthy"])[0]])
            continue
        asking = sharing(f"case-{number}", {"app": entry}, given.get("resource", "gpu-memory"))
        bound = placed(speaks, snapshot, asking)
        answers.append(None if bound is None else [int(index) for index in bound.annotations[INDEX].split(",")])
    return answers


def env(given: Given) -> dict[str, list[dict[str, str]]]:
    """The environment of each pod's containers, from its annotations alone."""
    speaks = interpreter(given)
    home, _ = node(speaks, given)
    return {name: _env(speaks, home, name, each) for name, each in given["pods"].items()}


def _env(speaks: Interpreter, home: Node, name: str, given: Given) -> list[dict[str, str]]:
    keys = {"index": INDEX, "time": PREDICATE_TIME, "assigned": ASSIGNED}
    annotations = {key: given[short] for short, key in keys.items() if short in given}
    bound: manifest.Pod | None = sharing(
        name,
        given,
        annotations=annotations,
        uid=name,
        deletionTimestamp=given.get("deleted"),
        reason=given.get("reason", ""),
    )
    assert bound is not None
    if "index" not in given:
        bound = placed(speaks, Snapshot([home]), bound)
        assert bound is not None
    injections = speaks.injections(bound, speaks.placement(bound, home), home)
    return [injection.env for injection in injections]


def restart(given: Given) -> Any:
    """Place pods, forget everything, and read it back from what was written."""
    speaks = interpreter(given)
    home, _ = node(speaks, given)
    before, after = Snapshot([home]), Snapshot([home])
    bound = [placed(speaks, before, sharing(f"case-{i}", {"app": [given["amount"]]})) for i in range(given["pods"])]
    running = [each for each in bound if each is not None]
    for each in running:
        after.restore(each.key, speaks.placement(each, home))
    return {
        "placed": len(running),
        "same": before.cards(home.name) == after.cards(home.name),
        "overcommitted": [card.device.index for card in after.cards(home.name) if card.memory_free < 0],
    }


def lock(given: Given) -> str:
    """A lock in Volcano's form, the bare time."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    held = (now - timedelta(minutes=given["minutes"])).isoformat()
    try:
        nodelock.take(held, "default/case", now, lambda owner: True)
    except nodelock.Contention:
        return "locked"
    return "taken"


# vGPU


def vgpu_node(speaks: Interpreter, sizes: Sequence[int]) -> Node:
    register = "".join(f"GPU-{i},10,{mib},NVIDIA-T4,true,hami-core:" for i, mib in enumerate(sizes))
    content = {
        "metadata": {"name": "n1", "annotations": {REGISTER: register}},
        "status": {"capacity": {"volcano.sh/vgpu-number": 10 * len(sizes)}},
    }
    return speaks.node(msgspec.convert(content, manifest.Node))[0]


def vgpu_running(name: str, card: int, mib: int, cores: int = 0) -> manifest.Pod:
    annotations = {ALLOCATED: f"GPU-{card},NVIDIA,{mib},{cores}:;"}
    return pod(name, [{"vgpu-number": 1, "vgpu-memory": mib, "vgpu-cores": cores}], annotations=annotations)


def vgpu_place(given: Given) -> list[list[list[int]] | None]:
    """The cards of each pod and the memory it gets there."""
    speaks = interpreter(given)
    home = vgpu_node(speaks, given["cards"])
    snapshot = Snapshot([home])
    for number, (card, mib) in enumerate(given.get("used") or ()):
        running = vgpu_running(f"running-{number}", card, mib)
        snapshot.restore(running.key, speaks.placement(running, home))
    policy = {CARD_POLICY: given["policy"]} if "policy" in given else {}
    answers: list[list[list[int]] | None] = []
    for number, each in enumerate(given["pods"]):
        limits = {f"vgpu-{key}": amount for key, amount in each.items()}
        bound = placed(speaks, snapshot, pod(f"case-{number}", [limits], annotations=policy))
        held = () if bound is None else speaks.placement(bound, home).grants
        answers.append([[s.index, s.memory_bytes // MIB] for grant in held for s in grant.shares] or None)
    return answers


def vgpu_decode(given: Given) -> list[list[Any]]:
    places, _ = volcano_vgpu.decode(given["text"])
    return [[held.uuid, held.memory_mib, held.cores] for cards in places for held in cards]


def vgpu_ledger(given: Given) -> dict[str, int]:
    """What is booked on the card after pods came and went."""
    speaks = interpreter(given)
    home = vgpu_node(speaks, [16384])
    snapshot = Snapshot([home])
    for name in given["add"]:
        running = vgpu_running(name, 0, given["mib"], given["cores"])
        snapshot.restore(running.key, speaks.placement(running, home))
    for name in given.get("remove") or ():
        snapshot.forget(f"default/{name}")
    (card,) = snapshot.cards(home.name)
    return {"slots": card.used, "mib": card.memory_used // MIB, "cores": card.cores_used}


ANSWERS: dict[str, Answer] = {
    "volcano_pod_amount": pod_amount,
    "volcano_index_read": index_read,
    "volcano_index_write": index_write,
    "volcano_node": node_cards,
    "volcano_publish": publish,
    "volcano_place": place_in_turn,
    "volcano_env": env,
    "volcano_restart": restart,
    "volcano_lock": lock,
    "volcano_vgpu_place": vgpu_place,
    "volcano_vgpu_decode": vgpu_decode,
    "volcano_vgpu_ledger": vgpu_ledger,
}
