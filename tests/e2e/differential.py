"""Which nodes may take a pod, by kube-scheduler and by us, in random worlds.

kube-scheduler hands the nodes that pass its filters to an extender; we list the same objects from the API server and
ask `Decider.explain`.  Both must name the same nodes.  Differences that we want (decision 15) are stated as rules:
`expected`, `as_kube_scheduler_reads`.

`python -m tests.e2e.differential --worlds 500` tries many worlds; `--first` is the seed of the first.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.selector import chosen, selector
from subak.policy.decider import Decider
from subak.scheduler.core import GATED
from tests.e2e import worlds
from tests.e2e.feasible import Extender
from tests.e2e.worlds import LAST, World
from tinykube.client import Client
from tinykube.resource import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, SERVICE_ACCOUNTS, Resource
from tinykube.status import ApiError

Json = dict[str, Any]

WORLDS, FIRST = "SUBAK_WORLDS", "SUBAK_FIRST_WORLD"
AT_ONCE = 24
PATIENCE = 20.0
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False, kind="RuntimeClass")


@dataclass
class Outcome:
    """What was compared.

    `fitting` counts pods with some but not all nodes, `unready` and `misread` those for which a rule changed something.
    """

    pods: int = 0
    fitting: int = 0
    unready: int = 0
    misread: int = 0
    differences: list[str] = field(default_factory=list)


async def prepare(client: Client) -> None:
    """What all worlds share: namespaces, priority classes, a runtime class with an overhead."""
    for name, labels in worlds.NAMESPACES.items():
        await client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    for name, value in worlds.CLASSES.items():
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    heavy: Json = worlds.OVERHEAD
    runtime = {"metadata": {"name": heavy["name"]}, "handler": "none", "overhead": {"podFixed": heavy["podFixed"]}}
    await client.create(RUNTIME_CLASSES, runtime)
    async with asyncio.timeout(PATIENCE):
        for name in worlds.NAMESPACES:
            while not await _is_there(client, name):
                await asyncio.sleep(0.05)


async def clean(client: Client) -> None:
    """Remove what `prepare` has made."""
    for resource, names in (
        (NAMESPACES, [*worlds.NAMESPACES]),
        (PRIORITY_CLASSES, [*worlds.CLASSES]),
        (RUNTIME_CLASSES, [worlds.OVERHEAD["name"]]),
    ):
        for name in names:
            await client.delete(resource, str(name))


async def compare(client: Client, extender: Extender, world: World, outcome: Outcome) -> None:
    """Create a world, ask both, and remove it."""
    try:
        await _populate(client, extender, world)
        theirs = await _ask(client, extender, world)
        ours = await _ours(client)
    finally:
        await _remove(client)
    for name in sorted(theirs):  # other tests may have left pods of their own
        fitting, described, misread = ours[name]
        wanted = expected(theirs[name], world)
        outcome.pods += 1
        outcome.misread += misread
        outcome.unready += wanted != theirs[name]
        outcome.fitting += 0 < len(wanted) < len(world.nodes)
        if fitting != wanted:
            missing, more = sorted(wanted - fitting), sorted(fitting - wanted)
            text = f"seed {world.seed}, pod {name}: kube-scheduler also {missing}, we also {more}; {described}"
            outcome.differences.append(text)


def expected(theirs: frozenset[str], world: World) -> frozenset[str]:
    """The nodes that we should find, given those that kube-scheduler finds.

    kube-scheduler looks at the taint not-ready only, which a controller adds; we refuse the node as soon as its
    condition says that it is not ready.
    """
    unready = {
        node["metadata"]["name"]
        for node in world.nodes
        if any(each["type"] == "Ready" and each["status"] != "True" for each in node["status"]["conditions"])
    }
    return theirs - unready


def as_kube_scheduler_reads(pod: manifest.Pod) -> manifest.Pod:
    """The pod as kube-scheduler 1.36 takes it.

    It forgets to take away the namespace selector after it has looked up the namespaces, and asks it again without any
    labels.  So a selector that holds of no labels means all namespaces, if it is in a term of the pod itself.
    """
    affinity = pod.spec.affinity
    if affinity is None:
        return pod
    near, away = _misread(affinity.pod_affinity), _misread(affinity.pod_anti_affinity)
    affinity = msgspec.structs.replace(affinity, pod_affinity=near, pod_anti_affinity=away)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity))


def _misread(affinity: manifest.PodAffinity | None) -> manifest.PodAffinity | None:
    if affinity is None:
        return None
    terms = [
        msgspec.structs.replace(each, namespace_selector=manifest.LabelSelector())
        if chosen(selector(each.namespace_selector), {})
        else each
        for each in affinity.required_during_scheduling_ignored_during_execution or ()
    ]
    return msgspec.structs.replace(affinity, required_during_scheduling_ignored_during_execution=terms or None)


async def _populate(client: Client, extender: Extender, world: World) -> None:
    """Create nodes and running pods, and wait until kube-scheduler has seen them."""
    *others, last = world.nodes
    await _all(_add_node(client, each) for each in others)
    await _add_node(client, last)
    mark = {LAST: last["metadata"]["labels"][LAST]}
    await _all(client.create(PODS, each, each["metadata"]["namespace"]) for each in world.running)
    there = {each["metadata"]["name"]: each["metadata"]["namespace"] for each in world.running}
    await _all(client.delete(PODS, name, there[name], grace=3600) for name in world.ending)
    container = {"name": "c", "image": "none"}
    anchor = {"nodeName": last["metadata"]["name"], "containers": [container]}
    await client.create(PODS, {"metadata": {"name": "anchor", "labels": mark}, "spec": anchor}, "default")
    term = {"labelSelector": {"matchLabels": mark}, "topologyKey": worlds.HOSTNAME}
    probe = {
        "nodeSelector": mark,
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "containers": [container],
    }
    made = await client.create(PODS, {"metadata": {"name": "probe"}, "spec": probe}, "default")
    async with asyncio.timeout(PATIENCE):
        while made["metadata"]["uid"] not in extender.feasible:
            await asyncio.sleep(0.005)
    await client.delete(PODS, "probe", "default", grace=0)


async def _add_node(client: Client, node: Json) -> None:
    await client.create(NODES, node)
    # The API server has added the taint not-ready, which the controllers of a real cluster would remove.
    await client.patch(NODES, node["metadata"]["name"], "", {"spec": {"taints": node["spec"]["taints"]}})


async def _ask(client: Client, extender: Extender, world: World) -> dict[str, frozenset[str]]:
    """The nodes that kube-scheduler finds for each waiting pod."""
    made = await _all(client.create(PODS, each, each["metadata"]["namespace"]) for each in world.waiting)
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in made}
    async with asyncio.timeout(PATIENCE):
        while True:
            listing = await client.list(PODS, fields="spec.nodeName=")
            answered = {each["metadata"]["name"] for each in listing.items if _answered(each)}
            if answered >= uids.keys():
                return {name: extender.feasible.get(uid, frozenset()) for name, uid in uids.items()}
            await asyncio.sleep(0.02)


def _answered(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def _ours(client: Client) -> dict[str, tuple[frozenset[str], str, bool]]:
    """The nodes that we find for each waiting pod, what we say about the others, and whether we had to misread it."""
    decider = Decider(Interpreter())
    for namespace in (await client.list(NAMESPACES, type=manifest.Namespace)).items:
        decider.snapshot.see_namespace(namespace.name, namespace.labels)
    nodes = [decider.interpreter.node(each)[0] for each in (await client.list(NODES, type=manifest.Node)).items]
    decider.snapshot.put(nodes)
    pods = (await client.list(PODS, type=manifest.Pod)).items
    for pod in pods:
        node = decider.snapshot.node(pod.spec.node_name)
        if node is not None:
            decider.hold(pod, node)
    found: dict[str, tuple[frozenset[str], str, bool]] = {}
    for written in pods:
        if not written.spec.node_name:
            pod = as_kube_scheduler_reads(written)
            answer = decider.explain(pod)
            request = decider.request(pod)
            placed = decider.decide(pod.namespace, request)
            where = getattr(placed, "node", None)
            assert where in answer.fitting if answer.fitting else where is None, f"{pod.key}: {where}, {answer}"
            assert (GATED in request.needs.unsupported) == bool(pod.spec.scheduling_gates)
            found[pod.name] = frozenset(answer.fitting), str(answer), pod != written
    return found


async def _remove(client: Client) -> None:
    for resource in (PODS, NODES):
        await _all(_remove_one(client, resource, each["metadata"]) for each in (await client.list(resource)).items)


async def _remove_one(client: Client, resource: Resource, metadata: Mapping[str, str]) -> None:
    """Remove an object; one that goes with its namespace, as those of other tests do, may be gone already."""
    try:
        await client.delete(resource, metadata["name"], metadata.get("namespace", ""), grace=0)
    except ApiError as error:
        if error.code != 404:
            raise


async def _all(work: Iterable[Awaitable[Any]]) -> list[Any]:
    """Do all, so many at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def take_turn(each: Awaitable[Any]) -> Any:
        async with turns:
            return await each

    return await asyncio.gather(*[take_turn(each) for each in work])


async def _is_there(client: Client, namespace: str) -> bool:
    try:
        await client.get(SERVICE_ACCOUNTS, "default", namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


@click.command()
@click.option("--worlds", "count", default=500, show_default=True, help="How many random worlds.")
@click.option("--first", default=1, show_default=True, help="The seed of the first.")
def main(count: int, first: int) -> None:
    """Compare our feasible nodes with kube-scheduler's in many random worlds."""
    from tests.e2e.__main__ import main as run

    os.environ |= {WORLDS: str(count), FIRST: str(first)}
    sys.exit(run(["tests/e2e/test_differential.py", "-s"]))


if __name__ == "__main__":
    main()
