"""Koordinator's cases: manifests in the case's shorthand, through interpreter, ledger and placement, and back."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from subak.cli.cluster import Cluster
from subak.dialects import (
    koordinator_admission,
    koordinator_allocation,
    koordinator_device,
    koordinator_vendor,
    nodelock,
)
from subak.dialects.config import Config
from subak.dialects.interpreter import Interpreter
from subak.dialects.koordinator import Koordinator
from subak.dialects.koordinator_names import (
    ALLOCATED,
    DRIVER,
    HINT,
    ISOLATION,
    JOINT,
    MODEL,
    PARTITION,
    PARTITION_POLICY,
    PARTITIONS,
    VENDOR,
)
from subak.dialects.koordinator_request import check, parts, portions
from subak.model import manifest
from subak.model.card import CardState
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Share
from subak.model.reason import Reason, Refusal
from subak.policy import allocated, joint
from subak.policy.explain import explain
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.cases.runner import Answer
from tinykube.quantity import Format, Quantity

Given = dict[str, Any]

NOW_NS = 1593764466550835304
N8_MEMORY = "83201216Ki"

FULL = {
    "gpu": "koordinator.sh/gpu",
    "core": "koordinator.sh/gpu-core",
    "mem": "koordinator.sh/gpu-memory",
    "ratio": "koordinator.sh/gpu-memory-ratio",
    "shared": "koordinator.sh/gpu.shared",
    "rdma": "koordinator.sh/rdma",
    "fpga": "koordinator.sh/fpga",
    "nv": "nvidia.com/gpu",
    "ncore": "huawei.com/npu-core",
    "ncpu": "huawei.com/npu-cpu",
    "ndvpp": "huawei.com/npu-dvpp",
}
SHORT = {full: short for short, full in FULL.items()}


def full(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {FULL.get(name, name): amount for name, amount in amounts.items()}


def text(amounts: Mapping[str, Any]) -> str:
    """Amounts by their short names, `core=50 ratio=50`."""
    named = {SHORT.get(name, name): amount for name, amount in amounts.items()}
    return " ".join(f"{name}={amount}" for name, amount in sorted(named.items()))


def said(refusal: Refusal, end: str = ";") -> str:
    """The text that Koordinator's users know, without the remedy that follows it."""
    return refusal.message.partition(f"{end} ")[0]


# Pods, nodes, clusters


def pod_content(name: str, request: Mapping[str, Any], annotations: Mapping[str, str], isolation: str = "") -> Given:
    amounts = full(request)
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": "pod-uid",
            "labels": {ISOLATION: isolation} if isolation else {},
            "annotations": dict(annotations),
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "container-name", "resources": {"requests": amounts, "limits": amounts}}],
        },
    }


def pod(request: Mapping[str, Any], annotations: Mapping[str, str] | None = None, isolation: str = "") -> manifest.Pod:
    return msgspec.convert(pod_content("case", request, annotations or {}, isolation), manifest.Pod)


def node_content(given: Given) -> Given:
    labels = {ISOLATION: given["node_isolation"]} if "node_isolation" in given else {}
    return {"kind": "Node", "metadata": {"name": "n1", "labels": labels}}


def device_content(given: Given) -> Given | None:
    """The Device object of the node, None where there is none."""
    cards = range(8) if given.get("n8") or given.get("n8_apart") else given["cards"]
    if cards is None:
        return None
    minors = range(cards) if isinstance(cards, int) else cards
    infos = [_gpu(given, minor, position) for position, minor in enumerate(minors)]
    for kind in ("rdma", "fpga"):
        for minor, told in (given.get(kind) or {}).items():
            facts = told if isinstance(told, dict) else {"id": told}
            infos.append({"type": kind, "minor": minor, "health": True, "resources": full({kind: 100}), **facts})
    if given.get("nics"):
        infos += [_nic(given, root) for root in range(8 if given.get("n8_apart") else 4)]
    labels = {VENDOR: given.get("vendor", "nvidia"), MODEL: given.get("model"), PARTITION_POLICY: given.get("policy")}
    table = {PARTITIONS: json.dumps(given["partitions"])} if "partitions" in given else {}
    return {
        "kind": "Device",
        "metadata": {
            "name": "n1",
            "labels": {key: label for key, label in labels.items() if label},
            "annotations": table,
        },
        "spec": {"devices": infos},
    }


NICS = ("0000:1f:00.0", "0000:90:00.0", "0000:51:00.0", "0000:b9:00.0")


def _nic(given: Given, root: int) -> Given:
    """The RDMA device under a PCIe root, with thirty virtual functions after its own address."""
    apart = bool(given.get("n8_apart"))
    id = f"0000:{root + 1:02x}:00.0" if apart else NICS[root]
    bus = id.removesuffix("00.0")
    vfs = [{"minor": i, "busID": f"{bus}{(i + 2) // 8:02}.{(i + 2) % 8}"} for i in range(30)]
    return {
        **{"type": "rdma", "minor": root + 1, "id": id, "health": True, "resources": full({"rdma": 100})},
        "topology": {"nodeID": root // (4 if apart else 2), "pcieID": str(root), "busID": id},
        "vfGroups": [{"labels": {"type": "general"}, "vfs": vfs}],
    }


def _gpu(given: Given, minor: int, position: int) -> Given:
    memory = _memory(given)
    info: Given = {"type": "gpu", "minor": minor, "health": True}
    if memory is not None:
        own = {"ncore": 8, "ncpu": 7, "ndvpp": 100} if given.get("ascend") else {"core": 100}
        info["resources"] = full({**own, "ratio": 100, "mem": memory})
    if "ids" in given:
        info["id"] = given["ids"][position]
    if given.get("n8"):
        info["topology"] = {"nodeID": minor // 4, "pcieID": str(minor // 2)}
    elif given.get("n8_apart"):
        info["topology"] = {"nodeID": minor // 4, "pcieID": str(minor)}
    elif given.get("pcie"):
        info["topology"] = {"nodeID": 0, "pcieID": "0"}
    return info


def _memory(given: Given) -> Any:
    return given.get("mem", N8_MEMORY)


def seen(speaks: Interpreter, given: Given) -> Node:
    device = device_content(given)
    node, warnings = speaks.node(
        msgspec.convert(node_content(given), manifest.Node),
        None if device is None else msgspec.convert(device, manifest.Device),
    )
    assert not warnings
    return node


def interpreter(given: Given) -> Interpreter:
    strategy = given.get("strategy", "LeastAllocated")
    return Interpreter(Config.of({"koordinator": {"scoringStrategy": strategy}}))


def cluster(speaks: Interpreter, given: Given) -> Snapshot:
    """The node with the pods that run there, less those that are gone."""
    node = seen(speaks, given)
    snapshot = Snapshot([node])
    for number, held in enumerate(given.get("used") or ()):
        running = pod({"nv": len(held)}, {ALLOCATED: _record(held, Quantity.parse(_memory(given)).integer())})
        snapshot.restore(str(number), speaks.placement(running, node))
    for kind, entries in (given.get("held") or {}).items():
        recorded = [{**each, "resources": full(each["resources"])} for each in entries]
        running = pod({"nv": 1, "rdma": 1}, {ALLOCATED: json.dumps({kind: recorded})})
        snapshot.restore(kind, speaks.placement(running, node))
    for number in given.get("gone") or ():
        snapshot.forget(str(number))
    return snapshot


def _record(held: Mapping[int, int], total: int) -> str:
    """The annotation of a pod that holds so many percent of these cards."""
    entries = [
        {"minor": minor, "resources": full({"core": share, "ratio": share, "mem": total * share // 100})}
        for minor, share in held.items()
    ]
    return json.dumps({"gpu": entries})


# Requests and admission


def validate(given: Given) -> Given:
    """What the scheduler and admission say of the pod."""
    speaks = interpreter({})
    answer: Given = {}
    try:
        answer["request"] = "ok" if speaks.request(pod(given)).claims else "skipped"
    except Refusal as refusal:
        answer["request"] = said(refusal)
        if said(refusal).startswith("invalid resource device requests: ["):
            answer["error"] = "combination"
    try:
        speaks.admit(pod(given))
        answer["admitted"] = True
    except Refusal:
        answer["admitted"] = False
    return answer


def check_amounts(given: Given) -> str:
    try:
        check(full(given), "requests")
    except Refusal as refusal:
        return said(refusal)
    return "ok"


def split(given: Given) -> Given:
    asking = pod(given)
    ((kind, portion),) = portions(asking, parts(asking)).items()
    cores = "core" if kind == "gpu" else kind
    amounts = {
        "ncore" if portion.families == {"huawei"} else cores: portion.cores,
        "ratio": portion.ratio,
        "mem": portion.memory_bytes,
        **dict(portion.extras),
    }
    each = text({name: amount for name, amount in amounts.items() if amount})
    return {"count": portion.count, "each": each, "shared": portion.shared}


def fill(given: Given) -> str:
    """The amounts that admission adds."""
    amounts = {name: Quantity.parse(amount).integer() for name, amount in full(given).items()}
    return text(koordinator_admission.fill(amounts))


def mutate(given: Given) -> Given:
    resources = interpreter({}).admit(pod(given)).containers[0].resources
    assert resources is not None
    return {"requests": text(resources.requests or {}), "limits": text(resources.limits or {})}


def verify(given: Given) -> str:
    """Admission's answer in the form of Kubernetes' field errors."""
    try:
        interpreter({}).admit(pod(given))
    except Refusal as refusal:
        field = re.sub(r"\[\d+\]", "[*]", refusal.field)
        kind = f'Invalid value: "{refusal.value}"' if refusal.value else "Forbidden"
        return f"pod.{field}: {kind}: {said(refusal, ':')}"
    return "allowed"


# Placement

DESCRIBED = {
    *(Reason.CARD_NOT_HEALTH, Reason.CARD_UNHEALTHY, Reason.CARD_CORDONED, Reason.CARD_TYPE_MISMATCH),
    *(Reason.CARD_UUID_MISMATCH, Reason.CARD_PARTITION_MISSING, Reason.CARD_TEMPLATE_MISMATCH),
    *(Reason.NODE_INSUFFICIENT_DEVICE, Reason.NODE_UNREGISTERED, Reason.NODE_AGENT_DEAD, Reason.NODE_NOT_READY),
    *(Reason.NODE_UNSCHEDULABLE, Reason.NODE_TAINT_NOT_TOLERATED, Reason.NODE_SELECTOR_MISMATCH),
    *(Reason.NODE_ISOLATION_MISSING, Reason.RESOURCE_QUOTA_NOT_FIT, Reason.NOT_SUPPORTED_YET),
}
"""Reasons that no pod cures by leaving its node."""


def place_one(given: Given) -> Given:
    """Where the pod goes and what is recorded of its cards; else what Koordinator would call the status."""
    speaks = interpreter(given)
    snapshot = cluster(speaks, given)
    complete = speaks.admit(pod(given["request"], annotated(given), given.get("isolation", "")))
    request = speaks.request(complete)
    placement = place(snapshot, request)
    if placement is None:
        why = explain(snapshot, request)
        status = "UnschedulableAndUnresolvable" if why.reasons.keys() <= DESCRIBED else "Unschedulable"
        return {"node": None, "gpu": None, "rdma": None, "status": status, "message": str(why)}
    node = snapshot.node(placement.node)
    assert node is not None
    snapshot.assume("case", placement, request.needs.resources)
    record = json.loads(speaks.annotations(complete, placement, node, NOW_NS)[ALLOCATED])
    return {
        "node": placement.node,
        "minors": sorted(each["minor"] for each in record.get("gpu", ())),
        **{kind: [_entry(each) for each in record.get(kind, ())] for kind in ("gpu", "rdma")},
    }


def annotated(given: Given) -> dict[str, str]:
    """The annotations by which the pod of a case narrows the choice."""
    hint = {"gpu": {"requiredTopologyScope": given["scope"]}} if "scope" in given else given.get("hint")
    wanted = {HINT: hint, JOINT: given.get("joint"), PARTITION: given.get("partition")}
    return {key: json.dumps(value) for key, value in wanted.items() if value is not None}


def _entry(entry: Given) -> str:
    """A device of a record, with its virtual functions and its template."""
    extension = entry.get("extension", {})
    vfs = [f"vf={vf['busID']}" for vf in extension.get("vfs", ())]
    template = [extension["gpuSharedResourceTemplate"]] if "gpuSharedResourceTemplate" in extension else []
    return " ".join([f"{entry['minor']}: {text(entry['resources'])}", *vfs, *template])


def written(given: Given) -> dict[str, str]:
    """All that is written for the pod."""
    speaks = interpreter(given)
    snapshot = cluster(speaks, given)
    complete = speaks.admit(pod(given["request"], annotated(given), given.get("isolation", "")))
    placement = place(snapshot, speaks.request(complete))
    assert placement is not None
    node = snapshot.node(placement.node)
    assert node is not None
    return speaks.annotations(complete, placement, node, NOW_NS)


def record(given: Given) -> str:
    """The record of a share of which memory and ratio are both known."""
    node = seen(interpreter({}), {"cards": 1, "mem": given["total"]})
    share = Share(node.devices[0].id, 0, Quantity.parse(given["mem"]).integer(), given["core"])
    return text(koordinator_allocation.entry(share, given["ratio"], node.devices[0], node).resources or {})


def ledger(given: Given) -> dict[int, str]:
    """What is free of each card beside a pod that a cluster file shows."""
    running = pod_content("running", given["request"], {ALLOCATED: given["annotation"]})
    running["spec"]["nodeName"] = "n1"
    running["status"] = {"phase": given.get("phase", "Running")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(yaml.safe_dump_all([node_content(given), device_content(given), running]), encoding="utf-8")
        snapshot = Cluster.from_files(interpreter({}), [str(path)]).snapshot
    return {koordinator_device.minor(card.device): _free(card) for card in snapshot.cards("n1")}


def _free(card: CardState) -> str:
    return text(
        {
            "core": card.cores_free,
            "mem": Quantity.of(card.memory_free, Format.BINARY),
            "ratio": 100 - allocated.ratio_of(card.memory_used, card.device.memory_bytes),
        }
    )


def cambricon(given: Given) -> Any:
    """What is written for Cambricon's agent; else why nothing can be."""
    device = Device("MLU-0", 0, "cambricon", memory_bytes=24 << 30, minor=0)
    share = Share("MLU-0", 0, Quantity.parse(given["mem"]).integer(), given.get("core", 0))
    try:
        return koordinator_vendor.records([(share, device)] * given.get("cards", 1), NOW_NS)
    except ValueError as error:
        return str(error)


def in_turn(given: Given) -> list[int]:
    """The order of RDMA devices beside GPUs under these PCIe roots; the others lie under none of them."""
    roots = {minor: root for root, minors in given["roots"].items() for minor in minors}
    scores = given.get("scores") or {}
    cards = [
        CardState.of(Device(f"nic-{minor}", minor, "rdma", kind="rdma", pcie=roots.get(minor, "elsewhere")))
        for minor in sorted(given["minors"], key=lambda minor: (-scores.get(minor, 0), minor))
    ]
    return [card.device.index for card in joint.in_turn(cards, frozenset(given["roots"]))]


def lock(given: Given) -> str:
    """A lock that another pod has held for so long."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    held = nodelock.Lock(now - timedelta(minutes=given["minutes"]), "default/other")
    try:
        nodelock.take(str(held), "default/case", now, lambda owner: bool(given["owner"]))
    except nodelock.Contention:
        return "locked"
    return "taken"


# Scores


def node_score(given: Given) -> int:
    held = [{minor: used} for minor, used in enumerate(given["cards"]) if used]
    speaks = interpreter(given)
    snapshot = cluster(speaks, {**given, "cards": len(given["cards"]), "mem": "16Gi", "used": held})
    (claim,) = speaks.request(pod(given["request"])).claims
    return allocated.node_score(snapshot.cards("n1"), claim, given["strategy"])


def card_score(given: Given) -> int:
    return allocated.allocated_score(
        total_ratio=given["total"],
        free_ratio=given["free"],
        total_memory=0,
        free_memory=0,
        ask_ratio=given["ask"],
        ask_memory=0,
        strategy=given["strategy"],
    )


# Nodes


def publish(given: Given) -> Given:
    """What a node publishes whose Device object lists these cards."""
    labels = {VENDOR: given.get("vendor"), MODEL: given.get("model"), DRIVER: given.get("driver")}
    device = None
    if given["cards"] is not None:
        infos = [
            {
                "type": "gpu",
                "minor": minor,
                "health": card.get("health", True),
                "resources": full({name: amount for name, amount in card.items() if name != "health"}),
            }
            for minor, card in enumerate(given["cards"])
        ]
        metadata = {"name": "n1", "labels": {key: value for key, value in labels.items() if value}}
        device = msgspec.convert({"metadata": metadata, "spec": {"devices": infos}}, manifest.Device)
    speaks = interpreter({})
    node, _ = speaks.node(msgspec.convert({"metadata": {"name": "n1"}}, manifest.Node), device)
    published = speaks.by_name[Koordinator.name].publish(node).allocatable
    # The Device object knows the driver before the node has a label for it.
    labelled = node if device is None else replace(node, labels=device.labels)
    return {
        "resources": text({name: Quantity.parse(amount).integer() for name, amount in published.items()}),
        "labels": {
            key.removeprefix("node.koordinator.sh/"): value
            for key, value in koordinator_device.node_labels(labelled).items()
        },
    }


def model(given: Given) -> str | None:
    cards = [Device(f"GPU-{i}", i, "nvidia", model=each) for i, each in enumerate(given["models"])]
    return koordinator_device.node_labels(Node("n1", tuple(cards))).get(MODEL)


# Containers


VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "LD_PRELOAD",
)


def inject(given: Given) -> Given:
    """What the container of a bound pod gets; variables that Koordinator knows are null where they are not set."""
    speaks = interpreter({})
    node = seen(speaks, {"cards": 2, "mem": "32Gi", "fpga": {0: "", 1: ""}, **given})
    bound = pod({"nv": 1}, {ALLOCATED: given["annotation"]}, given.get("isolation", ""))
    (injection,) = speaks.injections(bound, speaks.placement(bound, node), node)
    env = injection.variables({})
    return {
        "env": {**dict.fromkeys(VARIABLES), **env},
        "only": sorted(env),
        "mounts": sorted(mount.destination for mount in injection.mounts),
        "sources": {mount.destination: mount.source for mount in injection.mounts},
    }


ANSWERS: dict[str, Answer] = {
    "koord_validate": validate,
    "koord_check": check_amounts,
    "koord_split": split,
    "koord_fill": fill,
    "koord_mutate": mutate,
    "koord_verify": verify,
    "koord_place": place_one,
    "koord_annotations": written,
    "koord_record": record,
    "koord_ledger": ledger,
    "koord_cambricon": cambricon,
    "koord_in_turn": in_turn,
    "koord_lock": lock,
    "koord_node_score": node_score,
    "koord_card_score": card_score,
    "koord_publish": publish,
    "koord_model": model,
    "koord_inject": inject,
}
