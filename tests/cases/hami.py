"""HAMi's cases: each function turns the case's shorthand into product types, asks the product, and turns it back."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from subak.dialects import Sighting, agent, annotation, hami, metax_rules, nodelock
from subak.dialects import metax_links as metax
from subak.dialects.amounts import asked
from subak.dialects.config import Config
from subak.dialects.iluvatar import vendor_annotations
from subak.dialects.interpreter import Interpreter, apply
from subak.dialects.metax_links import LOSSES, SCORES
from subak.dialects.metax_sgpu import registered, topology_aware
from subak.model import manifest
from subak.model.card import CardState
from subak.model.device import MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Charge, Grant, Placement, Share, charges
from subak.model.reason import Refusal
from subak.model.request import Claim, Weights
from subak.policy import mig, quota, score
from subak.policy.fit import fit
from subak.policy.order import card_score
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.cases.runner import Answer

Given = dict[str, Any]

DIALECTS = {
    "NVIDIA": ("hami-nvidia", "nvidia"),
    "Iluvatar": ("hami-iluvatar", "iluvatar"),
    **{f"{chip}": (f"hami-iluvatar-{chip}", "iluvatar") for chip in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")},
    "Mthreads": ("hami-mthreads", "mthreads"),
    "Metax-SGPU": ("hami-metax-sgpu", "metax"),
    "Metax-GPU": ("hami-metax-gpu", "metax"),
}

SECTIONS = {"NVIDIA": "nvidia", "Mthreads": "mthreads", "Metax-SGPU": "metax", "Metax-GPU": "metax"}


def failing(answer: Callable[[Given], Any]) -> Answer:
    """Malformed input is the answer `error`."""

    def answered(given: Given) -> Any:
        try:
            return answer(given)
        except ValueError:
            return "error"

    return answered


# Formats


def encode_pod_devices(given: Given) -> str:
    return hami.encode_devices(
        [
            [hami.Held(each["uuid"], each["type"], each["mib"], each["cores"]) for each in cards]
            for cards in given["containers"]
        ]
    )


def reason_text(counts: Mapping[Any, int], cards: int) -> str:
    """HAMi's wording of why a node's cards do not fit: `2/8 CardInsufficientCore, 3/8 CardNotHealth`."""
    return ", ".join(sorted(f"{count}/{cards} {reason}" for reason, count in counts.items()))


def decode_pod_devices(given: Given) -> Any:
    return [
        [{"uuid": each.uuid, "type": each.type, "mib": each.memory_mib, "cores": each.cores} for each in cards]
        for cards in hami.decode_devices(given["text"])
    ]


def decode_node_colon(given: Given) -> Any:
    return [
        {
            "id": each.id,
            "slots": each.slots,
            "mib": (each.memory_bytes or 0) // MIB,
            "cores": each.cores,
            "type": each.model,
            "numa": each.numa,
            "healthy": each.healthy,
            "index": each.index,
            "mode": each.mode,
        }
        for each in hami.decode_register(given["text"], "x")
    ]


def decode_metax_sgpu_node(given: Given) -> Any:
    return [
        {
            "id": each.id,
            "index": each.index,
            "slots": each.slots,
            "mib": (each.memory_bytes or 0) // MIB,
            "cores": each.cores,
            "type": "Metax-SGPU",
            "numa": each.numa,
            "healthy": each.healthy,
            "qos": each.qos,
            "model": each.mode,
            "zone": each.zone or 0,
        }
        for each in registered(given["text"])
    ]


# Selection and health


def uuid_ok(given: Given) -> bool:
    annotations = {key: given[key] for key in ("use", "nouse") if given.get(key) is not None}
    return hami.selection(annotations, use_ids="use", nouse_ids="nouse").admits_id(given["id"])


def type_ok(given: Given) -> bool:
    annotations = {key: given[key] for key in ("use", "nouse") if given.get(key) is not None}
    selection = hami.selection(annotations, use_ids="", nouse_ids="", use_types="use", nouse_types="nouse")
    return selection.admits_type(given["model"])


def mode_ok(given: Given) -> bool:
    annotations = {"mode": given["annotation"]} if given.get("annotation") is not None else {}
    return hami.selection(annotations, use_ids="", nouse_ids="", modes="mode").admits_mode(given["card_mode"])


def handshake_healthy(given: Given) -> bool:
    """Whether the agent of a node with a registered card counts as alive."""
    content = {
        "metadata": {"annotations": {"handshake": given["value"]}},
        "status": {"allocatable": {"cards": given["allocatable"]}},
    }
    seen = agent.death(
        msgspec.convert(content, manifest.Node), "cards", [Sighting("nvidia", 0)], "handshake", fallen=False
    )
    return seen is None or (seen.after is not None and time.time() <= seen.after)


def _lock(given: Given, now: datetime) -> str | None:
    if "minutes" not in given:
        value: str | None = given.get("value")
        return value
    time = (now - timedelta(minutes=given["minutes"])).isoformat(timespec="seconds")
    return f"{time},{given['owner']}" if "owner" in given else time


def node_lock(given: Given) -> str:
    """What is written on the node for the pod."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    try:
        return nodelock.take(_lock(given, now), given["pod"], now, lambda owner: not given.get("gone"))
    except nodelock.Contention:
        return "contention"


def node_lock_release(given: Given) -> bool:
    return nodelock.release(_lock(given, datetime(2026, 1, 1, tzinfo=UTC)), given["pod"])


# Requests and admission


def interpreter(given: Given) -> Interpreter:
    section = SECTIONS.get(given["vendor"], "")
    return Interpreter(Config.of({section: given["config"]} if given.get("config") else {}))


def pod(given: Given) -> manifest.Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "case", "annotations": given.get("annotations") or {}},
            "spec": {
                "containers": [
                    {
                        "name": given.get("container", "main"),
                        "resources": {"limits": given.get("limits") or {}, "requests": given.get("requests") or {}},
                    }
                ]
            },
        },
        manifest.Pod,
    )


def request(given: Given) -> Any:
    """HAMi drops a request that it cannot read; we refuse the pod, which leaves no request either."""
    dialect: Any = interpreter(given).by_name[DIALECTS[given["vendor"]][0]]
    try:
        amounts = dialect.amounts(asked(pod(given))[0])
    except Refusal:
        return None
    if amounts is None:
        return None
    memory = amounts["memory_bytes"] // MIB
    unset = 101 if given["vendor"] == "NVIDIA" else 0
    percent = min(amounts["percent"], 100)
    return {"n": amounts["count"], "mib": memory, "pct": unset if memory else percent, "cores": amounts["cores"]}


def mutate(given: Given) -> Any:
    dialect = interpreter(given).by_name[DIALECTS[given["vendor"]][0]]
    try:
        changed = apply(pod(given), dialect.admit(pod(given)))
    except Refusal as refusal:
        return {"error": refusal.message}
    container = changed.containers[0]
    return {
        "limits": {name: str(amount) for name, amount in container.limits.items()},
        "annotations": dict(changed.annotations),
        "env": {each.name: each.value for each in container.env or ()},
    }


# Cards


def card(
    given: Given, vendor: str, position: int, pairs: Mapping[str, Mapping[str, int]], cordoned: set[str]
) -> CardState:
    """A card in the shorthand of the cases."""
    type = given.get("type", vendor)
    used = given.get("used", 0)
    pods = given.get("pods", [""] * used)
    id = given.get("id", f"card-{position}")
    device = Device(
        id=id,
        index=given.get("index", position),
        family=DIALECTS[vendor][1] if vendor.lower() in type.lower() else "other",
        model=type,
        memory_bytes=given.get("mem", 128) * MIB,
        cores=given.get("cores", 100),
        slots=given.get("slots", 100),
        numa=given.get("numa", 0),
        healthy=given.get("healthy", True),
        cordoned=id in cordoned,
        mode=given.get("mode", "hami-core"),
        qos=given.get("qos", ""),
        zone=given.get("zone", 0),
        links=pairs.get(id, {}),
    )
    tenants = {f"pod-{i}": Charge(shares=1, slots=1, tag=("", each)) for i, each in enumerate(pods)}
    return CardState.of(device, used, given.get("usedmem", 0) * MIB, given.get("usedcores", 0), tenants)


def claim_for(vendor: str, request: Given, annotations: Mapping[str, str]) -> Claim:
    """The claim that the vendor's dialect makes of the request's amounts."""
    given = {"vendor": vendor}
    dialect: Any = interpreter(given).by_name[DIALECTS[vendor][0]]
    amounts = {
        "count": request["n"],
        "memory_bytes": request.get("mib", 0) * MIB,
        "percent": request.get("pct", 0),
        "cores": request.get("cores", 0),
    }
    made: Claim = dialect.claim(pod({"annotations": dict(annotations)}), 0, amounts)
    return made if request.get("type", vendor) == vendor else replace(made, families=frozenset({"another vendor"}))


def fit_case(given: Given) -> Any:
    vendor = given["vendor"]
    cordoned = set(hami.words((given.get("node_annotations") or {}).get(hami.CORDON)))
    cards = [
        card(each, vendor, position, given.get("pairs") or {}, cordoned) for position, each in enumerate(given["cards"])
    ]
    claim = claim_for(vendor, given["request"], given.get("annotations") or {})
    earlier = [frozenset(ids) for ids in given.get("allocated") or () if ids]
    bound = frozenset.intersection(*earlier) if earlier and claim.together else None
    if earlier and any(len(ids) > 1 for ids in earlier) and claim.together:
        bound = frozenset()
    taken = fit(cards[::-1], claim, bound=bound)
    if isinstance(taken, Counter):
        return {"ok": False, "reason": reason_text(taken, len(cards))}
    first = taken[0].device
    each = {"mib": claim.memory_on(first) // MIB, "cores": claim.cores}
    return {"ok": True, "cards": [each.device.id for each in taken], "each": each}


# Nodes


def node_from_capacity(given: Given) -> Any:
    capacity = {name: str(amount) for name, amount in given["capacity"].items()}
    digest, _ = Interpreter().node(
        msgspec.convert({"metadata": {"name": given["node"]}, "status": {"capacity": capacity}}, manifest.Node)
    )
    first = digest.devices[0]
    return {
        "cards": len(digest.devices),
        "mib": first.memory_bytes // MIB,
        "cores": first.cores,
        "slots": first.slots,
        "first_id": first.id,
    }


def iluvatar_legacy_node(given: Given) -> Any:
    names = ("vcuda-core", "vcuda-memory")
    return node_from_capacity(
        {"node": given["node"], "capacity": {f"iluvatar.ai/{name}": given[name] for name in names}}
    )


def iluvatar_legacy_patch(given: Given) -> Any:
    containers = [
        [Share(each["uuid"], each["index"], each["mib"] * MIB, each["cores"]) for each in cards]
        for cards in given["containers"]
    ]
    written = vendor_annotations(containers, 1)
    assert written.pop("iluvatar.ai/predicate-time") == "1"
    return written


# Annotations


def patch(given: Given) -> Any:
    """What the vendor's dialect writes on a pod whose containers got these cards."""
    vendor = given["vendor"]
    containers = given["containers"]
    asking = msgspec.convert(
        {
            "metadata": {"name": "case", "annotations": given.get("annotations") or {}},
            "spec": {"containers": [{"name": f"c{i}"} for i in range(len(containers))]},
        },
        manifest.Pod,
    )
    name, family = DIALECTS[vendor]
    grants = tuple(
        Grant(name, (position,), Role.APP, tuple(_share(each, i) for i, each in enumerate(cards)))
        for position, cards in enumerate(containers)
        if cards
    )
    node = given.get("node", "node1")
    home = Node(node, tuple(Device(share.id, share.index, family) for grant in grants for share in grant.shares))
    return Interpreter().by_name[name].write(asking, Placement(node, grants), home, 1)


def _share(given: Given, position: int) -> Share:
    return Share(given["uuid"], given.get("index", position), given["mib"] * MIB, given["cores"])


# MetaX


def sgpu_qos_ok(given: Given) -> bool:
    return metax_rules.qos_fits(given["pod"], str(given.get("expected", given["card"])), given["used"], given["cores"])


def _qos_card(id: str, reported: str, tenant: Charge | None) -> CardState:
    device = Device(id=id, index=0, family="metax", qos=reported)
    return CardState.of(device, tenants={} if tenant is None else {"pod": tenant})


def sgpu_qos_expect(given: Given) -> dict[str, str]:
    """What we hold to be true of a card, where the node's annotation does not say so yet."""
    cards = [
        _qos_card(each["uuid"], each["card"], Charge(shares=1, slots=1, cores=each["cores"], tag=(given["pod"], "")))
        for each in given["placed"]
    ]
    return {
        each.device.id: metax_rules.card_qos(each) for each in cards if metax_rules.card_qos(each) != each.device.qos
    }


def sgpu_qos_sync(given: Given) -> dict[str, str]:
    """The same after the annotation has caught up with some of it."""
    cards = [
        _qos_card(id, given["node"].get(id, ""), Charge(shares=1, slots=1, tag=(policy, "")))
        for id, policy in given["cache"].items()
    ]
    return {
        each.device.id: metax_rules.card_qos(each) for each in cards if metax_rules.card_qos(each) != each.device.qos
    }


def sgpu_class_ok(given: Given) -> bool:
    return metax_rules.class_fits(given["pod"], given["card_pods"])


def zone_choice(given: Given) -> list[str]:
    return [id for id, _ in metax.by_zones(given["cards"], given["n"], lambda each: int(each[1]))]


def zone_score(given: Given) -> int:
    return metax.zone_score(
        [zone for _, zone in given["free"]], [zone for id, zone in given["free"] if id in given["chosen"]]
    )


def online_choice(given: Given) -> str:
    cards = [
        CardState.of(
            Device(id, i, "metax"), tenants={f"pod-{k}": Charge(tag=("", each)) for k, each in enumerate(pods)}
        )
        for i, (id, pods) in enumerate(given["cards"].items())
    ]
    return metax_rules.online_order(cards)[0].device.id


def metax_gpu_node_score(given: Given) -> int:
    tables: dict[str, dict[int, int]] = {}
    for name, key in (("scores", SCORES), ("losses", LOSSES)):
        if given.get(name) is not None:
            try:
                tables[key] = annotation.decode(given[name], dict[int, int])
            except ValueError:
                tables[key] = {}
    return metax.metax_gpu_node_score(given["node_policy"], given["n"], tables)


def topology_tables(given: Given) -> Any:
    """`mesh`: all cards of a group are linked; `ring`: neighbours are, the others share the PCIe switch."""
    devices = []
    for zone, group in enumerate(given["groups"], start=1):
        for spot, each in enumerate(group):
            links: dict[str, int] = {}
            if given.get("layout", "mesh") == "ring":
                near = {group[(spot + 1) % len(group)], group[spot - 1]}
                links = {str(other): 110 if other in near else 50 for other in group if other != each}
            if each in given["free"]:
                devices.append(
                    Device(str(each), each, "metax", zone=zone if not links else 0, pcie=str(zone), links=links)
                )
    scores, losses = metax.topology_tables(devices)
    return {"scores": scores, "losses": losses}


# NVIDIA MIG


def mig_place(given: Given) -> list[int | None]:
    taken: list[Any] = []
    for profile in given["sequence"]:
        places = [(start, size) for start, size in given["profiles"][profile]]
        instance = mig.place(profile, places, [each for each in taken if each is not None])
        taken.append(instance)
    return [None if each is None else each.start for each in taken]


# Scores and decisions


def card_score_case(given: Given) -> float:
    state = card({"mem": 0, "slots": 0, **given["card"]}, "NVIDIA", 0, {}, set())
    asks = []
    for each in given["requests"]:
        if each["type"].lower() in state.device.model.lower():
            percent = each.get("pct", 0)
            claim = Claim(
                "", frozenset(), (), memory_bytes=each["mib"] * MIB, memory_percent=percent if percent <= 100 else 0
            )
            asks.append((claim.memory_on(state.device), each["cores"]))
    memory, cores = sum(memory for memory, _ in asks), sum(cores for _, cores in asks)
    return card_score(state, len(asks), memory, cores, Weights(**given.get("weights") or {})) / metax_rules.POINT


def node_score(given: Given) -> float:
    return score.use(card(each, "NVIDIA", i, {}, set()) for i, each in enumerate(given["cards"])) / metax_rules.POINT


def weights(given: Given) -> Any:
    made = hami.weights(given["text"])
    return {"slot": made.slot, "core": made.core, "memory": made.memory}


def filter_case(given: Given) -> Any:
    """The two nodes that the cases describe, through manifests, interpreter and ledger."""
    interpreter = Interpreter()
    nodes = {}
    for name, ids in (("node1", ("device1", "device2")), ("node2", ("device3", "device4"))):
        register = [
            {"id": id, "index": i, "count": 10, "devmem": 8000, "devcore": 100, "type": "NVIDIA", "health": True}
            for i, id in enumerate(ids)
        ]
        annotations = {"hami.io/node-nvidia-register": json.dumps(register)}
        nodes[name], _ = interpreter.node(
            msgspec.convert({"metadata": {"name": name, "annotations": annotations}}, manifest.Node)
        )
    snapshot = Snapshot(nodes.values())
    for name, text in (("node1", "device1,NVIDIA,2000,25:;"), ("node2", "device4,NVIDIA,6000,75:;")):
        running = msgspec.convert(
            {
                "metadata": {"name": name, "annotations": {"hami.io/vgpu-devices-allocated": text}},
                "spec": {"containers": [_container("main", {"n": 1, "mib": 1, "cores": 1})]},
            },
            manifest.Pod,
        )
        snapshot.restore(name, interpreter.placement(running, nodes[name]))
    asking = msgspec.convert(
        {
            "metadata": {
                "name": "case",
                "annotations": {hami.NODE_POLICY: given["node_policy"], hami.CARD_POLICY: given["gpu_policy"]},
            },
            "spec": {
                "initContainers": [_container(f"init-{i}", each) for i, each in enumerate(given.get("init") or ())],
                "containers": [_container(f"app-{i}", each) for i, each in enumerate(given["app"])],
            },
        },
        manifest.Pod,
    )
    placement = place(snapshot, interpreter.request(interpreter.admit(asking)))
    if placement is None:
        return {"node": None}
    cards = {
        role: [s.id for g in placement.grants if g.role is role for s in g.shares] for role in (Role.INIT, Role.APP)
    }
    return {"node": placement.node, "app": cards[Role.APP], "init": cards[Role.INIT]}


def _container(name: str, ask: Given) -> Given:
    amounts = {"nvidia.com/gpu": ask["n"], "nvidia.com/gpumem": ask.get("mib"), "nvidia.com/gpucores": ask.get("cores")}
    return {"name": name, "resources": {"limits": {key: value for key, value in amounts.items() if value is not None}}}


# Init containers and quota


def collapse(given: Given) -> Any:
    held = [
        Grant("case", (position,), role, tuple(Share(id, 0, mib * MIB, cores) for id, mib, cores in cards))
        for position, (role, cards) in enumerate(
            [*((Role.INIT, cards) for cards in given["init"]), *((Role.APP, cards) for cards in given["app"])]
        )
    ]
    return {
        id: {"mib": each.memory_bytes // MIB, "cores": each.cores, "slots": each.slots}
        for id, each in charges(held).items()
    }


def quota_ok(given: Given) -> bool:
    mem, core, factor = given.get("mem") or {}, given.get("core") or {}, given.get("factor", 1)
    return quota.fits(mem.get("used", 0), given["ask"]["mib"], mem.get("limit"), factor) and quota.fits(
        core.get("used", 0), given["ask"]["cores"], core.get("limit")
    )


def webhook_quota_ok(given: Given) -> bool:
    claims = [
        Claim("case", frozenset(), (i,), role, each["n"], each.get("mib", 0) * MIB)
        for role, asks in ((Role.INIT, given["init"]), (Role.APP, given["app"]))
        for i, each in enumerate(asks)
    ]
    return quota.fits(given["used"], quota.peak_memory_mib(claims), given.get("limit"))


ANSWERS: dict[str, Answer] = {
    "encode_pod_devices": encode_pod_devices,
    "decode_pod_devices": failing(decode_pod_devices),
    "decode_node_colon": failing(decode_node_colon),
    "decode_metax_sgpu_node": failing(decode_metax_sgpu_node),
    "gen_reason": lambda given: reason_text(given["counts"], given["cards"]),
    "uuid_ok": uuid_ok,
    "type_ok": type_ok,
    "mode_ok": mode_ok,
    "handshake_healthy": handshake_healthy,
    "node_lock": failing(node_lock),
    "node_lock_release": node_lock_release,
    "request": request,
    "mutate": mutate,
    "fit": fit_case,
    "node_from_capacity": node_from_capacity,
    "iluvatar_legacy_node": iluvatar_legacy_node,
    "iluvatar_legacy_patch": iluvatar_legacy_patch,
    "patch": patch,
    "sgpu_qos_ok": sgpu_qos_ok,
    "sgpu_qos_expect": sgpu_qos_expect,
    "sgpu_qos_sync": sgpu_qos_sync,
    "sgpu_class_ok": sgpu_class_ok,
    "zone_choice": zone_choice,
    "zone_score": zone_score,
    "weighted_zone_score": lambda given: metax_rules.weighted(given["raw"], given["node_policy"]),
    "online_score": lambda given: metax_rules.online_score(given["pods"]),
    "online_choice": online_choice,
    "topology_aware_on": lambda given: topology_aware(given.get("annotation"), given["config"], given["cores"]),
    "metax_gpu_node_score": metax_gpu_node_score,
    "topology_tables": topology_tables,
    "mig_place": mig_place,
    "card_score": card_score_case,
    "node_score": node_score,
    "weights": failing(weights),
    "filter": filter_case,
    "collapse": collapse,
    "quota_ok": quota_ok,
    "webhook_quota_ok": webhook_quota_ok,
}
