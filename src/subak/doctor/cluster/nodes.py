"""The nodes: whether our agents live, whether container runtimes ask them, and who else gives out cards there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from subak.dialects import mark
from subak.doctor import Finding, Level, failed, listed, ok, rivals, versions, warning
from subak.doctor.cluster import AGENT, Cluster
from subak.doctor.cluster.objects import Lease, until
from subak.scheduler.configuration import NAMESPACE

PORT, MOST = 9394, 200
LOGS = f"kubectl logs -n {NAMESPACE} -l app.kubernetes.io/component={AGENT}"


async def agents(cluster: Cluster) -> Sequence[Finding]:
    """Whether each node with our mark has a living agent."""
    if (await cluster.server()).embedded:
        return [ok("`subak up` starts containers by itself")]
    marked = [node for node in await cluster.nodes() if mark.marked(node)]
    if not marked:
        return [ok("no node has an agent of Subak: vendors' agents give containers their cards")]
    now, leases = await cluster.now(), await cluster.leases()
    dead = {node.name: why for node in marked if (why := _dead(leases.get(node.name), now))}
    if dead:
        seen = listed([f"{name} ({why})" for name, why in dead.items()])
        remedy = f"no pod with cards goes there; see why: {LOGS}, and on the node: subak doctor --node"
        return [failed(f"the agents of these nodes are dead: {seen}", remedy)]
    return [ok(f"{len(marked)} live")]


def _dead(lease: Lease | None, now: float) -> str:
    """By what it is seen that an agent is dead; empty if it lives."""
    if lease is None or not until(lease):
        return "has no Lease"
    late = now - until(lease)
    return f"is {late:,.0f} s late" if late >= 0 else ""


async def windows(cluster: Cluster) -> Sequence[Finding]:
    """What our agents say of themselves; on a large cluster only the first of them are asked."""
    pods = await cluster.ours(AGENT)
    said = await asyncio.gather(*(cluster.readiness(f"pods/http:{_name(pod)}:{PORT}") for pod in pods[:MOST]))
    found: list[Finding] = []
    for pod, each in zip(pods, said, strict=False):
        place = f"agent {_name(pod)} on {pod['spec'].get('nodeName', 'no node')}"
        if each is None:
            found.append(failed(f"{place} does not answer", f"kubectl describe pod -n {NAMESPACE} {_name(pod)}"))
            continue
        log = f"kubectl logs -n {NAMESPACE} {_name(pod)}"
        found += [failed(f"{place}: {problem}", log) for problem in each.problems]
        found += [warning(f"{place}: {other}", rivals.REMEDY) for other in each.left_to_others]
    if found or not pods:
        return found
    return [ok(f"{len(pods)} ready" if len(pods) <= MOST else f"the first {MOST} of {len(pods)} ready")]


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


async def runtimes(cluster: Cluster) -> Sequence[Finding]:
    """Whether the container runtimes of nodes with our agent ask it about each container."""
    if (await cluster.server()).embedded:
        return []
    by_runtime: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in await cluster.nodes():
        if mark.way(node) == mark.NRI:
            name, _, version = node.status.node_info.container_runtime_version.partition("://")
            by_runtime[name, version].append(node.name)
    found = {place: versions.runtime(*place) for place in sorted(by_runtime)}
    bad = [
        Finding(each.level, f"{listed(by_runtime[place])}: {each.seen}", each.remedy)
        for place, each in found.items()
        if each.level is not Level.OK
    ]
    if bad or not found:
        return bad
    return [ok(listed([each.seen for each in found.values()]))]


async def plugins(cluster: Cluster) -> Sequence[Finding]:
    """Which nodes with our agent have their cards given out by device plugins, so that the guard only detects."""
    names = [node.name for node in await cluster.nodes() if mark.way(node) == mark.PLUGIN]
    if not names:
        return []
    seen = f"{listed(names)}: the runtime does not ask our agent, which can only find and evict what overcommits a card"
    return [
        warning(seen, "switch NRI on in its container runtime (subak doctor --node says how), and restart the agent")
    ]


async def others(cluster: Cluster) -> Sequence[Finding]:
    """Which other systems give out cards on nodes with our agent."""
    marked = {node.name for node in await cluster.nodes() if mark.marked(node)}
    if not marked:
        return []
    places: dict[str, set[str]] = defaultdict(set)
    for pod in await cluster.pods():
        if pod.spec.node_name in marked and pod.status.phase == "Running":
            rival = rivals.known([pod.metadata.name, *(each.image for each in pod.spec.containers)])
            if rival:
                places[rival].add(pod.spec.node_name)
    return [
        warning(f"{rival} runs beside our agent on {listed(sorted(nodes))}", rivals.REMEDY)
        for rival, nodes in sorted(places.items())
    ] or [ok("nobody else gives out cards where our agent runs")]
