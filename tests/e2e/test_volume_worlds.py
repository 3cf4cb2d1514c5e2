"""The nodes on which a pod's volumes can be, by the real kube-scheduler and by us, in random worlds.

kube-scheduler is started when the world is complete, so it decides with all of it in sight.  It hands the nodes that
pass to an extender, which lets nothing pass.  SUBAK_VOLUME_WORLDS sets the number of worlds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any

from subak.dialects.interpreter import Interpreter
from subak.model import manifest, volume
from subak.model.placement import Placement
from subak.policy.decider import Decider
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator
from tests.e2e.feasible import Extender, configure, extending
from tests.e2e.storage import remove
from tests.e2e.volume_worlds import VolumeWorld, world
from tests.support.volumes import RESOURCES, Json
from tinykube.client import MERGE_PATCH, Client
from tinykube.resource import NODES, PODS

WORLDS = int(os.environ.get("SUBAK_VOLUME_WORLDS", "2"))
FIRST = int(os.environ.get("SUBAK_FIRST_VOLUME_WORLD", "1"))
AT_ONCE = 24
PATIENCE = 60.0


async def test_volumes_lead_pods_where_kube_scheduler_would_send_them(cluster: Cluster, tmp_path: Path) -> None:
    differences: list[str] = []
    pods = some = 0
    async with administrator(cluster) as client, extending() as (extender, address):
        configure(tmp_path / "scheduler.yaml", cluster.kubeconfig, address)
        for seed in range(FIRST, FIRST + WORLDS):
            try:
                made = world(seed)
                await populate(client, made)
                theirs = await ask(client, extender, cluster, tmp_path / "scheduler.yaml")
                for name, (nodes, text) in (await ours(client)).items():
                    pods, some = pods + 1, some + (0 < len(theirs[name]) < len(made.nodes))
                    if nodes != theirs[name]:
                        found = f"kube-scheduler {sorted(theirs[name])}, we {sorted(nodes)}"
                        differences.append(f"seed {seed}, pod {name}: {found}; {text}")
            finally:
                await remove(client, NODES)
    print(f"{pods:,} pods, {some:,} with some nodes and not all of them")
    assert not differences, "\n".join(differences)
    assert some > pods / 4, "most pods fit everywhere or nowhere: the comparison says little"


async def populate(client: Client, made: VolumeWorld) -> None:
    """Create everything; claims before volumes, which may name their UIDs."""
    await _all(_add_node(client, each) for each in made.nodes)
    uids: dict[str, str] = {}

    async def add(each: Json) -> None:
        resource = RESOURCES[each["kind"]]
        content = {key: value for key, value in each.items() if key != "status"}
        reference = content.get("spec", {}).get("claimRef")
        if reference is not None:
            known = {"known": uids.get(reference["name"], ""), "of-another": "0-1-2"}
            content["spec"]["claimRef"] = {**reference, "uid": known.get(reference["uid"], "")}
        namespace = "default" if resource.namespaced else ""
        created = await client.create(resource, content, namespace)
        if resource is volume.CLAIMS:
            uids[each["metadata"]["name"]] = created["metadata"]["uid"]
        if "status" in each:
            await client.patch_status(resource, each["metadata"]["name"], namespace, each["status"], kind=MERGE_PATCH)

    for kind in volume.KINDS:
        await _all(add(each) for each in made.stored if each["kind"] == kind)
    await _all(client.delete(volume.CLAIMS, name, "default") for name in made.ending)
    await _all(client.create(PODS, each, "default") for each in (*made.running, *made.waiting))


async def _add_node(client: Client, node: Json) -> None:
    await client.create(NODES, node)
    # The API server has added the taint not-ready, which the controllers of a real cluster would remove.
    await client.patch(NODES, node["metadata"]["name"], "", {"spec": {"taints": None}})


async def ask(client: Client, extender: Extender, cluster: Cluster, config: Path) -> dict[str, frozenset[str]]:
    """The nodes that kube-scheduler finds for each waiting pod."""
    cluster.start("kube-scheduler", f"--config={config}")
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                waiting = (await client.list(PODS, "default", fields="spec.nodeName=")).items
                if all(_answered(each) for each in waiting):
                    break
                await asyncio.sleep(0.1)
    finally:
        cluster.stop("kube-scheduler")
    found = ((each["metadata"]["name"], each["metadata"]["uid"]) for each in waiting)
    return {name: extender.feasible.get(uid, frozenset()) for name, uid in found}


def _answered(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def ours(client: Client) -> dict[str, tuple[frozenset[str], str]]:
    """The nodes that we find for each waiting pod, and what we say of the others."""
    decider = Decider(Interpreter())
    nodes = (await client.list(NODES, type=manifest.Node)).items
    decider.snapshot.put(decider.interpreter.node(each)[0] for each in nodes)
    for kind, resource in RESOURCES.items():
        for stored in (await client.list(resource, type=volume.KINDS[kind])).items:
            decider.volumes.see(stored)
    pods = (await client.list(PODS, "default", type=manifest.Pod)).items
    for pod in pods:
        node = decider.snapshot.node(pod.spec.node_name)
        if node is not None:
            decider.hold(pod, node)
    found: dict[str, tuple[frozenset[str], str]] = {}
    for pod in pods:
        if not pod.spec.node_name:
            answer = decider.explain(pod)
            placed = decider.decide(pod.namespace, decider.request(pod))
            assert (placed.node in answer.fitting) if isinstance(placed, Placement) else not answer.fitting
            found[pod.name] = frozenset(answer.fitting), str(answer)
    return found


async def _all(work: Iterable[Awaitable[Any]]) -> list[Any]:
    """Do all, so many at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def take_turn(each: Awaitable[Any]) -> Any:
        async with turns:
            return await each

    return await asyncio.gather(*[take_turn(each) for each in work])
